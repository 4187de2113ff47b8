"""`specdec export`: answer files of a committed run, and what is refused."""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from specdec_lib import cli
from specdec_lib.bench.plan import REPORT_METHODS

RUN = str(Path(__file__).parents[2] / "data" / "results" / "report")


def test_every_method_gets_a_file_and_peers_are_named_as_left_out(tmp_path, capsys):
    assert cli.run(["export", "--format", "spec-bench", RUN, "--out", str(tmp_path / "answers")]) == 0
    told = capsys.readouterr()
    files = sorted((tmp_path / "answers").iterdir(), key=lambda file: file.stem)
    assert [file.stem for file in files] == sorted(REPORT_METHODS)
    assert told.out.split() == [str(tmp_path / "answers" / f"{name}.jsonl") for name in REPORT_METHODS]
    assert "left out: hf-generate, hf-prompt-lookup" in told.err
    assert "keeps no texts" not in told.err
    for file in files:
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert len(lines) == 12
        assert {line["model_id"] for line in lines} == {file.stem}


def test_one_method_is_one_file_the_same_each_time(tmp_path):
    out = tmp_path / "sam.jsonl"
    words = ["export", RUN, "--method", "sam", "--out", str(out)]
    assert cli.run(words) == 0
    first = out.read_bytes()
    assert cli.run(words) == 0
    assert out.read_bytes() == first


def test_a_run_that_keeps_no_texts_says_that_its_answers_are_empty(tmp_path, capsys):
    run, out = str(Path(RUN).parent / "respec"), tmp_path / "ar.jsonl"
    assert cli.run(["export", run, "--method", "ar", "--out", str(out)]) == 0
    assert "respec keeps no texts: the turns of its answers are empty" in capsys.readouterr().err
    answers = [json.loads(line)["choices"][0] for line in out.read_text().splitlines()]
    assert {turn for answer in answers for turn in answer["turns"]} == {""}
    assert all(min(answer["new_tokens"]) > 0 and min(answer["wall_time"]) > 0 for answer in answers)


@pytest.mark.parametrize(("words", "why"), [
    (["--out", "x.jsonl"], "9 methods and an answer file of Spec-Bench holds one: give --method NAME"),
    (["--method", "sam", "--out", "."], "is a folder"), (["--format", "csv", "--out", "x"], "no format named 'csv'"),
    (["--method", "nope", "--out", "x"], "no method nope"), (["--method", "hf-generate", "--out", "x"], "is a peer"),
    (["--prompts", "nowhere", "--out", "x"], "no prompt file"),
    (["--target", "smollm2-135m", "--out", "x"], "--target and --checkpoints are for a head"),
    (["--checkpoints", ".", "--out", "x"], "--target and --checkpoints are for a head"),
    (["--method", "sam", "--out", f"{RUN}/decodes.parquet"], "is a file of the run in")])
def test_what_cannot_be_written_is_refused_in_a_sentence(words, why, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.run(["export", RUN, *words]) == 2
    assert why in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_run_of_one_method_is_one_file_and_one_without_an_answer_is_refused(tmp_path, capsys):
    shutil.copytree(RUN, tmp_path / "run")
    tables = tmp_path / "run" / "decodes.parquet"
    pq.write_table(pq.read_table(tables, filters=[("method", "=", "ar")]), tables)
    assert cli.run(["export", str(tmp_path / "run"), "--out", str(tmp_path / "ar.jsonl")]) == 0
    assert len((tmp_path / "ar.jsonl").read_text().splitlines()) == 12
    pq.write_table(pq.read_table(tables).slice(0, 0), tables)
    assert cli.run(["export", str(tmp_path / "run"), "--out", str(tmp_path / "x")]) == 2
    assert "has no answers of a method" in capsys.readouterr().err


def test_a_head_without_its_format_is_told_of_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.run(["export", "eagle", "--out", "x"]) == 2
    assert "eagle is a trained head and no folder of a run: give --format speculators" in capsys.readouterr().err


def test_a_folder_without_a_run_is_refused(tmp_path, capsys):
    assert cli.run(["export", str(tmp_path), "--out", str(tmp_path / "x")]) == 2
    assert "holds no finished run" in capsys.readouterr().err
