"""Why a policy is slower: seven causes worked out by hand, which add up to the whole difference."""

import pytest

from specdec_lib.analysis import length_policies, time_breakdown
from specdec_lib.analysis.draft_prices import DraftPrice
from specdec_lib.analysis.length_replay import LengthReplay
from specdec_lib.analysis.time_breakdown import TokenTime, causes, token_time
from specdec_lib.cost.curves import CostCurve
from specdec_lib.recordings.record import record
from tests.bench.made_up import decodes, report, turn
from tests.worlds import PROMPT, kit

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
    assert found == pytest.approx(TokenTime(3 / 6, 3 / 6, 3 / 6, 0.0, 50.0, 150.0, 500.0, 0.0))


def test_each_cause_by_hand():
    one = TokenTime(.5, .45, 1.5, .9, 20.0, 90.0, 60.0, 8.0)
    base = TokenTime(.4, .4, 1.0, .3, 5.0, 50.0, 40.0, 10.0)
    found = {cause.said.partition(" (")[0]: cause.ms for cause in causes(one, base, DraftPrice(20.0, 30.0))}
    assert found == pytest.approx({
        "more calls of the target": .1 * 100, "dearer calls": 60 - .5 * 100, "more drafts begun": .05 * 20,
        "more drafted tokens": .5 * 30, "drafting beyond its prices": (90 - 9 - 45) - (50 - 8 - 30),
        "choosing": 15.0, "checking and bookkeeping": -2.0})


def test_a_short_draft_is_not_dear_for_being_short():
    own = report(PLAIN, decodes("eagle(depth=1)", *[turn(1, 1, what=.4)] * 3),
                 decodes("eagle(depth=3)", *[turn(3, 2, what=.6)] * 2),
                 decodes("eagle@svip", *[turn(1, 1, what=.4)] * 3))
    price = time_breakdown.price_ms(own, "eagle")                      # 0.3 s to begin, 0.1 s a token
    assert price == pytest.approx((300.0, 100.0))
    found = {cause.said.partition(" (")[0]: cause.ms
             for cause in causes(token_time(own, "eagle@svip"), token_time(own, "eagle(depth=3)"), price)}
    assert found["drafting beyond its prices"] == pytest.approx(0.0)
    assert found["more drafts begun"] == pytest.approx(300 * (3 / 6 - 2 / 6))
    assert found["fewer drafted tokens"] == pytest.approx(100 * (3 / 6 - 6 / 6))


def test_a_replay_takes_the_price_of_a_drafter_that_the_run_has_if_the_target_is_the_same(run):
    own = report(PLAIN, BEST, decodes("eagle(depth=1)", *[turn(1, 1, what=.4)] * 3),
                 decodes("draft-model(depth=1)", *[turn(1, 1, what=1.0)] * 3))
    found = time_breakdown.replay_prices(own, ["eagle", "draft-lm", "early-exit"], "tiny", 0.3)
    assert found["eagle"] == pytest.approx((0.3, 0.1))                 # 0.4 s for one token, 0.5 s for two
    assert found["draft-lm"] == pytest.approx((0.0, 1.0))
    assert found["early-exit"] == (0.0, 0.3)
    assert time_breakdown.replay_prices(own, ["eagle"], "another", 0.3) == {"eagle": (0.0, 0.3)}


def test_a_replay_stands_beside_the_run(run):
    recordings = {"one": record(PROMPT, kit(None), ["draft-model"], 30, about={"vocab": 3, "end": [], "pieces": {}})}
    replay = LengthReplay(recordings, "draft-model", 4, CostCurve((1, 9), (8,), ((1.0, 2.0),)), .1)
    own = report(PLAIN, BEST, decodes("draft-model(depth=2)", *[turn(2, 1, what=1.0)] * 3))
    found = time_breakdown.replay_and_run(own, {"draft-model": replay, "eagle2": replay})
    two = replay.under(None, 2)
    assert found["draft-model, replayed"]["kept of fixed 2"] == pytest.approx(two.kept / two.drafted)
    assert found["draft-model, measured"] == {"best fixed length": 2, "kept of fixed 2": pytest.approx(.5),
                                              "price of a draft": "0.00 to begin and 0.50 a token"}
    assert len(found) == 2


def test_a_rule_has_its_prediction_the_edge_of_lengths_and_both_prices(run):
    replay = LengthReplay({}, "eagle", 4, CostCurve((1, 9), (8,), ((1.0, 2.0),)), .03, .08)
    interval, edge, prices = time_breakdown.beside_replay(run, replay, 1, {"adaedl": 1.3})
    assert interval.startswith("Predicted for adaedl was 1.300 times fixed 1. The measured interval with eagle, ")
    assert interval.endswith("over fixed 2, lies below this.")
    assert edge == length_policies.edge_sentences(run)[0]
    assert prices == ("A draft of eagle costs, in plain forwards, 0.00 to begin and 0.25 a token in the run, and 0.08 "
                      "to begin and 0.03 a token in the replay. Best fixed length: 2 in the run, 1 in the replay.")


def test_the_causes_come_in_order_and_add_up_to_the_difference(run):
    best = token_time(run, "eagle(depth=2)")
    for spec in ("eagle@svip", "eagle@margin", "eagle@adaedl", "ar"):
        one = token_time(run, spec)
        found = [cause.ms for cause in causes(one, best, time_breakdown.price_ms(run, "eagle"))]
        assert found == sorted(found, reverse=True)
        assert sum(found) == pytest.approx(sum(one[4:]) - sum(best[4:]))


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


def test_the_fastest_policy_is_explained_by_what_it_saves(run):
    said, = time_breakdown.fastest_policies(run)
    assert said.startswith("eagle under adaedl is 1.07 times")
    assert "-33.33 ms a token, because of drafting beyond its prices" in said
    assert "the largest" not in said
    assert time_breakdown.fastest_policies(report(PLAIN, BEST, MORE)) == []


def test_a_cause_too_small_to_matter_is_not_named(monkeypatch):
    lost = report(PLAIN, BEST, decodes("eagle@margin", *[turn(2, 2, .625, 2.0, .3, .375)] * 2))
    said, = time_breakdown.slower_policies(lost)                       # of what is lost 60, 25 and 15 %
    largest = "because of drafting beyond its prices (500.00 ms a token against 0.00): +500.00 ms"
    assert f"{largest}; choosing (208.33 ms a token against 0.00): +208.33 ms; the largest saving is cheaper" in said
    monkeypatch.setattr(time_breakdown, "SMALL", 1)
    assert f"{largest}; the largest saving" in time_breakdown.slower_policies(lost)[0]
    assert "bookkeeping" not in said
    assert length_policies.policies_by_drafter(lost)["eagle"][0].length == 2
