"""Many comparisons at once: what leaves 1 out together, what "not told apart" allows, and predictions beside it."""

import numpy as np
import pytest

from specdec_lib.analysis import length_policies, policy_verdicts
from specdec_lib.analysis.compare import Comparison
from specdec_lib.measure import Cost, speedup, speedup_interval
from tests.bench.made_up import decodes, report, turn


def step(ratio, low, high):
    return Comparison("policy", "fixed 2", ratio, (low, high))


def test_one_comparison_keeps_its_interval_and_many_have_wider_ones():
    assert policy_verdicts.joint_intervals({"a": step(1.0, .8, 1.25)}, 24)["a"] == pytest.approx((.8, 1.25))
    low, high = policy_verdicts.joint_intervals({name: step(1.0, .8, 1.25) for name in "abcdefgh"}, 24)["a"]
    assert (low, high) == pytest.approx((.8 ** 1.459, 1.25 ** 1.459), rel=1e-3)        # t of 23: 3.018 over 2.069
    assert policy_verdicts.joint_intervals({"a": Comparison("a", "b", 1.0, None)}, 24) == {}


def test_of_many_equal_policies_on_few_prompts_all_intervals_hold_one_in_most_runs():
    dice, wrong = np.random.default_rng(8), 0
    for _ in range(60):
        base = [Cost(96, x) for x in np.exp(dice.normal(0, .3, 8))]
        others = [[Cost(96, one.seconds * x) for one, x in zip(base, np.exp(dice.normal(0, .1, 8)), strict=True)]
                  for _ in range(20)]
        found = {str(n): Comparison("policy", "fixed 2", speedup(base, one), speedup_interval(base, one, draws=1000))
                 for n, one in enumerate(others)}
        wrong += any(low > 1 or high < 1 for low, high in policy_verdicts.joint_intervals(found, 8).values())
    assert wrong <= 7                              # of 60; widened by a normal's quantiles 13 are wrong


def test_policies_that_are_told_apart_together_are_named():
    steps = {"a": step(1.5, 1.4, 1.6), "b": step(1.02, 1.001, 1.04), "c": step(.5, .4, .6), "d": step(1.0, .9, 1.1)}
    said = policy_verdicts.joint_text(steps, 24)
    assert said == ("At 95 % each, 0.2 of 4 would lie outside by chance. At 95 % for all together, faster: a, "
                    "1.50 times. Slower: c, 0.50 times.")
    assert "faster: none. Slower: none." in policy_verdicts.joint_text({"d": steps["d"]}, 24)


def test_verdicts_of_all_comparisons_together_are_counted():
    steps = {"a": step(1.5, 1.4, 1.6), "b": step(1.02, 1.001, 1.04), "c": step(.5, .4, .6), "d": step(1.0, .9, 1.1)}
    assert policy_verdicts.joint_counts_text(steps, 24) == (
        "With intervals that hold for all 4 comparisons together, 1 are faster and 1 slower.")
    assert policy_verdicts.joint_counts_text({"d": Comparison("d", "b", 1.0, None)}, 24) == policy_verdicts.NONE_KNOWN


def test_the_answer_names_the_best_fixed_length_of_each_drafter_and_how_many_rules_beat_it():
    fast, slow = (decodes(f"eagle@{name}", *[turn(2, 2, target=cost)] * 2)
                  for name, cost in (("svip", .5), ("margin", 2)))
    nearly = decodes("eagle@tapout", *[turn(2, 2, target=.8)] * 2)
    run = report(decodes("ar", *[turn(0, 0)] * 6), decodes("eagle(depth=1)", *[turn(1, 1)] * 3),
                 decodes("eagle(depth=2)", *[turn(2, 2)] * 2), fast, nearly, slow,
                 decodes("sam(depth=1)", *[turn(1, 0)] * 6))
    measured = length_policies.policies_by_drafter(run)
    assert policy_verdicts.answer_text(run, {"eagle": measured["eagle"]}) == (
        "The best fixed draft length, chosen in hindsight, is 2 tokens with eagle, where 2 of 3 rules are faster, at"
        " most 2.00 times (2.00 to 2.00).")
    assert policy_verdicts.answer_text(run, {"eagle": measured["eagle"][:1]}).endswith(
        "1 token with eagle, where none of 0 rules is faster.")


def test_comparisons_without_an_interval_count_nowhere():
    unknown = {name: Comparison("policy", "fixed 2", 1.5, None) for name in "bcd"}
    one = {"a": step(1.5, 1.4, 1.6)}
    assert policy_verdicts.joint_intervals(one | unknown, 24) == policy_verdicts.joint_intervals(one, 24)
    assert policy_verdicts.joint_text(one | unknown, 24) == policy_verdicts.joint_text(one, 24)
    assert policy_verdicts.joint_text(unknown, 24) == policy_verdicts.not_equal_text(unknown) == (
        "No policy has an interval: that takes five prompts.")


def test_a_policy_that_is_not_told_apart_is_told_with_how_much_slower_it_may_be():
    steps = {"a": step(.96, .91, 1.001), "b": step(1.0, .95, 1.05), "c": step(.5, .4, .6)}
    assert policy_verdicts.not_equal_text(steps) == (
        "Not told apart at 95 % is not equal: a may be slower by 9%, its interval is 0.91 to 1.00.")
    assert policy_verdicts.not_equal_text({"c": steps["c"]}).startswith("Every policy")


def test_predictions_of_a_drafter_are_counted_beside_what_the_run_says_of_the_same_policies():
    run = report(decodes("ar", *[turn(0, 0)] * 6), decodes("eagle(depth=1)", *[turn(1, 1, what=.25)] * 3),
                 decodes("eagle(depth=2)", *[turn(2, 2, what=.5)] * 2),
                 decodes("eagle@svip", *[turn(2, 2, what=.25)] * 2),
                 decodes("eagle@tapout", *[turn(4, 1, what=1.0)] * 3))
    lines = length_policies.policies_by_drafter(run)["eagle"]
    speeds = {"fixed 1": 1.0, "fixed 2": 2.0, "svip": 2.4, "tapout": 2.2, "never run": 9.0}
    assert policy_verdicts.agreement_text(run, "eagle", lines, speeds) == (
        "eagle: predicted faster than the best fixed length all 2 policies, faster in the run by their intervals 1 of"
        " 2. Predictions above the measured interval: 1. Of 6 pairs that the run tells apart, 4 were predicted in the "
        "measured order.")


def test_hindsight_is_what_a_choice_on_other_prompts_loses():
    even = [[Cost(10, 1.0)] * 8, [Cost(10, 2.0)] * 8]
    assert policy_verdicts.hindsight(even) == pytest.approx(1.0)       # the first length is best on any half
    short = [[Cost(10, 1.0)], [Cost(10, 3.0)]] * 2                     # two lengths, four prompts: each best on two
    lengths = [[cost for cost, in short], [cost for cost, in (short[1], short[0]) * 2]]
    assert .5 < policy_verdicts.hindsight(lengths) < .9
    assert policy_verdicts.hindsight(lengths) == policy_verdicts.hindsight(lengths)


def test_hindsight_is_told_where_a_run_has_lengths_to_choose_from():
    one, two = decodes("eagle(depth=1)", *[turn(1, 1)] * 3), decodes("eagle(depth=2)", *[turn(2, 2)] * 2)
    run = report(decodes("ar", *[turn(0, 0)] * 6), one, two, decodes("draft-model(depth=2)", *[turn(2, 1)] * 3))
    told = {name: policy_verdicts.hindsight_text(run, name, lines)
            for name, lines in length_policies.policies_by_drafter(run).items()}
    assert told == {"eagle": "eagle: a fixed length chosen on half of the 5 prompts has, on the other half, 100% of "
                             "the speed of the best one there.",
                    "draft-model": "draft-model: the run leaves no choice between fixed lengths to judge."}


def test_the_longest_draft_of_each_policy_stands_beside_the_fixed_lengths():
    run = report(decodes("ar", *[turn(0, 0)] * 6), decodes("eagle(depth=2)", *[turn(2, 2)] * 2),
                 decodes("eagle@svip", turn(1, 1), turn(4, 3)), decodes("eagle@tapout", *[turn(4, 2)] * 2),
                 decodes("eagle@margin", *[turn(1, 1)] * 3))
    lines = length_policies.policies_by_drafter(run)["eagle"]
    assert policy_verdicts.caps_text(run, "eagle", lines) == (
        "eagle: drafts reach 1 tokens under margin; 4 tokens under svip, tapout; fixed lengths go to 2.")
