"""`specdec train` on a random model: what it writes, who can read it, and that bad input is one sentence."""

import json
import shutil

import pytest
import torch

from specdec_lib import cli
from specdec_lib.checkpoints.checkpoint_files import SHIPPED, checkpoint_names
from specdec_lib.training.data.answer_files import read_answers
from specdec_lib.training.fit import KEPT_LOG, read_log
from tests.small_bench import refused
from tests.training.folder import HELD, OPEN, answers_file, model_folder
from tests.training.other_target import other_folder

HERE = ["--device", "cpu", "--dtype", "float32", "--threads", "1"]
METHODS = {"eagle": "eagle", "draft-lm": "draft-model", "early-exit": "early-exit",
           "diffusion-lm": "diffusion-draft", "block-diffusion": "block-diffusion",
           "diffusion-lm-aligned": "diffusion-draft(weights='diffusion-lm-aligned')"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    torch.set_num_threads(1)
    return model_folder(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def data(model, tmp_path_factory):
    return answers_file(model, tmp_path_factory.mktemp("data") / "answers.jsonl")


@pytest.fixture(scope="module")
def shelf(model, data, tmp_path_factory):
    """A folder with a checkpoint of every kind, made by the command."""
    out = tmp_path_factory.mktemp("shelf")
    for name in (*METHODS, "ngram"):
        assert cli.run(["train", name, "--target", str(model), "--data", str(data), "--minutes", "0.02",
                        "--out", str(out), *HERE]) == 0
    return out


def card(shelf, name) -> dict:
    return json.loads((shelf / name / "card.json").read_text())


@pytest.mark.parametrize("name", METHODS)
def test_a_checkpoint_is_weights_a_card_for_programs_one_for_people_and_a_log(shelf, name):
    assert {path.name for path in (shelf / name).iterdir()} == {"model.safetensors", "card.json", "README.md",
                                                               KEPT_LOG}
    log = read_log(shelf / name / KEPT_LOG)
    assert [line["step"] for line in log if "loss" in line] == list(range(1, card(shelf, name)["made"]["steps"] + 1))


def test_answers_are_made_once_and_trained_on(model, tmp_path, capsys):
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "answers"
    prompts.write_text("".join(json.dumps({"prompt": prompt, "family": "words"}) + "\n" for prompt in OPEN))
    words = ["answers", "--target", str(model), "--prompts", str(prompts), "--own", "0", "--temperatures", "0,0",
             "--max-new-tokens", "12", "--out", str(out), *HERE]
    assert cli.run([*words, "--minutes", "1"]) == 0
    assert "stopped by prompts" in capsys.readouterr().out
    records = [*read_answers(out)]
    assert {record["prompt"] for record in records} == set(OPEN)
    assert {record["temperature"] for record in records} == {0.0}
    assert cli.run(["train", "eagle", "--target", str(model), "--data", str(out), "--minutes", "0.02", "--unroll", "2",
                    "--learn-prompts", "--out", str(tmp_path / "shelf"), *HERE]) == 0
    first = card(tmp_path / "shelf", "eagle")
    assert first["settings"]["learn_prompts"] is True
    assert first["settings"]["trained_depth"] == 2
    again = ["train", "eagle", "--target", str(model), "--data", str(out), "--minutes", "0.02", "--from",
             str(tmp_path / "shelf"), "--out", str(tmp_path / "on"), *HERE]
    assert cli.run(again) == 0
    second = card(tmp_path / "on", "eagle")
    assert second["settings"]["begun_from"] == {"sha256": first["sha256"], "tokens_seen": first["made"]["tokens_seen"]}
    assert second["measured"]["as it starts"]["eagle"] == {
        key: value for key, value in first["measured"]["teacher-forced"]["eagle"].items() if key != "by_family"}
    assert "was begun for another start of eagle" in refused([*again[:-len(HERE) - 4], *again[-len(HERE) - 2:]], capsys)


@pytest.mark.parametrize(("words", "sentence"), [
    (["answers", "--own", "2"], "a number from 0 to 1, got 2.0"), (["train", "eagle", "eagle"], "eagle is named twice"),
    (["answers", "--prompts", "none.jsonl"], "no prompt file"),
    (["train", "eagle", "--unroll", "0"], "--unroll is a number of steps"),
    (["train", "draft-lm", "--unroll", "3"], "of eagle alone"),
    (["train", "ngram", "--learn-prompts"], "--learn-prompts is for networks that draft, got it for ngram"),
    (["train", "digits", "--learn-prompts"], "learn-prompts"),
    (["train", "eagle", "--rows", "1"], "--rows is at least 2"),
    (["train", "eagle", "--from", "none"], "there is no folder of checkpoints at none"),
    (["train", "block-diffusion", "--from", "."], "--from is for eagle, draft-lm, early-exit"),
    (["train", "eagle", "--watch", "none.jsonl"], "there is no file none.jsonl")])
def test_odd_orders_are_refused(words, sentence, model, tmp_path, capsys):
    assert sentence in refused([*words, "--target", str(model), "--out", tmp_path, *HERE], capsys)


@pytest.mark.parametrize("name", METHODS)
def test_a_card_says_how_it_was_made_and_what_it_is_worth(shelf, name):
    told = card(shelf, name)
    assert told["target"]["name"] == "tiny"
    assert told["parameters"] > 0
    assert len(told["limits"]) >= 3
    made = told["made"]
    assert {"command", "commit", "date", "machine", "torch"} <= set(made)
    assert made["tokens_seen"] > 0
    assert made["minutes"] <= 0.1                  # told to a tenth
    for kind in ("as trained", "teacher-forced", "live", "as it starts", "from random weights"):
        for rates in told["measured"][kind].values():
            assert rates["tokens_per_target_forward"] >= 1
            assert rates["tokens"] > 0


def test_an_early_exit_is_measured_layer_by_layer(shelf):
    assert list(card(shelf, "early-exit")["measured"]["live"]) == ["exit 1", "exit 2"]


def test_an_ngram_has_a_card_too(shelf):
    told = card(shelf, "ngram")
    assert told["measured"]["live"]["ngram"]["prompts"] >= 2
    assert told["made"]["tokens_seen"] > 0


EVERY = {"eagle", "draft-lm", "diffusion-lm", "diffusion-lm-aligned", "exit 1", "exit 2", "block-diffusion", "ngram"}


@pytest.mark.parametrize("name", [*METHODS, "ngram"])
def test_a_card_tells_both_sides_of_its_break_even(shelf, name):
    told = card(shelf, name)["break_even"]
    assert told["depth"] == 5
    assert told["dtype"] == "float32"
    assert told["threads"] == 1
    assert told["date"]
    parts = {part: sides for part, sides in told.items() if isinstance(sides, dict)}
    assert parts
    assert set(parts) <= EVERY
    for sides in parts.values():
        assert set(sides["expected"]) == {"by weights read", "by multiplications"}
        assert sides["measured"]["plain_ms"] > 0
        assert sides["reached"]["live"] >= 1
    assert "## Break-even" in (shelf / name / "README.md").read_text()


def test_a_break_even_is_told_of_checkpoints_that_exist_and_written_into_their_cards(model, shelf, tmp_path, capsys):
    here = shutil.copytree(shelf, tmp_path / "shelf")
    words = ["break-even", "--checkpoints", str(here), "--target", str(model), "--depth", "3", "--repeats", "1", *HERE]
    assert cli.run(words) == 0
    lines = capsys.readouterr().out.splitlines()
    told = lines[2:-1]
    assert {line.split("  ")[0] for line in told} == EVERY
    assert all(line.count(" = ") == 3 for line in told)
    assert "chains of 3 at 256 tokens" in lines[-1]
    assert card(here, "eagle")["break_even"]["depth"] == 5
    assert cli.run([*words[:1], "eagle", "--write", *words[1:]]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert card(here, "eagle")["break_even"]["depth"] == 3
    assert card(here, "ngram")["break_even"]["depth"] == 5
    assert {**card(here, "eagle"), "break_even": 0} == {**card(shelf, "eagle"), "break_even": 0}


def test_a_card_without_a_name_is_not_written_into(model, shelf, tmp_path, capsys):
    here = shutil.copytree(shelf, tmp_path / "shelf")
    nameless = {key: value for key, value in card(here, "eagle").items() if key != "name"}
    (here / "eagle" / "card.json").write_text(json.dumps(nameless))
    words = ["break-even", "eagle", "--write", "--checkpoints", here, "--target", model, *HERE]
    assert "lacks name, so nothing is written into it" in refused(words, capsys)
    assert card(here, "eagle") == nameless


@pytest.mark.parametrize(("words", "sentence"), [
    (["medusa"], "no drafter named 'medusa'; there are: eagle"), (["eagle", "--depth", "0"], "a depth and repeats"),
    (["block-diffusion", "--depth", "9"], "the drafter gave 8: give a smaller --depth"),
    (["eagle", "--checkpoints", "absent"], "no folder of checkpoints at absent")], ids=str)
def test_a_break_even_that_cannot_be_is_one_sentence(model, shelf, capsys, words, sentence):
    assert sentence in refused(["break-even", "--checkpoints", shelf, "--target", model, *HERE, *words], capsys)


def test_a_context_that_would_be_cut_is_refused(shelf, model, capsys):
    words = ["break-even", "ngram", "--checkpoints", shelf, "--target", model, "--context", "9999", *HERE]
    assert "half of the target's context at most, 256 tokens" in refused(words, capsys)


def test_an_empty_folder_has_no_break_even(model, tmp_path, capsys):
    said = refused(["break-even", "--checkpoints", tmp_path, "--target", model, *HERE], capsys)
    assert "no trained drafter" in said
    assert "`specdec train eagle` makes one" in said


def test_the_card_is_told_at_the_end(model, data, shelf, capsys, tmp_path):
    assert cli.run(["train", "ngram", "--target", str(model), "--data", str(data), "--minutes", "0.02",
                    "--out", str(tmp_path), *HERE]) == 0
    assert capsys.readouterr().out.strip() == (tmp_path / "ngram" / "README.md").read_text().strip()


@pytest.mark.parametrize("name", METHODS)
def test_what_was_trained_drafts_and_the_answer_stays_the_targets(model, shelf, name, capsys):
    def say(method, *more):
        assert cli.run(["generate", HELD[1], "--method", method, "--target", str(model), "--max-new-tokens", "12",
                        *more, *HERE]) == 0
        return capsys.readouterr().out

    draft = ["--draft", "draft-lm"] if name == "draft-lm" else []
    found, plain = say(METHODS[name], "--checkpoints", str(shelf), *draft), say("ar")
    assert found.splitlines()[0] == plain.splitlines()[0]
    assert len(plain.split()) > 5


@pytest.mark.parametrize("name", ["eagle", "early-exit"])
def test_a_truncated_checkpoint_is_refused(model, shelf, name, capsys, tmp_path):
    shutil.copytree(shelf / name, tmp_path / name)
    weights = tmp_path / name / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    said = refused(["generate", "a b", "--method", name, "--target", model, "--checkpoints", tmp_path, *HERE], capsys)
    assert "model.safetensors has" in said
    assert f"`specdec train {name}`" in said


def test_a_diffusion_model_of_full_attention_is_a_checkpoint_of_its_own(model, data, tmp_path, capsys):
    words = ["train", "diffusion-lm", "--target", str(model), "--data", str(data), "--minutes", "0.02", *HERE]
    assert cli.run([*words, "--attention", "full", "--out", str(tmp_path)]) == 0
    told = card(tmp_path, "diffusion-lm-full")
    assert told["settings"]["attention"] == "full"
    assert not (tmp_path / "diffusion-lm").exists()
    assert capsys.readouterr().out.startswith("# diffusion-lm-full")
    assert "no trained drafter" in refused(["break-even", "--checkpoints", tmp_path, "--target", model, *HERE], capsys)


@pytest.mark.parametrize(("change", "sentence"), [
    ({"--attention": "full"}, "--attention is causal or full and of diffusion-lm alone, got full for eagle"),
    ({"name": "diffusion-lm", "--attention": "both"}, "got both for diffusion-lm"),
    ({"name": "medusa"}, "no drafter named 'medusa' to train; there are: eagle, draft-lm, diffusion-lm, diffusion"),
    ({"--data": "absent.jsonl"}, "there is no file absent.jsonl"), ({"--minutes": "0"}, "--minutes"),
    ({"--minutes": "-3"}, "--minutes"), ({"--minutes": "soon"}, "Invalid value for '--minutes'"),
    ({"--loss": "l2"}, "no loss 'l2'"), ({"--smooth": "0.2"}, "smoothed by a share from 0 to below 1"),
    ({"--labels": "best"}, "no labels 'best': take dis"), ({"name": "block-diffusion", "--labels": "token"}, "leave"),
    ({"name": "diffusion-lm-aligned"}, "was trained for smollm2-135m" if "diffusion-lm" in checkpoint_names(SHIPPED)
     else "goes on from the checkpoint diffusion-lm, and there is none in"),
    ({"--target": "/nowhere/at/all"}, "nowhere"), ({"--forbid": "absent.jsonl"}, "there is no file absent.jsonl"),
    ({"--prompts": "absent.jsonl"}, "there is no file absent.jsonl")], ids=str)
def test_bad_words_are_one_sentence(model, data, tmp_path, capsys, change, sentence):
    out = tmp_path / "out"
    words = {"name": "eagle", "--target": model, "--data": data, "--out": out, "--minutes": "0.02", **change}
    name = words.pop("name")
    assert sentence in refused(["train", name, *(w for pair in words.items() for w in pair), *HERE], capsys)
    assert not out.exists()


@pytest.mark.parametrize(("line", "sentence"), [
    ({"prompt": "a b", "output": [3, 4]}, "lacks 'source': it needs source, temperature, prompt, output"),
    ({"source": "x", "temperature": 0.0, "prompt": "a b"}, "lacks 'output'"),
    ({"source": "x", "temperature": 0.0, "prompt": "a b", "output": [3, -1]}, "no output of token ids"),
    ({"source": "x", "temperature": "hot", "prompt": "a b", "output": [3, 4]}, "temperature 'hot'"),
    ({"source": "x", "temperature": 0.0, "prompt": ["a"], "output": [3, 4]}, "source and prompt as text"),
    ({"source": "x", "temperature": 0.0, "prompt": "a \ud800", "output": [3, 4]}, "source and prompt as text"),
    ({"source": "x", "temperature": 0.0, "prompt": "a", "earlier": {"b": 1}, "output": [3]}, "a list of texts"),
    ({"source": "x", "temperature": 0.0, "prompt": "a b", "output": [3, 4]}, "there is 1 example to train on")],
    ids=range(8))
@pytest.mark.parametrize("name", ["eagle", "ngram"])
def test_data_that_cannot_be_learned_from_are_refused_before_a_model_is_loaded(tmp_path, capsys, name, line, sentence):
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps(line) + "\n")
    words = ["train", name, "--target", "/nowhere", "--data", path, "--minutes", "0.02", "--out", tmp_path, *HERE]
    assert sentence in refused(words, capsys)


def test_token_ids_of_another_target_are_refused(model, data, tmp_path, capsys):
    path = tmp_path / "data.jsonl"
    path.write_text(data.read_text() + json.dumps({"source": "x", "temperature": 0, "prompt": "a", "output": [999]}))
    words = ["train", "eagle", "--target", model, "--data", path, "--minutes", "0.02", "--out", tmp_path, *HERE]
    assert "no output of token ids of this target, 0 to 30" in refused(words, capsys)


def test_deeply_nested_data_are_refused_by_their_file(tmp_path, capsys):
    path = tmp_path / "deep.jsonl"
    path.write_text("[" * 100_000)
    words = ["train", "eagle", "--target", "/nowhere", "--data", path, "--out", tmp_path, *HERE]
    assert "deep.jsonl is no file of answers" in refused(words, capsys)


@pytest.mark.parametrize(("words", "sentence"), [
    (["--minutes", "inf"], "at most a year"), (["--minutes", "nan"], "at most a year"),
    (["--cache-gb", "nan"], "--cache-gb is 0 or more"), (["--cache-gb", "-1"], "--cache-gb is 0 or more"),
    (["--rate", "inf"], "--rate is above 0"), (["--steps", "0"], "--steps is at least 1"),
    (["--seed", str(2 ** 63)], "at most 63 bits"), (["--out", ""], "empty"), (["--threads", "100000"], "threads")])
def test_numbers_that_no_training_can_use_are_refused(tmp_path, capsys, words, sentence):
    assert sentence in refused(["train", "eagle", "--target", "/nowhere", "--out", tmp_path, *words], capsys)


def test_a_target_that_caps_its_logits_is_refused_before_anything_is_made(tmp_path, capsys):
    from transformers import Gemma2Config, Gemma2ForCausalLM

    folder = other_folder(tmp_path / "model", Gemma2ForCausalLM(Gemma2Config(
        vocab_size=31, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, initializer_range=0.4, eos_token_id=1, bos_token_id=None)))
    said = refused(["train", "eagle", "--target", folder, "--out", tmp_path / "out", *HERE], capsys)
    assert "eagle cannot be trained for model: drafters learn from the product of the output matrix" in said
    assert not (tmp_path / "out").exists()


def test_without_data_or_the_time_to_make_them_the_way_out_is_named(model, tmp_path, capsys):
    said = refused(["train", "draft-lm", "--target", model, "--minutes", "0.0001", "--out", tmp_path, *HERE], capsys)
    assert "more data is needed, give more --minutes or more --prompts" in said
