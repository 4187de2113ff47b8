"""A committed run against altered copies of itself: what agrees, what does not, and which answers changed."""

from dataclasses import replace
from pathlib import Path

import pytest

from specdec_lib.analysis.repeated_run import changed_places, methods_twice, verdict
from specdec_lib.bench.results import read_turns

RESULTS = Path(__file__).parents[2] / "data" / "results"


@pytest.fixture(scope="module")
def kept():
    return read_turns(RESULTS / "report")


def altered(decodes, method, slower=1.0, **outcome):
    return [replace(one, outcome=replace(one.outcome, seconds=one.outcome.seconds * slower, **outcome))
            if one.method == method else one for one in decodes]


def row(rows, method):
    return next(one for one in rows if one.method == method)


def test_a_machine_that_is_twice_as_slow_in_everything_repeats_the_run(kept):
    slow = [replace(one, outcome=replace(one.outcome, seconds=2 * one.outcome.seconds)) for one in kept]
    rows = methods_twice(kept, slow)
    assert {one.method for one in rows} == {one.method for one in kept}
    assert all(one.ratio == pytest.approx(1) and one.same == one.turns for one in rows)
    assert row(rows, "ar").agrees is None
    assert all(one.agrees for one in rows if one.method != "ar")
    judged = len(rows) - 1
    assert verdict(rows, "report") == [
        f"Speed-ups: {judged} of {judged} methods agree with report, their 95 % interval of here over kept holding 1.",
        f"Answers: the ids are the kept ones, of every method on all {rows[0].turns} turns."]


def test_a_method_that_lost_a_third_of_its_speed_is_named_with_its_ratio(kept):
    rows = methods_twice(kept, altered(kept, "sam", slower=1.5))
    sam = row(rows, "sam")
    assert sam.ratio == pytest.approx(2 / 3)
    assert sam.ratio_interval == pytest.approx([2 / 3, 2 / 3])
    assert sam.speedup[1] == pytest.approx(sam.speedup[0] / 1.5)
    assert "sam is slower here against plain decoding than it was: 0.67 times." in verdict(rows, "report")


def test_other_ids_are_counted_by_turn_and_more_forwards_change_tokens_per_forward(kept):
    rows = methods_twice(kept, altered(kept, "sam", tokens=(1, 2), forwards=1_000))
    sam = row(rows, "sam")
    assert (sam.same, sam.per_forward[1] < sam.per_forward[0]) == (0, True)
    assert verdict(rows, "report")[-1] == (f"Answers: other ids than kept are written by sam on {sam.turns} of "
                                           f"{sam.turns} turns.")


def test_a_repetition_on_fewer_prompts_is_compared_on_those_and_not_judged_below_five(kept):
    some = sorted({one.question_id for one in kept})[:3]
    rows = methods_twice(kept, [one for one in kept if one.question_id in some])
    assert {one.turns for one in rows} == {len({(one.question_id, one.turn) for one in kept
                                                if one.question_id in some})}
    assert {one.agrees for one in rows} == {None}
    assert verdict(rows, "report")[0] == "Speed-ups are not judged: that takes five prompts that both runs have."
    assert methods_twice(kept, [replace(one, question_id="another") for one in kept]) == ()
    assert verdict((), "report")[-1] == "Answers are not compared: the runs have no turn of the same prompt."


def test_prompts_are_paired_by_name_where_the_second_run_has_another_order(kept):
    slow = altered(kept, "sam", slower=1.5)
    turned, straight = (row(methods_twice(kept, run), "sam") for run in (slow[::-1], slow))
    assert turned.ratio_interval == pytest.approx(straight.ratio_interval)


def test_what_differs_between_two_places_is_named_by_its_part():
    one = {"machine": {"processor": "A"}, "versions": {"torch": "2"}, "settings": {"commit": "a" * 40}}
    two = {"machine": {"processor": "B"}, "versions": {"torch": "2"},
           "settings": {"commit": "b" * 40, "checkpoints": {"eagle": "c" * 64}}}
    assert changed_places(one, two) == ["processor is A there and B here",
                                        "commit is aaaaaaaaaa there and bbbbbbbbbb here",
                                        "checkpoints is none there and eagle cccccccc here"]
    assert changed_places(one, one) == []


def test_budgets_that_were_refitted_and_are_fixed_now_differ():
    refitted, fixed = {"settings": {"refitted_nodes": [8, 1]}}, {"settings": {}}
    assert changed_places(refitted, fixed) == ["node budgets were refitted there and are fixed here"]
    assert changed_places(refitted, refitted) == changed_places(fixed, fixed) == []
