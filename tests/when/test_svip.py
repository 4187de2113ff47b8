"""SVIP's estimate and its threshold, worked by hand."""

from math import log

import pytest

from specdec_lib.loop import begin
from specdec_lib.models.table import Table
from specdec_lib.types import NO_DICE, Budget, Refusal
from specdec_lib.what.draft_model import DraftModel
from specdec_lib.when.svip import CARD, HighEntropy, Svip, estimated_acceptance
from tests.when.history import trail
from tests.worlds import kit


def test_the_estimate_is_one_minus_the_root_of_the_scaled_entropy():
    assert estimated_acceptance(0.0) == 1
    assert estimated_acceptance(0.6) == pytest.approx(.7)
    assert estimated_acceptance(log(2)) == pytest.approx(.6776, 1e-4)
    assert estimated_acceptance(4.0, ratio=1.0) == -1


def test_the_released_codes_rule_stops_above_0_6_nats():
    stop = Svip(9)(begin((1,), 5), NO_DICE).stop
    assert not stop(trail(.59))
    assert stop(trail(.61))
    assert stop(trail(log(2)))


def test_the_papers_rule_stops_above_0_09_nats():
    stop = Svip(9, ratio=1.0)(begin((1,), 5), NO_DICE).stop
    assert not stop(trail(.08))
    assert stop(trail(.1))


def test_only_the_last_token_counts_and_the_comparison_is_strict():
    assert not HighEntropy(.3, .15)(trail(5.0, .1))
    assert HighEntropy(.3, .15)(trail(.1, 5.0))
    assert not HighEntropy(.3, .15)(())
    assert not HighEntropy(.5, 1.0)(trail(.25))


def test_the_token_drawn_at_high_entropy_is_still_submitted():
    low, high = (.9, .05, .05), (.4, .3, .3)                       # 0.39 and 1.09 nats
    drafter = DraftModel(Table({(): low, (0,): low, (0, 0): high}))
    session = begin((1, 1), 20)
    draft = drafter(session, Svip(9)(session, NO_DICE), NO_DICE)
    assert [round(stat.entropy, 2) for stat in draft.stats] == [.39, .39, 1.09]


def test_the_estimate_is_no_bound_for_a_confident_wrong_drafter():
    q, p = (.999, .001), (.001, .999)
    entropy, overlap = -sum(x * log(x) for x in q), sum(map(min, p, q))
    assert estimated_acceptance(entropy, ratio=.5) > .9
    assert overlap < .01


def test_its_depth_comes_from_the_cost_curve():
    assert CARD.make(kit(nodes=5)) == Svip(5)
    assert CARD.make(kit(), depth=2, h=.5, ratio=1.0) == Svip(2, .5, 1.0)
    assert Svip(2)(begin((1,), 5), NO_DICE) == Budget(2, stop=HighEntropy(.3, .15))


@pytest.mark.parametrize("wrong", [{"h": -.1}, {"ratio": -1.0}, {"depth": -1}, {"h": float("nan")}], ids=str)
def test_an_impossible_parameter_is_refused(wrong):
    with pytest.raises(Refusal, match="zero or more"):
        CARD.make(kit(), **wrong)
