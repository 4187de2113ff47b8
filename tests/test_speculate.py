"""Speculation one level down: a middle model verifies a drafter, and what it emits is drafted for the target."""

from dataclasses import dataclass

import pytest

from specdec_lib.dice import Dice
from specdec_lib.exact import distance, every_outcome
from specdec_lib.how.match import Match
from specdec_lib.how.rejection import Rejection
from specdec_lib.loop import begin
from specdec_lib.models.table import Table
from specdec_lib.speculate import as_draft, speculate
from specdec_lib.types import LM, Budget, Draft, How, Method, Verdict, What
from specdec_lib.what.draft_model import DraftModel
from specdec_lib.when.fixed import Fixed
from tests.worlds import DRAFT, PROMPT, WARM, run, true_law

MIDDLE = Table({(): (.4, .35, .25), (0,): (.3, .4, .3), (1,): (.2, .3, .5), (2,): (.5, .2, .3)})


@dataclass(frozen=True)
class Speculator:
    """A drafter that speculates: it drafts what a middle model makes of another drafter's chain."""

    middle: LM
    what: What
    how: How

    def __call__(self, session, budget: Budget, dice) -> Draft:
        inner = Budget(budget.depth - 1)
        return as_draft(session, speculate(session, inner, self.middle, self.what, self.how, dice), "middle")


def hierarchy(depth: int, how: How, inner: How) -> Method:
    return Method(Fixed(depth), Speculator(MIDDLE, DraftModel(DRAFT), inner), how)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_two_levels_with_a_lossless_rule_inside_keep_the_targets_distribution(depth):
    found = every_outcome(lambda dice: run(hierarchy(depth, Rejection(), Rejection()), dice))
    assert distance(found, true_law()) < 1e-12


def test_with_matching_inside_the_middle_models_rows_are_q_as_well():
    found = every_outcome(lambda dice: run(hierarchy(2, Rejection(), Match()), dice))
    assert distance(found, true_law()) < 1e-12


def test_a_chain_that_is_passed_on_without_its_distributions_is_deterministic_and_lossless_too():
    @dataclass(frozen=True)
    class Bare(Speculator):
        def __call__(self, session, budget, dice):
            return super().__call__(session, budget, dice).bare()

    method = Method(Fixed(2), Bare(MIDDLE, DraftModel(DRAFT), Rejection()), Rejection())
    assert distance(every_outcome(lambda dice: run(method, dice)), true_law()) < 1e-12


def test_an_inner_rule_that_keeps_everything_breaks_the_promise_of_q_and_is_caught():
    class KeepAll:
        def __call__(self, session, draft, scores, dice):
            node = len(draft) - 1
            return Verdict.of(draft, draft.path(node), dice.choose(scores.distribution(node + 1, session.sampling)))

    found = every_outcome(lambda dice: run(hierarchy(2, Rejection(), KeepAll()), dice))
    assert distance(found, true_law()) > 0.01


def test_what_the_middle_model_emitted_is_drafted_with_its_rows_and_statistics():
    session = begin(PROMPT, 9, sampling=WARM)
    inner = speculate(session, Budget(2), MIDDLE, DraftModel(DRAFT), Rejection(), Dice(5))
    draft = as_draft(session, inner, "middle")
    assert draft.tokens == inner.verdict.tokens
    assert draft.parents == tuple(range(-1, len(draft) - 1))
    context = PROMPT
    for node, token in enumerate(draft.tokens):
        assert draft.q[node].probs.tolist() == pytest.approx(MIDDLE.logits(context).exp().tolist())
        assert draft.stats[node].prob == pytest.approx(draft.q[node].probability(token))
        context += (token,)


def test_greedy_levels_pass_on_deterministic_proposals_and_emit_plain_decodings_tokens():
    session = begin(PROMPT, 9)
    draft = as_draft(session, speculate(session, Budget(2), MIDDLE, DraftModel(DRAFT), Match(), Dice(1)))
    assert draft.q == (None,) * len(draft)
    plain = run(Method(Fixed(0), DraftModel(DRAFT), Match()), Dice(0), sampling=None, tokens=8)
    assert run(hierarchy(3, Match(), Match()), Dice(0), sampling=None, tokens=8) == plain


def test_the_middle_model_scores_only_what_was_drafted():
    calls = []

    class Watched:
        def __call__(self, tokens, draft):
            calls.append(len(draft))
            return MIDDLE(tokens, draft)

    speculate(begin(PROMPT, 9), Budget(0), Watched(), DraftModel(DRAFT), Match(), Dice(0))
    assert calls == [0]
