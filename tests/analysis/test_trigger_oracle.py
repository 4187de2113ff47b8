"""What a trigger is worth, on texts short enough to count by hand."""

import pytest

from specdec_lib.analysis.trigger_oracle import (
    TriggerQuality,
    auc,
    firing_text,
    oracle_decisions,
    precision_text,
    round_offers,
    trigger_decisions,
    trigger_quality,
)
from specdec_lib.cost.lengths import RoundOffer
from specdec_lib.trees import accepted_depth, deterministic_chain, deterministic_tree
from specdec_lib.types import Draft


def test_a_tree_is_accepted_along_the_path_that_the_text_takes():
    tree = deterministic_tree([(1, 2, 3), (1, 5, 6)], 9)
    assert accepted_depth(tree, (1, 5, 6, 7)) == 3
    assert accepted_depth(tree, (1, 2, 9)) == 2
    assert accepted_depth(tree, (4,)) == 0
    assert accepted_depth(tree, (1, 5)) == 2
    assert accepted_depth(Draft(), (1,)) == 0
    assert accepted_depth(tree, ()) == 0


def test_an_offer_counts_the_verdicts_own_token_and_the_price_of_a_round():
    found = round_offers([deterministic_chain((7, 8, 9)), Draft(), deterministic_chain((9,))], (7, 8, 9),
                         lambda width: 10.0 + width, .5)
    # nothing comes after the end
    assert found == (RoundOffer(3, 3, 15.5), RoundOffer(0, 1, 11.0), RoundOffer(1, 1, 12.5))
    assert round_offers([deterministic_chain((7, 1))], (7, 8, 9), lambda width: 1.0)[0].tokens == 2


def test_the_oracle_names_the_drafter_with_more_tokens_per_millisecond():
    slow, fast, none = RoundOffer(4, 4, 40.0), RoundOffer(1, 2, 10.0), RoundOffer(0, 1, 9.0)
    assert oracle_decisions([fast, slow, none, fast], [slow, fast, slow, fast]) == (True, False, None, None)
    assert oracle_decisions([fast], [none]) == (True,)


def test_decisions_look_at_the_rows_before_a_place_and_not_at_its_own():
    assert trigger_decisions((9.0, .1, .1, 9.0), 1, 0.0, 1.5) == ((False, 0), (False, 1), (True, 1), (True, 1))
    assert trigger_decisions((1.0, 1.0, 1.0, 1.0), 3, 1.0, 1.5)[-1] == (True, 3)


def test_precision_and_recall_leave_out_places_that_decide_themselves():
    told = trigger_quality([True, True, True, False, False], [True, False, None, True, None])
    assert told == TriggerQuality(3, 2, 1, 2)
    assert told.precision == told.recall == .5
    assert trigger_quality([False], [True]).precision is None
    assert trigger_quality([True], [False]).recall is None


def test_a_signal_separates_by_rank_alone():
    worth = [True, True, False, False, None]
    assert auc([4, 3, 2, 1, 9], worth) == 1
    assert auc([1, 2, 3, 4, 9], worth) == 0
    assert auc([1, 1, 1, 1, 9], worth) == .5
    assert auc([3, 1, 2, 0, 9], worth) == pytest.approx(.75)
    assert auc([1, 2], [True, None]) is None


def test_firings_are_counted_at_every_threshold():
    said = firing_text([(0.1, 0.2, 4.0, 0.3), (9.0,)], 1, 0.0, (1.0, 5.0))
    assert said == "the trigger fires at 2 of 5 tokens (40%) at 1 nats, 3 of 5 tokens (60%) at 5 nats"


def test_the_precision_of_a_trigger_that_never_fires_is_not_told():
    copies = TriggerQuality(places=4, fired=4, hits=2, worth=2)
    assert precision_text(TriggerQuality(4, 1, 1, 2), copies) == (
        "Right: 100.0% of the trigger's firings, 50.0% of all copies; standard error 50.0%")
    assert precision_text(TriggerQuality(4, 0, 0, 2), copies).startswith("No firing to judge: of 4 positions")
