"""The confidence threshold."""

import pytest

from specdec_lib.drafting import grow
from specdec_lib.loop import begin
from specdec_lib.types import NO_DICE, Refusal, Sight
from specdec_lib.when.confidence import CARD, Confidence, Unsure
from tests.worlds import DRAFT, PROMPT, kit


def test_it_stops_after_the_first_token_below_the_threshold():
    session = begin(PROMPT, 20)
    draft = grow(session, Confidence(6, .55)(session, NO_DICE), NO_DICE, lambda draft: DRAFT(session.tokens, draft))
    assert [round(sight.chance, 2) for sight in draft.sights] == [.4]       # after 1 the best chance is .4
    longer = grow(session, Confidence(6, .39)(session, NO_DICE), NO_DICE, lambda draft: DRAFT(session.tokens, draft))
    assert len(longer) == 6


def test_the_threshold_itself_is_sure_enough():
    sight = Sight(.4, .4, .1, 1.0)
    assert not Unsure(.4)((sight,)) and Unsure(.41)((sight,)) and not Unsure(.9)(())


def test_an_impossible_threshold_is_refused():
    with pytest.raises(Refusal):
        Confidence(4, 1.5)


def test_it_takes_its_depth_from_the_cost_curve():
    assert CARD.make(kit(nodes=5)) == Confidence(5)
