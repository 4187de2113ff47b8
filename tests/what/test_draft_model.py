"""A smaller model drafts."""

from dataclasses import replace

import pytest

from specdec_lib import catalog
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


class Reading(Scripted):
    """A model with a context, which notes the most tokens that it was given at once."""

    most = 0

    def __init__(self, prompt, script, context):
        super().__init__(prompt, script)
        self.context = context

    def __call__(self, tokens, draft):
        self.most = max(self.most, len(tokens) + draft.depth)
        return super().__call__(tokens, draft)


def of(model, name):
    """The part of this name with this draft model."""
    return catalog.make_part(name, replace(kit(None), draft=model))


DRAFTERS = ("draft-model", "branches", "multi-sequence", "speculative-draft", "hierarchy")


@pytest.mark.parametrize("name", DRAFTERS)
def test_nothing_is_drafted_beyond_what_the_model_can_read(name):
    text = tuple(range(3, 30))
    for long in (4, 7, 8, 9, 20):
        model = Reading((1, 2), text, 8)
        draft = of(model, name)(begin((1, 2, *text[:long - 2]), 9), Budget(6), NO_DICE)
        assert model.most <= 8, (name, long)
        assert bool(len(draft)) == (long <= 8), (name, long)


def test_a_decode_goes_on_without_drafts_where_the_draft_models_context_ends():
    text = tuple(range(3, 23))
    model = Reading((1, 2), text, 8)
    *_, last = decode((1, 2), Scripted((1, 2), text), Fixed(3), DraftModel(model), kit().part("rejection"),
                      max_new_tokens=20)
    assert last.output == text
    assert model.most == 8
    assert [len(round.draft) for round in last.rounds[-9:]] == [0] * 9


class Padded(Scripted):
    """A model that fails at a token beyond its vocabulary, as an embedding does."""

    def __call__(self, tokens, draft):
        assert max(tokens + draft.tokens) < self.vocab
        return super().__call__(tokens, draft)


@pytest.mark.parametrize("name", DRAFTERS)
def test_a_target_with_more_padded_tokens_than_the_draft_model_may_emit_one(name):
    text = (5, 6, 7, 5, 6, 7, 20, 5, 6, 7)
    target, model = Scripted((1, 2), text), Padded((1, 2), text[:6], vocab=16)
    *_, last = decode((1, 2), target, Fixed(4), of(model, name), kit().part("rejection"), max_new_tokens=len(text))
    assert last.output == text
    assert target.forwards < len(text)
