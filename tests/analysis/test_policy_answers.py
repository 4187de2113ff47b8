"""One sentence on a policy: every drafter with its own verdict, none without an interval, and where it was measured."""

import pytest

from specdec_lib.analysis import policy_answers
from tests.bench.made_up import decodes, report, turn

PLAIN = decodes("ar", *[turn(0, 0)] * 6)
TWO = decodes("eagle(depth=2)", *[turn(2, 2, what=.5)] * 2)                 # 6 tokens in 3 s
SURE = decodes("eagle@svip", *[turn(2, 2, what=.25)] * 2)                   # in 2.5 s
OTHER = decodes("draft-model(depth=2)", *[turn(2, 2, what=.5)] * 2)
WORSE = decodes("draft-model@svip", *[turn(2, 2, what=1.0)] * 2)            # in 4 s
EVEN = decodes("draft-model@svip", *[turn(2, 2, what=.5)] * 2, slow=(.9, 1.1, .9, 1.1, 1.0))
LATER = decodes("draft-model@svip", *[turn(2, 2, what=.25)] * 2)


@pytest.mark.parametrize(("second", "said"), [
    (WORSE, "faster than the best fixed length with eagle, 1.20 times (1.20 to 1.20), and slower with draft-model, "
            "0.75 times (0.75 to 0.75)."),
    (EVEN, "faster than the best fixed length with eagle, 1.20 times (1.20 to 1.20), and not told apart with "
           "draft-model, 1.00 times (0.91 to 1.11)."),
    (LATER, "faster than the best fixed length with eagle, 1.20 times (1.20 to 1.20), and with draft-model, 1.20 "
            "times (1.20 to 1.20).")])
def test_each_drafter_has_its_verdict(second, said):
    found = policy_answers.measured_answer(report(PLAIN, TWO, SURE, OTHER, second), "svip", "SVIP")
    assert found == f"Measured on 5 prompts, SVIP is {said}"


def test_without_an_interval_no_direction_is_told():
    few = [decodes(method, *[turn(2, 2, what=what)] * 2, prompts=2) for method, what in
           (("ar", 0.0), ("eagle(depth=2)", .5), ("eagle@svip", .25))]
    assert policy_answers.measured_answer(report(*few), "svip", "SVIP").endswith(
        "SVIP is beside the best fixed length with eagle, 1.20 times without an interval.")


def test_a_policy_that_the_run_lacks_is_said_to_lack():
    assert policy_answers.measured_answer(report(PLAIN, TWO), "svip", "SVIP") == (
        "The run has no SVIP beside the best fixed length.")


def test_another_policy_can_be_the_base():
    run = report(PLAIN, TWO, SURE, decodes("eagle@margin", *[turn(2, 2, what=.5)] * 2))
    found = policy_answers.measured_answer(run, "svip", "SVIP", "margin", "the margin rule")
    assert found == "Measured on 5 prompts, SVIP is faster than the margin rule with eagle, 1.20 times (1.20 to 1.20)."


def test_a_second_sentence_on_a_run_need_not_say_where_it_was_measured():
    found = policy_answers.measured_answer(report(PLAIN, TWO, SURE), "svip", "the rule", where=False)
    assert found == "The rule is faster than the best fixed length with eagle, 1.20 times (1.20 to 1.20)."


@pytest.mark.parametrize(("values", "right", "said"), [
    ([*range(40)], [i > 19 for i in range(40)], "ranks a right draft token above a rejected one in 100 % of pairs, "
                                                "better than chance"),
    ([*range(40)], [i < 20 for i in range(40)], "ranks a right draft token above a rejected one in 0 % of pairs, "
                                                "worse than chance"),
    ([0.0] * 40, [i < 20 for i in range(40)], "ranks a right draft token above a rejected one in 50 % of pairs, "
                                              "not told apart from chance"),
    ([1.0], [True], "cannot be judged here: no draft token was rejected"),
    ([1.0], [False], "cannot be judged here: no draft token was right"),
    ([], [], "cannot be judged here: no draft token was right")])
def test_a_signal_is_told_beside_chance(values, right, said):
    assert policy_answers.signal_answer("It", values, right) == f"It {said}"
