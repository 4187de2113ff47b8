"""The levels of a finished run are measured on what its own target wrote."""

import json

import pytest

from specdec_lib.bench import level_run, run
from specdec_lib.bench.level_run import measure_run_levels, models_of
from specdec_lib.bench.plan import Plan
from specdec_lib.bench.prompts import Prompt
from specdec_lib.bench.results import read_results
from specdec_lib.cost.levels import load_levels
from specdec_lib.models.ngram import Ngram
from specdec_lib.sampling import Sampling
from specdec_lib.toys.tiny_target import SHAPE
from specdec_lib.toys.toy_bench import untrained_environment
from specdec_lib.training.data.ngram_counts import count_ngrams
from specdec_lib.types import Draft, Refusal

SPECS = ("ar", "hierarchical(stack='ngram+draft-model',blocks=(1,2))")
ASKED = [Prompt(place, "qa", "qa", (f"{place} 3 5 7",), None) for place in range(2)]


@pytest.fixture(scope="module")
def world():
    from dataclasses import replace
    counted = Ngram(count_ngrams([tuple(range(1, 40))], SHAPE.vocab))
    return replace(untrained_environment(4), checkpoints={"ngram": counted})


@pytest.fixture
def folder(world, tmp_path, monkeypatch):
    plan = Plan(SPECS, prompts="two.jsonl", target="toy", max_new_tokens=12, threads=1)
    run.run_bench(plan, world, ASKED, tmp_path / "run")
    monkeypatch.setattr(level_run, "open_environment", lambda *values, **more: world)
    file = tmp_path / "two.jsonl"
    file.write_text("".join(json.dumps({"question_id": one.question_id, "category": "qa", "turns": list(one.turns)})
                            + "\n" for one in ASKED))
    return tmp_path / "run", file


def test_every_model_of_the_stacks_is_measured_on_the_runs_plain_answers(folder, world):
    path, prompts = folder
    found = measure_run_levels(path, prompts, passes=1)
    assert set(found.names) == {"ngram", "draft-model", "target"}
    assert found.target == "target"
    plain = [one for one in read_results(path) if one.method == "ar"]
    assert found.positions == sum(len(one.outcome.tokens) for one in plain) > 12
    hits = 0
    for one, asked in zip(plain, ASKED, strict=True):
        ids = world.encode([("user", asked.turns[0])])
        hits += sum(world.draft(ids + one.outcome.tokens[:at], Draft()).best[0] == token
                    for at, token in enumerate(one.outcome.tokens))
    assert found.alpha[found.names.index("draft-model")][-1] == pytest.approx(hits / found.positions)
    assert load_levels(path / "levels.json") == found


def test_the_levels_of_a_sampled_run_are_measured_as_it_sampled(folder, monkeypatch):
    path, prompts = folder
    kept, used = json.loads((path / "settings.json").read_text()), []
    (path / "settings.json").write_text(json.dumps(kept | {"temperature": 0.5, "top_k": 3, "top_p": 0.9}))
    measured = level_run.levels_of
    monkeypatch.setattr(level_run, "levels_of", lambda *given: used.append(given[3]) or measured(*given))
    measure_run_levels(path, prompts, passes=1)
    assert used == [Sampling(0.5, 3, 0.9)]


def test_questions_that_are_not_in_the_file_and_runs_without_stacks_are_refused(folder, tmp_path):
    path, prompts = folder
    prompts.write_text(prompts.read_text().splitlines()[0] + "\n")
    with pytest.raises(Refusal, match="question 1"):
        measure_run_levels(path, prompts, passes=1)
    with pytest.raises(Refusal, match="holds no finished run"):
        measure_run_levels(tmp_path / "none")
    kept = json.loads((path / "settings.json").read_text())
    (path / "settings.json").write_text(json.dumps(kept | {"methods": ["ar"]}))
    with pytest.raises(Refusal, match="no hierarchical"):
        measure_run_levels(path, prompts)


def test_models_are_named_once_and_copies_are_none():
    assert models_of(["ar", SPECS[1], "hierarchical(stack='prompt-lookup+early-exit:5',blocks=(1,2))@svip",
                      "hierarchical", "hierarchical(stack='ngram',blocks=(2,))"]) == ["ngram", "draft-model",
                                                                                      "early-exit:5"]
