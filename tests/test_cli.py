"""The command line on a random model: what it writes, and that bad input is one sentence and exit code 2."""

import io
import json
import shutil

import pytest
import torch

from specdec_lib import cli
from specdec_lib.bench import options
from specdec_lib.bench import run as bench_run
from specdec_lib.cost import curves

WORDS = ["<unk>", "<eos>", *"abcdefghijklmnopqrstuvwxyz", "red", "green", "blue"]
CURVE = curves.CostCurve((1, 5, 9), (8,), ((1.0, 1.2, 2.0),))


def model_folder(path, vocab=len(WORDS), words=WORDS, seed=0):
    """A folder as transformers writes it: two random layers and a tokenizer that splits at blanks."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(seed)
    LlamaForCausalLM(LlamaConfig(vocab_size=vocab, hidden_size=16, intermediate_size=32, num_hidden_layers=5,
                                 num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
                                 bos_token_id=None, eos_token_id=1)).save_pretrained(path)
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<eos>").save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return model_folder(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    lines = [{"question_id": 1, "category": "qa", "turns": ["a b c a b"]},
             {"question_id": 2, "category": "writing", "turns": ["red green", "blue"], "reference": ["green", "blue"]}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def curve(tmp_path):
    CURVE.save(tmp_path / "curve.json")
    return str(tmp_path / "curve.json")


@pytest.fixture
def bench(model, prompts, curve, tmp_path):
    """Words of a bench that runs; more words are put behind them."""
    return ["bench", "--target", str(model), "--prompts", str(prompts), "--cost", curve, "--dtype", "float32",
            "--threads", "1", "--max-new-tokens", "8", "--device", "cpu", "--out", str(tmp_path / "out")]


def refused(words, capsys) -> str:
    """The sentence on stderr of a command that ends with exit code 2."""
    assert cli.run([str(word) for word in words]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("specdec: ")]
    assert len(lines) == 1
    assert "Traceback" not in lines[0]
    return lines[0]


def test_methods_as_json_has_the_fields_of_the_contract(capsys):
    assert cli.run(["methods", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    fields = {"name", "idea", "source", "lossless", "needs", "available", "missing"}
    assert all(set(entry) == fields for entry in found)
    assert found[0]["name"] == "ar"
    assert found[0]["available"] is True
    assert found[0]["missing"] == []


def test_methods_and_parts_are_listed_a_line_each(capsys):
    assert cli.run(["methods"]) == 0
    assert capsys.readouterr().out.startswith("ar ")
    assert cli.run(["parts"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines} == {"when", "what", "how"}


def test_bench_writes_rounds_and_a_summary_with_peers_and_every_method(bench, tmp_path):
    assert cli.run([*bench, "--methods", "ar,draft-model(depth=2)", "--peers", "hf-generate,hf-prompt-lookup"]) == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert list(summary["methods"]) == ["ar", "draft-model(depth=2)"]
    assert summary["target"]["name"] == "tiny"
    for entry in (*summary["methods"].values(), *summary["peers"].values()):
        assert entry["identical_prompts"] == entry["prompts"] == 2     # fp32: transformers' ids and ours, to the last
    assert summary["settings"]["nodes"] == 4
    assert summary["prompts"]["file"] == "prompts.jsonl"
    assert str(tmp_path) not in json.dumps(summary)
    assert (tmp_path / "out" / "rounds.parquet").stat().st_size > 0


def test_a_finished_bench_is_not_run_again_and_other_settings_are_refused(bench, tmp_path, capsys):
    assert cli.run([*bench, "--methods", "ar"]) == 0
    before = (tmp_path / "out" / "rounds.parquet").read_bytes()
    assert cli.run([*bench, "--methods", "ar"]) == 0
    assert (tmp_path / "out" / "rounds.parquet").read_bytes() == before
    assert "seed is 0 there and 7 here" in refused([*bench, "--methods", "ar", "--seed", "7"], capsys)


def test_ctrl_c_exits_130_keeps_finished_prompts_and_says_how_to_go_on(bench, tmp_path, capsys, monkeypatch):
    real = bench_run.run_prompt

    def interrupted(index, *more):
        if index == 1:
            raise KeyboardInterrupt
        return real(index, *more)
    monkeypatch.setattr(bench_run, "run_prompt", interrupted)
    assert cli.run([*bench, "--methods", "ar"]) == 130
    assert "the same command continues from there" in capsys.readouterr().err
    assert [part.name for part in (tmp_path / "out" / "parts").iterdir()] == ["00000"]
    monkeypatch.setattr(bench_run, "run_prompt", real)
    assert cli.run([*bench, "--methods", "ar"]) == 0
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["methods"]["ar"]["prompts"] == 2


def test_generate_streams_the_answer_and_ends_with_a_line_of_statistics(model, capsys):
    words = ["generate", "--method", "ar", "--target", model, "--dtype", "float32", "--max-new-tokens", "8", "a b c"]
    assert cli.run([str(word) for word in words]) == 0
    out = capsys.readouterr().out.rstrip("\n").splitlines()
    assert len(out) >= 2
    assert out[-1].startswith("[")
    assert "1.00 per forward" in out[-1]
    assert str(model.parent) not in out[-1]


def test_overhead_is_measured_without_a_model_and_kept_with_its_provenance(tmp_path, capsys):
    path = tmp_path / "new" / "overhead.json"
    assert cli.run(["overhead", "--tokens", "300,400", "--nodes", "6", "--out", str(path)]) == 0
    said, kept = capsys.readouterr().out, json.loads(path.read_text())
    assert "milliseconds a round: at 40" in said
    assert len(said.splitlines()) == 4
    assert kept["nodes"] == 6
    assert kept["provenance"]["command"]
    assert str(tmp_path) not in path.read_text()
    assert [size["tokens"] // 100 for size in kept["sizes"]] == [3, 4]
    assert kept["sizes"][0]["what"]["median"] > 0


def test_an_overhead_of_no_size_or_without_a_trigger_is_refused(capsys):
    assert "whole numbers" in refused(["overhead", "--tokens", "many"], capsys)
    assert "no entropy trigger" in refused(["overhead", "--method", "sam"], capsys)


def test_a_cost_curve_is_measured_saved_and_can_be_used(model, tmp_path, capsys):
    path = tmp_path / "deep" / "mine.json"
    words = ["cost", "--target", model, "--dtype", "float32", "--contexts", "8,16", "--repeats", "1", "--out", path]
    assert cli.run([str(word) for word in words]) == 0
    saved = curves.load_curve(path)
    assert saved.contexts == (8, 16)
    assert saved.target == "tiny"
    assert saved.provenance["command"]
    assert f"{saved.nodes()} draft nodes" in capsys.readouterr().out


@pytest.mark.parametrize(("words", "sentence"), [
    (["--methods", "nope"], "no method named 'nope'"),
    (["--methods", "ar(x=1)"], "no parameter 'x'"),
    (["--methods", "ar("], "is not a name with parameters"),
    (["--methods", "ar@nope"], "no policy named 'nope'"),
    (["--methods", ","], "name at least one method"),
    (["--peers", "hf-nope"], "no peer named 'hf-nope'"),
    (["--peers", "hf-assisted"], "needs a draft model"),
    (["--target", "/nowhere/at/all"], "there is no folder"),
    (["--prompts", "/nowhere.jsonl"], "no prompt file at /nowhere.jsonl"),
    (["--max-new-tokens", "0"], "max_new_tokens must be at least 1"),
    (["--max-new-tokens", "many"], "valid integer"),
    (["--repeats", "0"], "repeats must be at least 1"),
    (["--limit", "0"], "leaves nothing to run"),
    (["--threads", "0"], "threads must be at least 1"),
    (["--temperature", "-1"], "temperature must be 0 or more"),
    (["--device", "tpu"], "device"),
    (["--dtype", "int3"], "no dtype named 'int3'"),
    (["--cost", "/nowhere.json"], "cost curve /nowhere.json cannot be read"),
    (["--store", "/nowhere.store"], "no store at /nowhere.store"),
    (["--batch", "2"], "No such option"),
    (["--out", "/proc/nowhere/out"], "cannot be written"),
    (["--target", "/nowhere", "--methods", "sam(depth=-1)"], "depth >= 0"),      # before the target is looked for
    (["--target", "/nowhere", "--methods", "sam@typical(eps='a')"], "cannot take eps='a'"),
    (["--threads", "100000"], "threads must be at least 1 and at most"),
    (["--temperature", "nan"], "temperature must be 0 or more"),
    (["--temperature", "inf"], "temperature must be 0 or more"),
    (["--temperature", "1e-300"], "temperature must be 0 or more"),
    (["--seed", str(2 ** 63)], "at most 63 bits"),
    (["--out", ""], "it is empty"), (["--checkpoints", ""], "it is empty"),
    (["--prompts", "\udcff"], "not UTF-8 text"), (["--target", "a\0b"], "not UTF-8 text"),
    (["--target", "~no-such-person/model"], "there is no folder")])
def test_bad_words_are_one_sentence_and_exit_code_2(bench, words, sentence, capsys):
    assert sentence in refused([*bench, *words], capsys)


def test_commands_that_do_not_exist_and_empty_prompts_are_refused(capsys):
    assert "no-such" in refused(["no-such"], capsys)
    assert "the prompt is empty" in refused(["generate", "  "], capsys)


@pytest.mark.parametrize(("line", "sentence"), [
    ("{", "line 2"), ('{"question_id": 9, "category": "qa"}', "line 2 of"),
    ('{"question_id": 9, "category": "qa", "turns": [" "]}', "empty prompt"),
    ('{"question_id": 1, "category": "qa", "turns": ["a"]}', "repeats question_id 1")])
def test_a_malformed_prompt_line_is_named_by_its_number(bench, prompts, line, sentence, capsys):
    prompts.write_text(f"{prompts.read_text().splitlines()[0]}\n{line}\n")
    said = refused(bench, capsys)
    assert sentence in said
    assert "line 2" in said


def test_a_prompt_longer_than_the_context_is_named_with_both_lengths(bench, prompts, tmp_path, capsys):
    with prompts.open("a") as file:
        file.write(json.dumps({"question_id": 3, "category": "rag", "turns": ["a " * 70]}) + "\n")
    said = refused([*bench, "--methods", "ar"], capsys)
    assert "prompt 3 has 70 tokens" in said
    assert "holds 64" in said
    assert not (tmp_path / "out" / "parts").exists()


def test_a_draft_model_with_another_vocabulary_is_refused(bench, tmp_path, capsys):
    other = model_folder(tmp_path / "other", vocab=40, words=[*reversed(WORDS)])
    assert "vocabulary" in refused([*bench, "--methods", "ar", "--draft", other], capsys)


def test_a_draft_model_with_the_same_vocabulary_drafts_and_assists_transformers(bench, tmp_path):
    small = model_folder(tmp_path / "small", seed=1)
    assert cli.run([*bench, "--methods", "ar,draft-model", "--peers", "hf-assisted", "--draft", str(small)]) == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["peers"]["hf-assisted"]["identical_prompts"] == 2
    assert summary["settings"]["draft"] == "small"


@pytest.mark.parametrize("damage", ["cut", "gone", "pickled", "noise"])
def test_a_corrupt_model_is_refused(bench, model, tmp_path, damage, capsys):
    broken = tmp_path / "broken"
    shutil.copytree(model, broken)
    weights = broken / "model.safetensors"
    data = weights.read_bytes()
    weights.unlink()
    if damage == "pickled":
        torch.save({}, broken / "pytorch_model.bin")
    elif damage != "gone":
        weights.write_bytes(data[:len(data) // 2] if damage == "cut" else b"\x00" * 64)
    said = refused([*bench, "--methods", "ar", "--target", broken], capsys)
    assert "safetensors" in said


def test_no_space_on_the_disk_is_one_sentence(bench, capsys, monkeypatch):
    def full(*more):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr("specdec_lib.bench.run_folder.os.replace", full)
    said = refused([*bench, "--methods", "ar"], capsys)
    assert "disk is full" in said
    assert "finished prompts are kept" in said


def test_a_report_of_an_unfinished_run_and_a_missing_notebook_are_refused(tmp_path, capsys, monkeypatch):
    from specdec_lib.commands import report

    with pytest.raises(ValueError, match="no finished run"):
        report.write_report(tmp_path)
    monkeypatch.setattr(report, "ROOT", tmp_path)
    assert "is not beside the package" in refused(["report", "--out", tmp_path], capsys)


def test_the_node_budget_of_a_run_comes_from_the_curve_it_is_given(model, curve):
    here = options.prepare(options.RunOptions(target=str(model), dtype="float32", device="cpu", cost=curve))
    world = here.environment(lambda line: None)
    assert world.kit(here.plan, here.saved_curve).nodes == 4
    assert world.kit(here.plan, None).nodes == 8


def trained_for(folder, shelf, taps=(1, 3, 5)):
    """A shelf with an EAGLE head that nobody trained, made for the model in a folder."""
    from specdec_lib.checkpoints import checkpoint_files as shelves
    from specdec_lib.checkpoints.fingerprint import fingerprint
    from specdec_lib.hub.load import load
    from tests.worlds import random_eagle

    target, text = load(str(folder), torch.float32, "cpu")
    head = random_eagle(target.shape, taps, (2, 3, 4, 29))
    card = {"target": "tiny", "made": {"command": "none"}, "settings": {}, "measured": {}, "limits": ["Untrained."]}
    shelves.save_checkpoint(shelf, "eagle", head.state, head.meta, card, {}, target.weights, fingerprint(target, text))
    return shelf


def test_a_method_is_listed_as_available_where_its_checkpoint_stands_on_the_shelf(model, tmp_path, capsys):
    def eagle(shelf):
        assert cli.run(["methods", "--json", "--checkpoints", str(shelf)]) == 0
        return next(entry for entry in json.loads(capsys.readouterr().out) if entry["name"] == "eagle")

    empty = eagle(tmp_path)
    assert empty["missing"] == ["eagle"]
    assert empty["available"] is False
    assert cli.run(["methods", "--checkpoints", str(tmp_path)]) == 0
    assert "needs eagle: specdec train eagle" in capsys.readouterr().out
    assert eagle(trained_for(model, tmp_path / "shelf"))["available"] is True


def test_a_checkpoint_on_the_shelf_drafts_and_the_run_keeps_its_checksum(bench, model, tmp_path):
    shelf = trained_for(model, tmp_path / "shelf")
    words = [*bench, "--methods", "ar,eagle", "--checkpoints", str(shelf)]
    assert cli.run(words) == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["methods"]["eagle"]["identical_prompts"] == 2
    sums = summary["settings"]["checkpoints"]
    assert sums == {"eagle": json.loads((shelf / "eagle" / "card.json").read_text())["sha256"]}


def test_a_run_does_not_go_on_with_a_checkpoint_that_was_trained_again(bench, model, tmp_path, capsys):
    shelf = trained_for(model, tmp_path / "shelf")
    words = [*bench, "--methods", "ar,eagle", "--checkpoints", str(shelf)]
    assert cli.run(words) == 0
    card = shelf / "eagle" / "card.json"
    card.write_text(json.dumps(json.loads(card.read_text()) | {"sha256": "0" * 64}))
    assert "checkpoints is" in refused(words, capsys)


def test_a_checkpoint_for_another_model_is_refused_before_anything_is_measured(bench, tmp_path, capsys):
    other = model_folder(tmp_path / "other", vocab=40)
    shelf = trained_for(other, tmp_path / "shelf")
    said = refused([*bench, "--methods", "ar,eagle", "--checkpoints", shelf], capsys)
    assert "another architecture" in said
    assert "`specdec train eagle --target " in said
    assert not (tmp_path / "out" / "cost.json").exists()


def test_other_weights_of_the_same_model_are_a_warning_and_run(bench, tmp_path, capsys):
    shelf = trained_for(model_folder(tmp_path / "tuned", seed=5), tmp_path / "shelf")
    assert cli.run([*bench, "--methods", "ar,eagle", "--checkpoints", str(shelf)]) == 0
    assert capsys.readouterr().err.count("was trained on other weights than") == 1


def test_methods_without_a_checkpoint_read_none(bench, tmp_path):
    broken = tmp_path / "shelf" / "eagle"
    broken.mkdir(parents=True)
    (broken / "card.json").write_text("{")
    assert cli.run([*bench, "--methods", "ar,draft-model", "--checkpoints", str(broken.parent)]) == 0


@pytest.mark.parametrize(("damage", "sentence"), [
    ("empty", "`specdec train eagle --target "), ("no folder", "no folder of checkpoints at"),
    ("cut", "bytes and its card says")])
def test_a_checkpoint_that_is_missing_or_cut_short_is_one_sentence(bench, model, tmp_path, damage, sentence, capsys):
    shelf = tmp_path / "shelf"
    if damage == "empty":
        shelf.mkdir()
    elif damage == "cut":
        weights = trained_for(model, shelf) / "eagle" / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-9])
    assert sentence in refused([*bench, "--methods", "eagle", "--checkpoints", shelf], capsys)


def test_an_n_gram_on_the_shelf_comes_as_the_model_that_it_is(model, tmp_path):
    from safetensors.torch import save_file

    from specdec_lib.bench.environment import open_environment
    from specdec_lib.checkpoints.checkpoint_files import replace_checkpoint

    none, vocab = torch.zeros(0), len(WORDS)
    arrays = {"unigram": torch.ones(vocab), "bigram.sizes": torch.zeros(vocab, dtype=torch.int64),
              "trigram.sizes": none.long(), "bigram.tokens": none.long(), "trigram.tokens": none.long(),
              "bigram.mass": none, "trigram.mass": none}
    card = {"target": "tiny", "made": {}, "settings": {}, "measured": {}, "limits": [], "parameters": vocab}
    replace_checkpoint(tmp_path, "ngram", lambda path: save_file(arrays, path), card, {})
    world = open_environment(str(model), "cpu", "float32", 1, shelf=tmp_path)
    assert world.checkpoints["ngram"].vocab == vocab


def test_the_checkpoints_of_a_spec_are_those_of_its_parts_and_nothing_a_kit_brings_along():
    from specdec_lib.catalog import needed_checkpoints

    assert needed_checkpoints("ar") == needed_checkpoints("draft-model(depth=2)@confidence(threshold=0.3)") == []
    assert needed_checkpoints("eagle") == ["eagle"]
    assert needed_checkpoints("early-exit") == ["early-exit"]


def write_curve(path, **changed):
    path.write_text(json.dumps(CURVE.as_dict() | changed))
    return path


@pytest.mark.parametrize(("changed", "sentence"), [
    ({"seconds": [[1.0, float("inf"), 2.0]]}, "finite"), ({"widths": [1, 5.5, 9]}, "whole numbers"),
    ({"widths": [True, 5, 9]}, "whole numbers"), ({"contexts": [8.5]}, "whole numbers"),
    ({"provenance": [1]}, "in words"),
    ({"target": "other"}, "measured with the target other and this run has tiny"),
    ({"device": "cuda"}, "measured with the device cuda"), ({"dtype": "bfloat16"}, "measured with the dtype bfloat16")])
def test_a_cost_curve_of_odd_numbers_or_of_another_setting_is_refused(bench, tmp_path, changed, sentence, capsys):
    assert sentence in refused([*bench, "--cost", write_curve(tmp_path / "odd.json", **changed)], capsys)


def test_a_cost_curve_nested_too_deeply_is_refused(bench, tmp_path, capsys):
    (tmp_path / "deep.json").write_text("[" * 100_000)
    assert "is no cost curve" in refused([*bench, "--cost", tmp_path / "deep.json"], capsys)


@pytest.mark.parametrize("words", [["cost", "--contexts", "²"], ["cost", "--contexts", "8,"],
                                   ["overhead", "--tokens", "²"], ["overhead", "--tokens", "9" * 5000]])
def test_lists_of_sizes_are_whole_numbers_in_digits(tmp_path, words, capsys):
    assert "takes whole numbers from 1" in refused([*words, "--out", tmp_path / "x.json"], capsys)


@pytest.mark.parametrize(("line", "sentence"), [
    ({"question_id": 10 ** 30}, "beyond 64 bits"), ({"question_id": "a\ud800"}, "broken Unicode"),
    ({"category": "a\udfff"}, "broken Unicode"), ({"reference": ["\ud800"]}, "broken Unicode")])
def test_what_no_table_can_keep_is_refused_before_anything_is_decoded(bench, prompts, tmp_path, line, sentence, capsys):
    prompts.write_text(json.dumps({"question_id": 1, "category": "qa", "turns": ["a"]} | line))
    assert sentence in refused(bench, capsys)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("stdin", [b"\xff\xfe\x00", b"a \xed\xa0\x80 b"])
def test_a_prompt_of_bytes_on_stdin_is_refused(model, stdin, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8"))
    assert "not UTF-8 text" in refused(["generate", "--target", model, "-"], capsys)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8", errors="surrogateescape"))
    assert "not UTF-8 text" in refused(["generate", "--target", model, "-"], capsys)


def changed_model(model, folder, config=None, weights=None):
    """A copy of a model with other values in its config, or with one tensor changed."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(model, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | (config or {})))
    (folder / "generation_config.json").unlink(missing_ok=True)
    if weights:
        tensors = load_file(folder / "model.safetensors")
        weights(tensors)
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.parametrize(("config", "sentence"), [
    ({"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 3, "head_dim": None}, "cannot share"),
    ({"num_attention_heads": 3, "head_dim": None}, "cannot share"), ({"num_hidden_layers": -1}, "whole number above 0"),
    ({"num_hidden_layers": "5"}, "whole number above 0"), ({"num_hidden_layers": 3}, "3 layers"),
    ({"vocab_size": 30}, "by its config.json 30 x 16"), ({"max_position_embeddings": 0}, "context is a whole number"),
    ({"eos_token_id": 9999}, "end token 9999"), ({"eos_token_id": "x"}, "its config.json is broken"),
    ({"rms_norm_eps": float("nan")}, "epsilon"), ({"rope_parameters": {"rope_theta": -1.0}}, "rotary angles"),
    ({"rope_parameters": [1], "rope_scaling": [1]}, "wrong kind"),
    ({"intermediate_size": [3]}, "whole number above 0")])
def test_a_config_that_no_model_can_have_is_refused_by_what_is_wrong(bench, model, tmp_path, config, sentence, capsys):
    folder = changed_model(model, tmp_path / "odd", config)
    assert sentence in refused([*bench, "--methods", "ar", "--target", folder], capsys)


@pytest.mark.parametrize("text", ["{", "[1]", "[" * 100_000])
def test_a_broken_config_is_named_and_not_a_missing_tokenizer(bench, model, tmp_path, text, capsys):
    folder = changed_model(model, tmp_path / "odd")
    (folder / "config.json").write_text(text)
    said = refused([*bench, "--methods", "ar", "--target", folder], capsys)
    assert "config.json" in said
    assert "tokenizer" not in said


def test_a_link_in_a_circle_and_a_file_are_no_model_and_the_hub_is_not_asked(bench, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *words, **more: pytest.fail("the hub was asked"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_text("x")
    assert "loop is a link that leads to no folder" in refused([*bench, "--target", "loop"], capsys)
    assert "file is a file, and a model is a folder" in refused([*bench, "--target", "file"], capsys)
    assert "file is a file, and a model is a folder" in refused([*bench, "--draft", "file"], capsys)


@pytest.mark.parametrize("command", ["generate", "bench", "record", "cost"])
def test_weights_that_are_no_numbers_are_refused_at_the_first_forward(bench, model, tmp_path, command, capsys):
    def spoil(tensors):
        tensors["model.norm.weight"].fill_(float("nan"))
    folder = changed_model(model, tmp_path / "nan", weights=spoil)
    more = {"generate": ["a b c"], "bench": bench[3:5], "record": [*bench[3:5], "--out", tmp_path / "out"],
            "cost": ["--contexts", "8", "--out", tmp_path / "out"]}[command]
    said = refused([command, "--target", folder, "--dtype", "float32", *more], capsys)
    assert "are not numbers" in said
    assert not (tmp_path / "out").exists()


def test_one_row_that_is_no_number_ends_an_answer_in_a_sentence(model, tmp_path, capsys):
    def spoil(tensors):
        tensors["model.embed_tokens.weight"][5] = float("nan")           # of "d" alone
    folder = changed_model(model, tmp_path / "row", weights=spoil)
    words = ["generate", "--target", str(folder), "--dtype", "float32", "--max-new-tokens", "2"]
    assert cli.run([*words, "a b"]) == 0
    assert "are not numbers" in refused([*words, "a d b"], capsys)


def test_a_draft_model_that_cannot_hold_the_prompts_is_refused(bench, prompts, tmp_path, capsys):
    small = model_folder(tmp_path / "small", seed=1)
    path = small / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_position_embeddings": 4}))
    said = refused([*bench, "--methods", "ar,draft-model", "--draft", small], capsys)
    assert "prompt 1 has 5 tokens" in said
    assert "draft model holds 4" in said


@pytest.mark.parametrize(("name", "text", "sentence"), [
    ("summary.json", "{}", "is not the summary of a run"), ("summary.json", "[]", "holds no JSON object"),
    ("settings.json", "[1]", "holds no JSON object"), ("summary.json", "[" * 100_000, "cannot be read"),
    ("decodes.parquet", None, "its decodes.parquet is missing"),
    ("rounds.parquet", "noise", "its rounds.parquet cannot be read")])
def test_a_damaged_run_is_neither_taken_for_finished_nor_overwritten(bench, tmp_path, name, text, sentence, capsys):
    out = tmp_path / "out"
    assert cli.run([*bench, "--methods", "ar"]) == 0
    path = out / name
    path.unlink() if text is None else path.write_text(text)
    before = sorted((path.name, path.stat().st_mtime_ns) for path in out.iterdir())
    assert sentence in refused([*bench, "--methods", "ar"], capsys)
    assert sorted((path.name, path.stat().st_mtime_ns) for path in out.iterdir()) == before
