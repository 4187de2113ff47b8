"""Replaying what a drafter proposed."""

from specdec_lib.drafting import certain_chain
from specdec_lib.loop import begin
from specdec_lib.models.replay import Recording
from specdec_lib.types import NO_DICE, Brief, Budget
from specdec_lib.what.recorded import Recorded

DRAFTS = {4: (certain_chain((5, 6, 7, 8)), certain_chain(())), 8: (certain_chain(range(20, 28)), certain_chain((1,)))}
REC = Recording((1, 2, 5, 6), 2, Brief(None, None), {"copy": DRAFTS}, {})


def test_the_smallest_recorded_length_that_allows_the_budget_speaks():
    assert Recorded(REC, "copy")(begin((1, 2), 30), Budget(3), NO_DICE).tokens == (5, 6, 7)
    assert Recorded(REC, "copy")(begin((1, 2), 30), Budget(5), NO_DICE).tokens == (20, 21, 22, 23, 24)


def test_past_the_recording_there_is_no_draft():
    assert len(Recorded(REC, "copy")(begin((1, 2, 5, 6), 30), Budget(3), NO_DICE)) == 0
