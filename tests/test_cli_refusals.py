"""Bad words, prompts, curves and folders on the command line: one sentence and exit code 2."""

import io
import json
import os

import pytest

from specdec_lib import cli
from tests.small_bench import (  # noqa: F401
    CURVE,
    bench_fixture,
    curve_fixture,
    model_fixture,
    prompts_fixture,
    refused,
)


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
    (["--top-k", "5"], "at temperature 0 nothing is sampled"),
    (["--temperature", "1", "--top-k", "-1"], "top_k must be 0 (all) or more"),
    (["--temperature", "1", "--top-p", "0"], "top_p must be above 0"),
    (["--temperature", "1", "--top-p", "nan"], "top_p must be above 0"),
    (["--system", " "], "this one is empty"),
    (["--template-switches", "thinking"], "are NAME=VALUE with commas between"),
    (["--template-switches", "tools=[1,2]"], "the template switch tools is set by this package"),
    (["--device", "tpu"], "device"),
    (["--dtype", "int3"], "no dtype named 'int3'"),
    (["--cost", "/nowhere.json"], "cost curve /nowhere.json cannot be read"),
    (["--store", "/nowhere.store"], "no store at /nowhere.store"),
    (["--batches", "2"], "No such option"),
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


def test_int4_decodes_and_says_whose_codes_it_has_and_is_not_for_training(model, capsys):
    words = ["--target", str(model), "--dtype", "int4", "--device", "cpu"]
    assert cli.run(["generate", *words, "--method", "sam", "--max-new-tokens", "4", "a b c a b"]) == 0
    told = capsys.readouterr()
    assert ", int4, " in told.out + told.err
    assert "4-bit weights: rounded, 21 of 21 matrices" in told.err
    assert "--dtype int4 is for decoding" in refused(["train", "eagle", *words], capsys)
    assert "--dtype int4 is for decoding" in refused(["break-even", "eagle", *words], capsys)


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


def test_a_bench_measures_its_cost_curve_within_a_short_context(bench, tmp_path):
    cost = bench.index("--cost")
    assert cli.run([*bench[:cost], *bench[cost + 2:], "--methods", "ar,sam"]) == 0
    curve = json.loads((tmp_path / "out" / "summary.json").read_text())["settings"]["cost_curve"]
    assert curve["contexts"] == [64 - 32 - 1]


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


def write_curve(path, **changed):
    path.write_text(json.dumps(CURVE.as_dict() | changed))
    return path


DEEP = json.loads("[" * 900 + "]" * 900)


@pytest.mark.parametrize(("changed", "sentence"), [
    ({"seconds": [[1.0, float("inf"), 2.0]]}, "finite"), ({"widths": [1, 5.5, 9]}, "whole numbers"),
    ({"widths": [True, 5, 9]}, "whole numbers"), ({"contexts": [8.5]}, "whole numbers"),
    ({"contexts": [-8]}, "whole numbers from 1"), ({"widths": [1, 5, 10 ** 30]}, "to 1,000,000"),
    ({"provenance": [1]}, "in words"), ({"provenance": {"a": DEEP}}, "at most 20 levels"),
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


@pytest.mark.parametrize(("command", "option"), [
    ("bench", "--prompts"), ("bench", "--cost"), ("bench", "--store"), ("bench", "--checkpoints"), ("bench", "--out"),
    ("report", "--parameters"), ("record", "--out"), ("store", "--from"), ("store", "--out"), ("train", "--data"),
    ("train", "--forbid"), ("cost", "--out"), ("overhead", "--out"), ("answers", "--prompts"), ("gpu", "--prompts"),
    ("export", "--prompts"), ("notebook", "--recordings"), ("notebook", "--out"), ("site", "--out")])
def test_a_pipe_is_refused_wherever_a_path_is_given_and_never_waited_for(command, option, tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    said = refused([command, option, tmp_path / "pipe"], capsys)
    assert f"Invalid value for '{option}'" in said
    assert "is a pipe or a device: give a file or a folder" in said
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("command", [["sweep"], ["compare"], ["export"]])
def test_a_pipe_is_refused_as_an_argument(command, tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    assert "is a pipe or a device" in refused([*command, tmp_path / "pipe", "--out", tmp_path / "out"], capsys)


@pytest.mark.parametrize("words", [["cost"], ["overhead"]])
def test_a_place_where_no_file_can_be_is_refused_before_minutes_of_measuring(words, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    for out, said in ((tmp_path, "is a folder, and a file is written there"), (".", "is a folder"),
                      (tmp_path / "file" / "x.json", "file is no folder: give another path")):
        assert said in refused([*words, "--out", out], capsys)


@pytest.mark.parametrize(("words", "said"), [
    (["--draft", "first-layers"], "give --contention with it"),
    (["--contention", "--batch", "1,2"], "give one of them"),
    (["--contention", "--contexts", "8,16"], "give --contexts one length")])
def test_options_of_cost_that_do_not_go_together_are_refused(words, said, tmp_path, capsys):
    assert said in refused(["cost", *words, "--out", tmp_path / "x.json"], capsys)


def test_contention_beyond_the_context_is_refused_with_its_length(model, tmp_path, capsys):
    words = ["cost", "--target", model, "--device", "cpu", "--dtype", "float32", "--threads", "1", "--contexts", "64",
             "--contention", "--out", tmp_path / "x.json"]
    assert "context holds 64 tokens: give --contexts a smaller length than 64" in refused(words, capsys)


@pytest.mark.parametrize("stdin", [b"\xff\xfe\x00", b"a \xed\xa0\x80 b"])
def test_a_prompt_of_bytes_on_stdin_is_refused(model, stdin, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8"))
    assert "not UTF-8 text" in refused(["generate", "--target", model, "-"], capsys)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8", errors="surrogateescape"))
    assert "not UTF-8 text" in refused(["generate", "--target", model, "-"], capsys)


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
