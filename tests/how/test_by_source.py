"""One rule per drafter."""

from specdec_lib.how.by_source import BySource
from specdec_lib.how.match import Match
from specdec_lib.loop import begin
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import NO_DICE, Draft, Verdict
from tests.worlds import Scripted


def take_all(session, draft, scores, dice):
    return Verdict.of(draft, tuple(range(len(draft))), 0)


def test_the_source_of_the_draft_chooses_the_rule():
    rule = BySource(Match(), {"copy": take_all})
    scores = Scripted((1,), (5, 6, 7))((1,), deterministic_chain((9, 9)))
    assert rule(begin((1,), 9), deterministic_chain((9, 9), "copy"), scores, NO_DICE).tokens == (9, 9, 0)
    assert rule(begin((1,), 9), deterministic_chain((9, 9), "model"), scores, NO_DICE).tokens == (5,)


def test_an_empty_draft_goes_to_the_default_rule():
    scores = Scripted((1,), (5, 6, 7))((1,), Draft())
    assert BySource(Match(), {"": take_all})(begin((1,), 9), Draft(), scores, NO_DICE).tokens == (0,)
    assert BySource(Match(), {"copy": take_all})(begin((1,), 9), Draft(), scores, NO_DICE).tokens == (5,)
