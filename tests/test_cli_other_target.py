"""A target that transformers runs, end to end: drafters are trained for it, measured on it, and change no answer."""

import json
import re
import shlex
from functools import partial

import pytest
import torch

from specdec_lib import cli
from specdec_lib.bench.results import read_results
from specdec_lib.models.replay import load_recording
from specdec_lib.training.fit import Settings
from specdec_lib.types import Refusal
from tests.training.folder import HELD, TRAIN, answers_file
from tests.training.other_target import other_folder

STEPS = 60
HERE = ["--device", "cpu", "--threads", "1"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    torch.set_num_threads(1)
    return other_folder(tmp_path_factory.mktemp("models") / "other")


@pytest.fixture(scope="module")
def prompts(tmp_path_factory):
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    turns = [HELD[0], TRAIN[0], HELD[1]]
    path.write_text("".join(json.dumps({"question_id": place, "category": "qa", "turns": [turn]}) + "\n"
                            for place, turn in enumerate(turns)))
    return path


@pytest.fixture(scope="module")
def shelf(model, tmp_path_factory):
    """A folder with every drafter that can be trained for it, made by the command; the fit takes the same steps."""
    out = tmp_path_factory.mktemp("shelf")
    data = answers_file(model, out / "answers.jsonl")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specdec_lib.training.pipeline.Settings", partial(Settings, steps=STEPS))
        for name in ("eagle", "ngram", "length-predictor"):
            assert cli.run(["train", name, "--target", str(model), "--data", str(data), "--minutes", "0.2", "--out",
                            str(out), "--dtype", "float32", *HERE]) == 0
    return out


def test_a_trained_eagle_is_better_than_its_start_and_drafts_in_the_loop_as_it_was_measured(shelf):
    measured = json.loads((shelf / "eagle" / "card.json").read_text())["measured"]
    rates = {kind: measured[kind]["eagle"]["tokens_per_target_forward"] for kind in measured}
    assert rates["teacher-forced"] > rates["as it starts"]
    assert rates["live"] > 1


def test_its_break_even_is_measured_and_not_counted(shelf, model, capsys):
    told = json.loads((shelf / "eagle" / "card.json").read_text())["break_even"]["eagle"]
    assert told["expected"] is None
    assert told["measured"]["plain_ms"] > 0
    assert cli.run(["break-even", "--checkpoints", str(shelf), "--target", str(model), "--repeats", "1", "--depth", "2",
                    "--dtype", "float32", *HERE]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("eagle", "ngram"))]
    assert [line.count("not counted") for line in rows] == [2, 2]


def test_what_was_trained_drafts_and_every_answer_is_that_of_plain_decoding(shelf, model, prompts, tmp_path):
    methods = ["eagle(depth=3)", "eagle(depth=3)@adaeagle", "eagle2(depth=3)", "draft-model(depth=2)"]
    assert cli.run(["bench", "--target", str(model), "--methods", ",".join(methods), "--checkpoints", str(shelf),
                    "--draft", "ngram", "--prompts", str(prompts), "--max-new-tokens", "24", "--dtype", "float32",
                    "--out", str(tmp_path), *HERE]) == 0
    answers = {name: [one.outcome.tokens for one in read_results(tmp_path) if one.method == name]
               for name in ("ar", *methods)}
    assert all(found == answers["ar"] for found in answers.values())
    summary = json.loads((tmp_path / "summary.json").read_text())["methods"]
    assert summary[methods[0]]["tokens_per_target_forward"] > 1


def said(words, capsys, code=0) -> str:
    """What the command prints on stderr; it ends with this exit code."""
    assert cli.run([*map(str, words), "--dtype", "float32", *HERE]) == code
    told = capsys.readouterr().err
    assert "Traceback" not in told
    return told


def names_in(folder) -> list[str]:
    return json.loads((folder / "settings.json").read_text())["methods"]


def test_a_bench_without_methods_takes_those_that_the_target_can_run_and_is_read_again_without_a_model(
        model, prompts, tmp_path, capsys, monkeypatch):
    words = ["bench", "--target", model, "--prompts", prompts, "--limit", 1, "--max-new-tokens", 4, "--out", tmp_path]
    told = said(words, capsys)
    assert "left out by default: draft-model (draft is missing (--draft NAME)), eagle2 (the checkpoint eagle" in told
    assert names_in(tmp_path) == ["ar", "prompt-lookup", "sam", "token-recycling", "sam+token-recycling"]
    monkeypatch.setattr("specdec_lib.bench.options.open_environment", None)
    assert "already holds this finished run" in said(words, capsys)
    assert json.loads((tmp_path / "summary.json").read_text())["settings"]["left_out"] == [
        "draft-model", "eagle2", "respec", "diffuspec"]
    asked = [*words, "--methods", "ar,draft-model"]
    assert "holds a run with other settings" in said(asked, capsys, 2)


def test_a_run_of_fewer_methods_that_were_named_is_not_taken_for_the_default_one(model, prompts, tmp_path, capsys):
    words = ["bench", "--target", model, "--prompts", prompts, "--limit", 1, "--max-new-tokens", 4, "--out", tmp_path]
    said([*words, "--methods", "ar,sam"], capsys)
    assert "holds a run with other settings" in said(words, capsys, 2)


def test_a_method_that_is_named_is_refused_and_not_left_out(model, prompts, tmp_path, capsys):
    told = said(["bench", "--target", model, "--prompts", prompts, "--methods", "ar,draft-model", "--out", tmp_path],
                capsys, 2)
    assert "specdec: draft-model cannot be made: draft is missing (--draft NAME)" in told


def test_recordings_have_the_drafters_that_the_target_can_have(model, prompts, tmp_path, capsys):
    words = ["record", "--target", model, "--prompts", prompts, "--limit", 1, "--max-new-tokens", 4, "--out", tmp_path]
    assert "left out by default: draft-model" in said(words, capsys)
    [path] = tmp_path.iterdir()
    assert set(load_recording(path).drafts) == {"prompt-lookup", "suffix-automaton", "token-recycling"}


@pytest.mark.parametrize(("drafters", "why"), [
    ("recorded", "recorded cannot be recorded: recording is missing; name others with --drafters"),
    ("sam=draft-model", "sam cannot be recorded: draft is missing (--draft NAME); name others with --drafters"),
    ("fixed", "fixed is no drafter; there are: ")])
def test_a_named_drafter_that_cannot_be_recorded_is_refused_before_anything_is_decoded(model, tmp_path, capsys,
                                                                                      drafters, why):
    told = said(["record", "--target", model, "--drafters", drafters, "--out", tmp_path / "out"], capsys, 2)
    assert f"specdec: {why}" in told
    assert "plain decoding" not in told


ADVISED = {"a shipped eagle": (["bench", "--methods", "ar,eagle"], ["eagle"]),
           "a shipped early exit": (["bench", "--methods", "ar,early-exit"], []),
           "no eagle": (["bench", "--methods", "ar,eagle", "--checkpoints", "EMPTY"], ["eagle"]),
           "no draft model": (["bench", "--draft", "draft-lm"], []),
           "no n-gram": (["bench", "--draft", "ngram", "--checkpoints", "EMPTY"], ["ngram"]),
           "no drafter of a predictor": (["train", "length-predictor"], ["eagle"])}


@pytest.mark.parametrize("case", ADVISED)
def test_a_command_that_is_advised_is_accepted(model, tmp_path, capsys, monkeypatch, case):
    def accepted(*order):
        raise Refusal("accepted")

    words, advised = ADVISED[case]
    (tmp_path / "none").mkdir()
    words = [str(tmp_path / "none") if word == "EMPTY" else word for word in words]
    told = said([*words, "--target", model, "--out", tmp_path / "out"], capsys, 2)
    monkeypatch.setattr("specdec_lib.commands.train.train_drafter", accepted)
    monkeypatch.setattr("specdec_lib.commands.train.train_ngram", accepted)
    commands = [shlex.split(line)[1:] for line in re.findall(r"`(specdec [^`]*)`", told)]
    assert [command[1] for command in commands] == advised
    for command in commands:
        assert ["--target", str(model)] == command[2:4]
        assert "specdec: accepted" in said(command, capsys, 2)
