"""The drafter of plain decoding."""

from specdec_lib.loop import begin
from specdec_lib.types import NO_DICE, Budget, Draft
from specdec_lib.what.nothing import Nothing


def test_it_proposes_nothing():
    assert Nothing()(begin((1,), 9), Budget(4), NO_DICE) == Draft()
