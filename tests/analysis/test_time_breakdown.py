"""Why a policy is slower: six causes worked out by hand, which add up to the whole difference."""

import pytest

from specdec_lib.analysis import length_policies, time_breakdown
from specdec_lib.analysis.time_breakdown import TokenTime, causes, token_time
from tests.bench.made_up import decodes, report, turn

PLAIN = decodes("ar", *[turn(0, 0)] * 6)
BEST = decodes("eagle(depth=2)", *[turn(2, 2, what=.5)] * 2)                            # 6 tokens in 3 s
MORE = decodes("eagle@svip", *[turn(4, 2, what=1.0)] * 2)                               # as many rounds, 4 drafted each
SHY = decodes("eagle@margin", *[turn(1, 1, when=.1, what=.3)] * 3)                      # more rounds, dearer tokens
FAST = decodes("eagle@adaedl", *[turn(2, 2, what=.4)] * 2)


@pytest.fixture(scope="module")
def run():
    return report(PLAIN, BEST, MORE, SHY, FAST)


def test_a_token_is_the_mean_of_all_rounds(run):
    found = token_time(run, "eagle@margin")
    assert found == pytest.approx(TokenTime(3 / 6, 3 / 6, 0.0, 50.0, 150.0, 500.0, 0.0))


def test_each_cause_by_hand():
    one, base = TokenTime(.5, 1.5, .9, 20.0, 90.0, 60.0, 8.0), TokenTime(.4, 1.0, .3, 5.0, 50.0, 40.0, 10.0)
    found = {cause.said.partition(" (")[0]: cause.ms for cause in causes(one, base)}
    assert found == pytest.approx({
        "more calls of the target": .1 * 100, "dearer calls": 60 - .5 * 100, "more drafted tokens": .5 * 50,
        "dearer drafted tokens": 90 - 1.5 * 50, "choosing": 15.0, "checking and bookkeeping": -2.0})


def test_the_causes_come_in_order_and_add_up_to_the_difference(run):
    best = token_time(run, "eagle(depth=2)")
    for spec in ("eagle@svip", "eagle@margin", "eagle@adaedl", "ar"):
        one = token_time(run, spec)
        found = [cause.ms for cause in causes(one, best)]
        assert found == sorted(found, reverse=True)
        assert sum(found) == pytest.approx(sum(one[3:]) - sum(best[3:]))


def test_only_policies_that_are_surely_slower_are_explained_with_their_largest_causes(run):
    more, shy = time_breakdown.slower_policies(run)
    assert more.startswith("eagle under svip is 0.75 times")
    assert "+166.67 ms a token" in more
    assert "because of more drafted tokens (1.33 a token, 0.67 of them wasted, against 0.67 and 0.00)" in more
    assert "A round drafts 4.00 tokens, against 2.00" in more
    assert "calls" not in more.partition("because")[2]
    assert "more calls of the target (0.50 a token against 0.33): +166.67 ms" in shy
    assert "the largest saving is fewer drafted tokens" in shy


def test_a_run_in_which_nobody_is_slower_needs_no_reason():
    assert time_breakdown.slower_policies(report(PLAIN, BEST, FAST)) == []


def test_a_cause_too_small_to_matter_is_not_named():
    lost = report(PLAIN, BEST, decodes("eagle@margin", *[turn(2, 2, what=2.0, how=.01)] * 2))
    said, = time_breakdown.slower_policies(lost)
    assert "dearer drafted tokens (1000.0 ms against 250.0)" in said
    assert "bookkeeping" not in said
    assert length_policies.policies_by_drafter(lost)["eagle"][0].length == 2
