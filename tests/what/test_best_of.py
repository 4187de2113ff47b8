import pytest
import torch

from specdec_lib.exact import distance, every_outcome
from specdec_lib.how.rejection import Rejection
from specdec_lib.scores import Categorical
from specdec_lib.types import NO_DICE, ROOT, Budget, Draft, Method, Session
from specdec_lib.what.best_of import BestOf, expected_tokens_of_draft
from tests.worlds import run, true_law

SESSION = Session((1, 2), 2, 9)
LAW = Categorical(torch.arange(3), torch.tensor([.6, .3, .1], dtype=torch.float64))


def proposing(*tokens, confidence=()):
    chain = Draft(tokens, tuple(range(ROOT, len(tokens) - 1)), confidence=confidence)
    return lambda session, budget, dice: chain


def chosen(**drafters):
    return BestOf(drafters)(SESSION, Budget(3), NO_DICE).tokens


def test_the_expectation_is_the_sum_of_path_probabilities():
    tree = Draft((1, 2, 3), (ROOT, 0, ROOT), confidence=(.5, .4, .25))
    assert expected_tokens_of_draft(tree) == pytest.approx(.5 + .5 * .4 + .25)
    assert expected_tokens_of_draft(Draft((1, 2), (ROOT, 0))) == pytest.approx(.5 + .25)
    assert expected_tokens_of_draft(Draft()) == 0


def test_the_draft_with_the_most_expected_tokens_is_submitted():
    assert chosen(a=proposing(1, confidence=(.9,)), b=proposing(2, 3, confidence=(.6, .2))) == (1,)
    assert chosen(a=proposing(1, confidence=(.9,)), b=proposing(2, 3, confidence=(.8, .2))) == (2, 3)


def test_without_confidences_the_longer_draft_wins():
    assert chosen(a=proposing(1), b=proposing(2, 3)) == (2, 3)


def test_a_tie_goes_to_the_earlier_drafter_and_all_drafts_may_be_empty():
    assert chosen(a=proposing(1), b=proposing(2)) == (1,)
    assert chosen(a=proposing(), b=proposing()) == ()


def drawn(by_token: dict):
    """Draws one token whose confidence depends on it, so that choosing by confidence depends on drawn tokens."""
    def draw(session, budget, dice):
        token = dice.choose(LAW)
        return Draft((token,), (ROOT,), (LAW,), confidence=(by_token[token],))
    return draw


TWO = {"a": drawn({0: .9, 1: .5, 2: .1}), "b": drawn({0: .3, 1: .8, 2: .2})}


def test_drawn_nodes_are_submitted_as_deterministic():
    outcomes = every_outcome(lambda dice: BestOf(TWO)(SESSION, Budget(1), dice).q)
    assert set(outcomes) == {()}


def test_choosing_among_drawn_drafts_is_lossless_only_because_q_is_dropped():
    def keeping_q(session, budget, dice):
        drafts = [draw(session, budget, dice.fork(name)) for name, draw in TWO.items()]
        return max(drafts, key=expected_tokens_of_draft)

    def dist(what):
        method = Method(lambda session, dice: Budget(1), what, Rejection())
        return every_outcome(lambda dice: run(method, dice, tokens=2))

    assert distance(dist(BestOf(TWO)), true_law(tokens=2)) < 1e-12
    assert distance(dist(keeping_q), true_law(tokens=2)) > 0.01
