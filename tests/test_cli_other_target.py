"""A target that transformers runs, end to end: drafters are trained for it, measured on it, and change no answer."""

import json

import pytest
import torch

from specdec_lib import cli
from specdec_lib.bench.results import read_results
from tests.training.folder import HELD, TRAIN, answers_file
from tests.training.other_target import other_folder

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
    """A folder with every drafter that can be trained for it, made by the command."""
    out = tmp_path_factory.mktemp("shelf")
    data = answers_file(model, out / "answers.jsonl")
    for name in ("eagle", "ngram", "length-predictor"):
        assert cli.run(["train", name, "--target", str(model), "--data", str(data), "--minutes", "0.03", "--out",
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
