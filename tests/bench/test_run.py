"""A bench run on a table with a three-token vocabulary: pairs, resume, history, streams and what is refused."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specdec_lib.bench import run, run_folder, runners
from specdec_lib.bench.environment import Environment
from specdec_lib.bench.plan import Plan
from specdec_lib.bench.prompts import Prompt
from specdec_lib.bench.results import Outcome, coarse, read_results, small
from specdec_lib.bench.run_folder import RunFolder
from specdec_lib.bench.runners import Runner
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.cost import curves
from specdec_lib.cost.curves import CostCurve
from specdec_lib.hub.tokenizer import TextStream
from specdec_lib.models.table import Table
from specdec_lib.types import Draft, Refusal

LETTERS = "ab."
TARGET = Table({(): (0.2, 0.7, 0.1), (1,): (0.8, 0.15, 0.05), (0, 1): (0.1, 0.2, 0.7)})
DRAFT = Table({(): (0.2, 0.7, 0.1)})
CURVE = CostCurve((1, 5, 9), (8,), ((1.0, 1.2, 2.0),))
PROMPTS = [Prompt(1, "qa", "qa", ("a",), ("ba",)), Prompt(2, "writing", "multi_turn", ("b", "ab"), None),
           Prompt(3, "rag", "rag", ("aab",), None)]


def encode(messages):
    return tuple(LETTERS.index(letter) for _, text in messages for letter in text if letter in LETTERS)


def spell(ids):
    return "".join(LETTERS[i] for i in ids)


def world(**changes):
    return replace(Environment(TARGET, encode, lambda ids: spell(ids), lambda: TextStream(spell),
                               TokenizerFacts(end=frozenset({2}), vocab=3), draft=DRAFT, about={"name": "table"}),
                               **changes)


def plan(**changes):
    return replace(Plan(("ar", "draft-model"), prompts="p.jsonl", sha256="0" * 64, max_new_tokens=6, repeats=2),
                   **changes)


def bench(tmp_path, prompts=PROMPTS, a_plan=None, a_world=None, **more):
    return run.run_bench(a_plan or plan(), a_world or world(), prompts, tmp_path, lambda: CURVE, **more)


def test_a_kit_knows_what_the_curve_says_of_nodes():
    kit = world().kit(plan(), CURVE)
    assert (kit.nodes, kit.price) == (curves.node_budget(CURVE), curves.step_price(CURVE))
    assert kit.price != Kit.price
    assert world().kit(plan(), None).price == Kit.price


def test_a_run_leaves_a_summary_with_the_schema_of_the_command_line(tmp_path):
    result = bench(tmp_path)
    assert result == json.loads((tmp_path / "summary.json").read_text())
    assert set(result) == {"schema", "created", "target", "machine", "versions", "prompts", "settings", "methods",
                           "peers"}
    keys = {"lossless", "tokens_per_target_forward", "acceptance_rate", "accepted_per_draft_round",
            "draft_round_share", "width", "conditional_acceptance", "speedup", "speedup_ci", "speedup_end_to_end",
            "expected_speedup", "tokens_per_second", "time_share", "identical_prompts", "prompts",
            "first_divergence_margins", "target_nll", "ar_overlap", "reference_score", "repeated_4grams",
            "quality_ci", "quality_change", "quality_change_ci", "not_best_per_100"}
    assert list(result["methods"]) == ["ar", "draft-model"]
    for entry in result["methods"].values():
        assert set(entry) == keys | {"by_family"}
        assert set(entry["by_family"]) == {"qa", "multi_turn", "rag"}
        assert all(set(family) == keys for family in entry["by_family"].values())
    assert result["settings"]["nodes"] == 4
    assert result["settings"]["cost_curve"]["widths"] == [1, 5, 9]


def test_plain_decoding_has_one_token_per_forward_speed_one_and_its_own_tokens(tmp_path):
    ar = bench(tmp_path)["methods"]["ar"]
    assert ar["tokens_per_target_forward"] == 1
    assert ar["speedup"] == 1
    assert ar["width"] == 1
    assert ar["identical_prompts"] == ar["prompts"] == 3
    assert ar["ar_overlap"] == 1
    assert ar["acceptance_rate"] is None
    assert ar["speedup_ci"] is None


def test_rounds_add_up_to_the_tokens_and_seconds_of_their_decodes(tmp_path):
    bench(tmp_path)
    rounds, turns = (pd.read_parquet(tmp_path / f"{name}.parquet") for name in ("rounds", "decodes"))
    assert set(turns.groupby("method").size()) == {2 * 4}                  # repeats x turns of all prompts
    keys = ["question_id", "method", "repeat", "turn"]
    sums = rounds.groupby(keys)[["emitted", "when", "what", "target", "how"]].sum()
    turns = turns.set_index(keys).loc[sums.index]
    assert (sums["emitted"] == turns["tokens"].map(len)).all()
    off = (sums[["when", "what", "target", "how"]].sum(axis=1) - turns["seconds"]).abs()
    assert (off < 1e-9 + turns["seconds"] / 4_000).all()                  # as sharp as rounds are kept
    assert {"family", "round", "source", "drafted", "accepted", "depth", "width"} <= set(rounds.columns)


def test_second_turns_get_the_first_answer_of_plain_decoding(tmp_path):
    seen = []
    bench(tmp_path, a_world=world(encode=lambda messages: seen.append(list(messages)) or encode(messages)))
    answers = [d for d in read_results(tmp_path) if d.question_id == 2 and d.turn == 0]
    second = [messages for messages in seen if len(messages) == 3]
    assert second == [[("user", "b"), ("assistant", answers[0].text), ("user", "ab")]]
    assert all(len(decode.outcome.tokens) <= 6 for decode in answers)


def test_who_goes_first_rotates_with_prompt_and_repeat(tmp_path):
    bench(tmp_path)
    firsts = [d.method for d in read_results(tmp_path) if d.turn == 0][::2]
    assert firsts == ["ar", "draft-model", "draft-model", "ar", "ar", "draft-model"]


def stop_after(n):
    """A progress callback that is killed once `n` decodes are done."""
    def progress(done, total, name):
        if done >= n and not name.startswith("prompt"):
            raise KeyboardInterrupt
    return progress


def test_a_killed_run_goes_on_at_the_prompt_and_equals_one_that_was_not(tmp_path):
    whole = bench(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        bench(tmp_path / "cut", progress=stop_after(6))
    assert [p.name for p in (tmp_path / "cut" / "parts").iterdir()] == ["00000"]
    assert not (tmp_path / "cut" / "summary.json").exists()
    before = read_results(tmp_path / "cut" / "parts" / "00000")
    resumed = bench(tmp_path / "cut")
    assert [d for d in read_results(tmp_path / "cut") if d.question_id == 1] == before  # its very seconds
    for name in ("ar", "draft-model"):
        for key in ("tokens_per_target_forward", "acceptance_rate", "identical_prompts", "target_nll"):
            assert resumed["methods"][name][key] == whole["methods"][name][key]
    assert sorted(p.name for p in (tmp_path / "cut").iterdir()) == [
        "cost.json", "decodes.parquet", "rounds.parquet", "settings.json", "summary.json"]


def test_a_turn_that_may_not_fit_after_long_answers_is_said_at_the_start():
    said = []
    for context in (None, 10, 9):                  # three tokens of both turns, and six between
        run.tell_long_turns(plan(), world(target=replace(TARGET, context=context)), PROMPTS, said.append)
        run.tell_short_room(plan(), world(target=replace(TARGET, context=context)), PROMPTS[:2], said.append)
    assert [one.split(",")[0] for one in said] == ["prompt 2 may not fit the context of 9 tokens in turn 2"]
    run.tell_short_room(plan(), world(target=replace(TARGET, context=6)), PROMPTS, said.append)
    assert said[1].startswith("prompt 1 leaves room for 5 tokens in the context of 6")


def test_a_finished_run_is_not_run_again(tmp_path):
    first = bench(tmp_path)
    assert bench(tmp_path, a_world=world(target=None)) == first


def test_a_folder_with_other_settings_is_refused_by_the_name_of_the_setting(tmp_path):
    bench(tmp_path)
    with pytest.raises(Refusal, match="repeats is 2 there and 3 here"):
        bench(tmp_path, a_plan=plan(repeats=3))


def test_a_folder_in_which_nothing_was_measured_takes_other_settings(tmp_path):
    RunFolder(tmp_path, plan(repeats=1)).keep_curve(CURVE)
    assert RunFolder(tmp_path, plan(repeats=3)).curve is None
    assert bench(tmp_path, a_plan=plan(repeats=3))["settings"]["repeats"] == 3


def test_a_prompt_longer_than_the_context_is_named_with_both_lengths_before_anything_runs(tmp_path):
    short = world(target=replace(TARGET, context=3))
    with pytest.raises(Refusal, match=r"prompt 3 has 3 tokens in turn 1 and the target's context holds 3"):
        bench(tmp_path, a_world=short)
    assert not (tmp_path / "parts").exists()


def test_warm_up_prompts_are_never_measured(tmp_path):
    ran = []
    entrant = Runner("ar", lambda ids, key, repeat: ran.append((key, repeat)) or Outcome((1,), 0, 1, 1, 1))
    run.warm_up(world(), [entrant], lambda name: None)
    assert {key[0] for key, _ in ran} == set(run.WARM_UP)
    assert {repeat for _, repeat in ran} == {-1}
    assert [len(ids) for _, ids in run.warm_up_prompts(world(target=replace(TARGET, context=4)))] == [3]


def test_a_stream_remembers_again_after_a_resume_what_it_had_learnt(tmp_path):
    memory = []
    learner = Runner("warm", lambda ids, key, repeat: memory.append(key) or Outcome((1,), 0, 1, 1, 1), stream=True)
    plain = Runner("ar", lambda ids, key, repeat: Outcome((1,), 0, 1, 1, 1))
    first = run.run_prompt(0, PROMPTS[1], (1,), world(), [plain, learner], 1)
    learnt, memory[:] = list(memory), []
    run.remember(PROMPTS[1], first, world(), [plain, learner], 1)
    assert memory == learnt == [(2, 0), (2, 1)]


def test_no_space_on_the_disk_is_one_sentence_and_keeps_what_is_written(tmp_path, monkeypatch):
    there = RunFolder(tmp_path, plan())

    def full(*args):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(run_folder.os, "replace", full)
    with pytest.raises(Refusal, match="disk is full"):
        there.write_part(0, [])
    assert there.part(0) is None


@pytest.mark.parametrize(("change", "words"), [
    ({"max_new_tokens": 0}, "max_new_tokens must be at least 1"), ({"repeats": 0}, "repeats"), ({"limit": 0}, "limit"),
    ({"threads": 0}, "threads"), ({"temperature": -1.0}, "temperature"), ({"methods": ("nope",)}, "no method named"),
    ({"methods": ("ar", "ar")}, "twice"), ({"peers": ("hf-nope",)}, "no peer named"),
    ({"peers": ("hf-assisted",)}, "needs a draft model")])
def test_a_plan_that_cannot_be_run_is_refused_before_anything_is_loaded(change, words):
    with pytest.raises(Refusal, match=words):
        plan(**change)


def test_a_wrong_parameter_of_a_method_is_refused_before_the_first_prompt(tmp_path):
    with pytest.raises(Refusal, match="depht"):
        bench(tmp_path, a_plan=plan(methods=("draft-model(depht=2)",)))
    assert not (tmp_path / "parts").exists()


def test_plain_decoding_always_runs():
    assert [*map(str, Plan(("draft-model",)).methods)] == ["ar", "draft-model"]


def test_the_score_takes_the_reference_of_its_turn():
    two = Prompt(1, "math_reasoning", "math_reasoning", ("x", "y"), ("so 4", "so 5"))
    assert run.score(two, 1, "it is 5") == 1
    assert run.score(two, 0, "it is 5") == 0
    either = Prompt(1, "rag", "rag", ("x",), ("red", "blue"))
    assert run.score(either, 0, "blue") == 1
    assert run.score(PROMPTS[2], 0, "ab") is None


def test_sampled_repeats_throw_other_dice_and_a_second_run_the_same(tmp_path):
    sampled = plan(temperature=1.0, repeats=4)
    bench(tmp_path / "one", a_plan=sampled)
    bench(tmp_path / "two", a_plan=sampled)
    one, two = ([d.outcome.tokens for d in read_results(tmp_path / n) if d.question_id == 3] for n in ("one", "two"))
    assert len(set(one)) > 1
    assert one == two


def test_a_decode_is_timed_to_the_whole_of_its_loop(monkeypatch):
    now = iter(range(1000))
    monkeypatch.setattr(runners, "perf_counter", lambda: float(next(now)))
    entrant = runners.make_runners(plan(methods=("ar",)), world(), lambda: CURVE)[0]
    outcome = entrant.run((1,), (1, 0), 0)
    assert outcome.seconds + outcome.prefill == pytest.approx(len(outcome.rows), abs=0.01)


def test_on_a_gpu_the_prefill_is_waited_for_before_its_time_is_taken():
    waits = []
    target = runners.SynchronizedTarget(TARGET, lambda: waits.append("done"))
    target.prefill((1, 0))
    assert waits == ["done"]
    assert target((1, 0), Draft()).best == TARGET((1, 0), Draft()).best
    assert waits == ["done"]


def test_names_and_numbers_as_question_ids_both_survive(tmp_path):
    mixed = [replace(PROMPTS[0], question_id="x7"), PROMPTS[2]]
    bench(tmp_path, prompts=mixed)
    assert sorted({d.question_id for d in read_results(tmp_path)}) == ["3", "x7"]


def test_a_table_is_written_small_and_read_back_as_it_was(tmp_path):
    schema = pa.schema([("method", pa.string()), ("target", pa.float64()), ("tokens", pa.list_(pa.int64()))])
    rows = [{"method": "sam", "target": 0.01 + (i * 7919 % 97) * 1e-6, "tokens": [i % 7, 3]} for i in range(3000)]
    table = pa.Table.from_pylist(rows, schema)
    small(table, tmp_path / "small.parquet")
    pq.write_table(table, tmp_path / "plain.parquet")
    assert pq.read_table(tmp_path / "small.parquet").equals(table)
    assert (tmp_path / "small.parquet").stat().st_size < 0.8 * (tmp_path / "plain.parquet").stat().st_size


def test_seconds_of_rounds_are_kept_to_one_part_in_4000_and_writing_them_again_changes_nothing():
    exact = np.array([0.0, 1.0, *np.geomspace(1e-9, 1e3, 500)])
    short = coarse(exact)
    assert (abs(short - exact) <= exact / 4_000).all()
    assert short[0] == 0
    assert short[1] == 1
    assert (coarse(short) == short).all()
    assert len(set(coarse(np.linspace(1, 1.001, 1000)))) < 50              # so that they pack


def test_a_table_without_the_newer_columns_is_read_and_says_that_it_does_not_know(tmp_path):
    bench(tmp_path)
    whole = read_results(tmp_path)
    assert all(row.not_best == 0 for one in whole for row in one.outcome.rows)         # greedy, and lossless
    kept = pq.read_table(tmp_path / "rounds.parquet")
    pq.write_table(kept.drop_columns("not_best"), tmp_path / "rounds.parquet")
    old = read_results(tmp_path)
    assert [one.outcome.tokens for one in old] == [one.outcome.tokens for one in whole]
    assert all(row == was._replace(not_best=None) for one, two in zip(old, whole, strict=True)
               for row, was in zip(one.outcome.rows, two.outcome.rows, strict=True))
