"""A smaller model drafts."""

from specdec_lib.loop import begin, decode
from specdec_lib.types import NO_DICE, Budget
from specdec_lib.what.draft_model import DraftModel
from specdec_lib.when.fixed import Fixed
from tests.worlds import TARGET, Scripted, kit


def test_drafts_of_an_identical_model_are_fully_accepted():
    text = (5, 6, 7, 8, 9, 10, 11, 12)
    target, model = Scripted((1, 2), text), Scripted((1, 2), text)
    *_, last = decode((1, 2), target, Fixed(3), DraftModel(model), kit().part("rejection"), max_new_tokens=8)
    assert last.output == text
    assert target.forwards == 2
    assert model.forwards == 6


def test_each_node_is_drawn_after_the_ones_before_it():
    session = begin((0, 1), 9)
    draft = DraftModel(TARGET)(session, Budget(3), NO_DICE)
    best = ()
    for _ in range(3):
        best += (int(TARGET.logits((0, 1) + best).argmax()),)
    assert draft.tokens == best
    assert draft.source == ("draft-model",) * 3
