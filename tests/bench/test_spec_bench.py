"""Answer files read by the arithmetic of Spec-Bench's evaluation script, restated here, against a run's summary."""

import json
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest

from specdec_lib.analysis.bench_report import load_report, with_families
from specdec_lib.bench import spec_bench
from specdec_lib.bench.prompts import default_path, load_prompts
from specdec_lib.types import Refusal

RUN = Path(__file__).parents[2] / "data" / "results" / "report"
MT_BENCH = {"writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"}
TASKS = {"mt_bench": "multi_turn", "translation": "translation", "summarization": "summarization", "qa": "qa",
         "math_reasoning": "math_reasoning", "rag": "rag"}


@pytest.fixture(scope="module")
def report():
    return with_families(load_report(RUN))


def answers(report, method: str) -> list[dict]:
    """The records of a method, as the script reads them back from a file."""
    categories = spec_bench.categories_of(report.summary, report.decodes, None)
    text = spec_bench.as_text(spec_bench.answer_lines(report.decodes, method, categories, 7.0))
    return [json.loads(line) for line in text.splitlines()]


def of_task(lines: list[dict], task: str) -> list[dict]:
    return [line for line in lines if task == "overall" or line["category"] == task
            or task == "mt_bench" and line["category"] in MT_BENCH]


def rate(line: dict) -> float:
    """Tokens per second of one question, by its own counter."""
    return sum(line["choices"][0]["new_tokens"]) / sum(line["choices"][0]["wall_time"])


def baseline_rate(line: dict, tokenise) -> float:
    """Tokens per second of the baseline, whose answers the script tokenises again, less one token each."""
    return (sum(len(tokenise(text)) - 1 for text in line["choices"][0]["turns"])
            / sum(line["choices"][0]["wall_time"]))


def evaluated(lines: list[dict], base: list[dict], task: str, tokenise) -> tuple[float, float, float]:
    """Mean accepted tokens, tokens per second and the speed-up, as the script prints them."""
    own, plain = of_task(lines, task), of_task(base, task)
    accepted = [length for line in own for length in line["choices"][0]["accept_lengths"]]
    speed = mean(rate(line) for line in own)
    return mean(accepted), speed, speed / mean(baseline_rate(line, tokenise) for line in plain)


@pytest.mark.parametrize("method", ["ar", "sam", "token-recycling", "draft-model"])
def test_the_scripts_mean_accepted_length_is_our_tokens_per_target_forward_for_every_task(report, method):
    lines = answers(report, method)
    entry = report.entries[method]
    assert evaluated(lines, lines, "overall", str.split)[0] == pytest.approx(entry["tokens_per_target_forward"], 1e-6)
    for task, family in TASKS.items():
        of_family = entry["by_family"][family]
        accepted, *_ = evaluated(lines, lines, task, str.split)
        assert accepted == pytest.approx(of_family["tokens_per_target_forward"], 1e-6)
        assert len(of_task(lines, task)) == of_family["prompts"]


@pytest.mark.parametrize("method", ["sam", "token-recycling", "draft-model"])
def test_totals_of_the_two_files_give_the_summarys_speed_up_with_prefill_for_every_task(report, method):
    lines, base = answers(report, method), answers(report, "ar")
    for task, family in {"overall": None, **TASKS}.items():
        entry = report.entries[method] if family is None else report.entries[method]["by_family"][family]

        def per_token(of):
            choices = [line["choices"][0] for line in of_task(of, task)]      # noqa: B023
            return sum(sum(c["wall_time"]) for c in choices) / sum(sum(c["new_tokens"]) for c in choices)
        assert per_token(base) / per_token(lines) == pytest.approx(entry["speedup_end_to_end"], 1e-6)


def test_the_scripts_tokens_per_second_are_a_mean_over_questions_of_the_runs_own_seconds(report):
    lines = answers(report, "sam")
    for task, family in TASKS.items():
        own = [one for one in report.of_family(family) if one.method == "sam"]
        rates = []
        for question in dict.fromkeys(one.question_id for one in own):
            turns = [one.outcome for one in own if one.question_id == question]
            rates.append(sum(len(t.tokens) for t in turns) / sum(t.prefill + t.seconds for t in turns))
        assert evaluated(lines, lines, task, str.split)[1] == pytest.approx(mean(rates), 1e-12)


def test_the_scripts_count_of_the_baseline_lowers_it_so_that_plain_decoding_beats_itself(report):
    """The pitfall that the docstring names, on files that say the same: a text of n ids is counted as n - 1."""
    base = answers(report, "ar")
    ids = {tuple(one.outcome.tokens): one.text for one in report.decodes if one.method == "ar"}
    back = {text: tokens for tokens, text in ids.items()}
    accepted, _, speedup = evaluated(base, base, "overall", back.__getitem__)
    assert accepted == 1
    assert 1.005 < speedup < 1.2


def test_a_record_has_the_fields_of_spec_bench_and_one_choice_for_each_repeat(report):
    line = answers(report, "sam")[0]
    assert set(line) == {"question_id", "category", "answer_id", "model_id", "choices", "tstamp"}
    assert set(line["choices"][0]) == {"index", "turns", "decoding_steps", "new_tokens", "wall_time", "accept_lengths"}
    for choice in (one["choices"][0] for one in answers(report, "sam")):
        assert sum(choice["accept_lengths"]) == sum(choice["new_tokens"])
        assert len(choice["accept_lengths"]) == sum(choice["decoding_steps"])
        assert len(choice["turns"]) == len(choice["new_tokens"]) == len(choice["wall_time"])
    again = [replace(one, repeat=1) for one in report.decodes if one.method == "sam"]
    first, second = spec_bench.answer_lines([*report.decodes, *again], "sam", {}, 7.0)[0]["choices"]
    assert (first.pop("index"), second.pop("index")) == (0, 1)
    assert first == second


def test_categories_come_from_the_prompts_of_the_run_and_two_turns_stay_two(report):
    lines = answers(report, "ar")
    wanted = {one.question_id: one for one in load_prompts(default_path())}
    assert all(line["category"] == wanted[line["question_id"]].category for line in lines)
    assert {len(line["choices"][0]["turns"]) for line in lines if line["category"] in MT_BENCH} == {2}


def test_peers_unknown_methods_and_other_prompts_are_refused(report, tmp_path):
    with pytest.raises(Refusal, match="hf-generate is a peer"):
        answers(report, "hf-generate")
    with pytest.raises(Refusal, match="no method nope"):
        answers(report, "nope")
    other = tmp_path / "other.jsonl"
    other.write_text('{"question_id": 1, "category": "qa", "turns": ["a"]}\n')
    with pytest.raises(Refusal, match="not the file of this run's prompts"):
        spec_bench.categories_of(report.summary, report.decodes, other)
    strange = {"prompts": {"sha256": "0" * 64, "file": "mine.jsonl"}}
    with pytest.raises(Refusal, match="give --prompts mine.jsonl"):
        spec_bench.categories_of(strange, report.decodes, None)
    assert spec_bench.categories_of(strange, report.of_family("qa"), None) == {}
    with pytest.raises(Refusal, match="as its date"):
        spec_bench.seconds_of(None)
