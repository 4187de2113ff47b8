"""Speculation one level down: a middle model verifies a drafter, and what it emits is drafted for the target."""

from dataclasses import dataclass
from enum import IntEnum

import pytest
import torch

from specdec_lib.dice import Dice
from specdec_lib.exact import distance, every_outcome
from specdec_lib.how.match import Match
from specdec_lib.how.rejection import Rejection
from specdec_lib.loop import begin
from specdec_lib.models.table import Table
from specdec_lib.scores import Categorical
from specdec_lib.speculate import as_draft, refuse_draft, refuse_verdict, speculate
from specdec_lib.types import LM, Budget, Draft, How, Method, Refusal, Verdict, What
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


def two(session, budget, dice):
    return Draft((1, 2), (-1, 0))


def guess(*probs):
    """A draft of token 1 with these probabilities of the tokens 1 and 2."""
    return Draft((1,), (-1,), (Categorical(torch.tensor([1, 2]), torch.tensor(probs)),))


BAD_DRAFTS = [
    ([1], "it is of the type list"), (Draft((1, 5), (-1, 0)), "token 5, and the target's are .* to 2"),
    (Draft((-2,), (-1,)), "token -2"), (Draft((1.0,), (-1,)), "a tuple of int"),
    (Draft((1, 2), (1, -1)), "node 0 has the parent 1"), (Draft((1,), (-2,)), "node 0 has the parent -2"),
    (Draft((1, 2), (-1,)), "parents has 1 entries for 2"), (Draft((1,), (-1,), source=("a", "b")), "source has 2"),
    (guess(0.5, 0.7), "q of node 0 sums to 1.2"),
    (guess(-0.5, 1.5), "q of node 0 has a negative"), (guess(1.0), "q of node 0 has 1 probabilities for 2")]
BAD_VERDICTS = [
    (None, "it is of the type NoneType"), (Verdict((), ()), r"its path, \(\), and one more, got \(\)"),
    (Verdict((0, 1, 2), (1, 2, 0, 0)), "no path .* of 2 nodes"), (Verdict((1,), (2, 0)), r"\(1,\) is no path"),
    (Verdict((0,), (2, 0)), r"those of its path, \(1,\)"), (Verdict((0,), (1, 0, 0)), "and one more, got"),
    (Verdict((), (3,)), "token 3")]


@pytest.mark.parametrize(("wrong", "why"), BAD_DRAFTS)
def test_a_wrong_draft_is_refused_by_the_name_of_its_drafter(wrong, why):
    def careless(session, budget, dice):
        return wrong

    with pytest.raises(Refusal, match=f"careless returned no valid .*{why}"):
        run(Method(Fixed(2), careless, Match()), Dice(0), sampling=None)


@pytest.mark.parametrize(("wrong", "why"), BAD_VERDICTS)
def test_a_wrong_verdict_is_refused_and_does_not_run_for_ever(wrong, why):
    def careless(session, draft, scores, dice):
        return wrong

    with pytest.raises(Refusal, match=f"careless returned no valid .*{why}"):
        run(Method(Fixed(2), two, careless), Dice(0), sampling=None)


def test_whole_numbers_of_other_kinds_are_tokens():
    draft = Draft((True, IntEnum("Token", {"two": 2}).two), (-1, 0))
    for whole in (draft, Draft(tuple(torch.tensor([1, 2]).numpy()), (-1, 0))):
        refuse_draft(whole, two, begin(PROMPT, 9), 3)


def test_a_policy_that_returns_a_number_is_refused():
    def careless(session, dice):
        return 4

    with pytest.raises(Refusal, match="careless returned no valid Budget: it is of the type int"):
        run(Method(careless, two, Match()), Dice(0), sampling=None)


def test_a_token_that_q_could_not_have_drawn_is_refused():
    with pytest.raises(Refusal, match="token 1 with q = 0.0"):
        run(Method(Fixed(1), lambda *given: guess(0.0, 1.0), Rejection()), Dice(0))


def test_a_token_off_a_recordings_text_is_told_as_one():
    with pytest.raises(Refusal, match="token -1, .* a recording has -1 off its greedy lossless text"):
        refuse_verdict(Verdict((), (-1,)), Draft(), Match())
