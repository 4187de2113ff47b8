"""Speculative draft: the draft model's own stream, with more than one token for a forward where text repeats."""

import pytest

from specdec_lib.dice import Dice
from specdec_lib.exact import distance, every_outcome
from specdec_lib.how.rejection import Rejection
from specdec_lib.loop import begin
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import FORWARDS, NO_DICE, Budget, Draft, Refusal
from specdec_lib.what.draft_model import DraftModel
from specdec_lib.what.speculative_draft import SpeculativeDraft
from tests.worlds import DRAFT, PROMPT, TARGET, WARM, Scripted, true_law

TEXT = tuple(range(3, 30))


def right(session, budget, dice):
    """Retrieval that knows the text."""
    return deterministic_chain(TEXT[len(session.tokens) - 2:][:budget.depth])


def wrong(session, budget, dice):
    return deterministic_chain((31,) * budget.depth)


def nothing(session, budget, dice):
    return Draft()


def two(session, budget, dice):
    return deterministic_chain((0, 1)[:budget.depth])


def scripted(retriever, retrieved=3):
    model = Scripted((1, 2), TEXT)
    return model, SpeculativeDraft(model, retriever, Rejection(), retrieved)


@pytest.mark.parametrize(("retriever", "forwards", "tokens"), [(right, 2, 8), (wrong, 2, 2), (nothing, 3, 3)])
def test_a_forward_gives_one_token_and_what_was_retrieved_right(retriever, forwards, tokens):
    model, what = scripted(retriever)
    draft = what(begin((1, 2), 40), Budget(20, notes={FORWARDS: forwards}), NO_DICE)
    assert draft.tokens == TEXT[:tokens]
    assert model.forwards == forwards


def test_without_the_note_there_are_as_many_forwards_as_tokens_at_most():
    model, what = scripted(wrong)
    assert what(begin((1, 2), 40), Budget(5), NO_DICE).tokens == TEXT[:5]
    assert model.forwards == 5


def test_a_draft_ends_with_the_end_token_and_at_the_budget():
    _, what = scripted(right)
    assert what(begin((1, 2), 40, end=frozenset({5})), Budget(20), NO_DICE).tokens == (3, 4, 5)
    assert what(begin((1, 2), 40), Budget(6), NO_DICE).tokens == TEXT[:6]


def test_a_rule_stops_at_the_token_at_which_it_fires():
    _, what = scripted(right)
    assert what(begin((1, 2), 40), Budget(20, stop=lambda trail: len(trail) == 6), NO_DICE).tokens == TEXT[:6]


@pytest.mark.parametrize("retriever", [two, nothing])
def test_the_stream_has_the_models_distribution_and_says_so(retriever):
    session = begin(PROMPT, 20, sampling=WARM)
    what = SpeculativeDraft(DRAFT, retriever, Rejection(), 2)
    dist = every_outcome(lambda dice: what(session, Budget(3), dice).tokens)
    assert distance(dist, true_law(DRAFT)) < 1e-12
    draft = what(session, Budget(3), Dice(1))
    assert [q.probs.tolist() for q in draft.q] == [pytest.approx(DRAFT.logits(PROMPT + draft.tokens[:i]).exp().tolist())
                                                   for i in range(3)]


def test_a_lossy_inner_rule_would_be_noticed():
    class TakesAll(Rejection):
        def __call__(self, session, draft, scores, dice):
            verdict = super().__call__(session, draft, scores, dice)
            return verdict if not len(draft) else type(verdict).of(draft, tuple(range(len(draft))), 0)

    session = begin(PROMPT, 20, sampling=WARM)
    what = SpeculativeDraft(DRAFT, two, TakesAll(), 2)
    assert distance(every_outcome(lambda dice: what(session, Budget(3), dice).tokens), true_law(DRAFT)) > 0.1


def test_with_nothing_retrieved_it_is_the_draft_model_greedily():
    session = begin(PROMPT, 20)
    for model in (DRAFT, TARGET):
        mine = SpeculativeDraft(model, nothing, Rejection())(session, Budget(6), NO_DICE)
        assert mine.tokens == DraftModel(model)(session, Budget(6), NO_DICE).tokens


def test_fewer_than_no_tokens_are_refused():
    with pytest.raises(Refusal, match="zero or more"):
        SpeculativeDraft(DRAFT, nothing, Rejection(), -1)
