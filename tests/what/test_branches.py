"""Branches: as many as the drafter's doubt asks for, each a chain of the drafter's own draws."""

import pytest

from specdec_lib.dice import Dice
from specdec_lib.exact import distance, every_outcome
from specdec_lib.how.rejection import Rejection
from specdec_lib.loop import begin
from specdec_lib.models.table import Table
from specdec_lib.types import NO_DICE, ROOT, Budget, Draft, Refusal
from specdec_lib.what.branches import Branches, branches_at
from specdec_lib.what.draft_model import DraftModel
from tests.worlds import DRAFT, PROMPT, TARGET, WARM

DOUBT = Table({(): (.28, .27, .25, .2), (0,): (.1, .7, .1, .1), (1,): (.9, .05, .03, .02)})
SESSION = begin((3,), 20, sampling=WARM)


@pytest.mark.parametrize(("best", "most", "k"), [(.9, 3, 1), (.34, 3, 1), (.3, 3, 2), (.01, 3, 2), (.3, 1, 1),
                                                 (.2, 5, 4)])
def test_the_number_of_branches_is_the_papers(best, most, k):
    assert branches_at(best, most) == k


def test_a_doubtful_position_gets_the_likeliest_tokens_and_a_chain_under_each():
    draft = Branches(DOUBT)(SESSION, Budget(3, 3), Dice(1))
    heads = draft.children[ROOT]
    assert [draft.tokens[head] for head in heads] == [0, 1]
    assert [draft.depths.count(depth) for depth in (1, 2, 3)] == [2, 2, 2]
    assert [draft.q[head] for head in heads] == [None, None]
    assert all(q is not None for q in draft.q[2:]), "what follows a head is drawn from the model"


def test_a_sure_position_drafts_the_very_chain_of_the_draft_model():
    for seed in range(20):
        for sampling in (WARM, None):
            session = begin(PROMPT, 20, sampling=sampling)
            one, other = (what(session, Budget(4), Dice(seed)) for what in (Branches(DRAFT, 1), DraftModel(DRAFT)))
            assert (one.tokens, one.parents, one.stats) == (other.tokens, other.parents, other.stats)


def test_among_equals_the_first_branch_is_the_one_that_greedy_decoding_takes():
    even = Table({(): (.2,) * 5})
    session = begin((3,), 20)
    first = Branches(even)(session, Budget(1, 3), NO_DICE).tokens[0]
    assert first == even((3,), Draft()).best[0] == DraftModel(even)(session, Budget(1), NO_DICE).tokens[0]


def test_branches_share_the_nodes_of_a_policy_that_knows_none():
    draft = Branches(DOUBT)(SESSION, Budget(4), Dice(2))
    assert len(draft) == 4
    assert draft.depth == 2


def test_all_branches_of_a_depth_are_scored_in_one_forward():
    seen = []

    class Counting(Table):
        def __call__(self, tokens, draft):
            seen.append(len(draft))
            return super().__call__(tokens, draft)

    Branches(Counting(DOUBT.rows))(SESSION, Budget(4, 3), Dice(1))
    assert seen == [0, 2, 4, 6]


def test_a_rule_stops_each_branch_for_itself():
    def stop(trail):
        return trail[-1].first > .8                # after token 1 of this world the next one is sure

    draft = Branches(DOUBT)(begin((3,), 20), Budget(4, 3, stop=stop), Dice(1))
    # greedily 0, 1, 0 under the first head and 1, 0 under the second: each ends behind the row of token 1
    assert [tuple(draft.tokens[node] for node in draft.path(end)) for end in range(len(draft))
            if end not in draft.children] == [(1, 0), (0, 1, 0)]


def test_no_branch_is_refused():
    with pytest.raises(Refusal, match="at least 1 branch"):
        Branches(DOUBT, 0)


@pytest.mark.parametrize("heads", [(0,), (2, 0), (1, 2), (0, 1, 2)])
def test_rejection_of_deterministic_siblings_is_draw_and_match(heads):
    """The law of (accepted head, emitted token) equals that of y ~ p looked up among the heads."""
    draft = Draft(heads, (ROOT,) * len(heads))
    session = begin(PROMPT, 20, sampling=WARM)
    scores = TARGET(PROMPT, draft)

    def walked(dice):
        verdict = Rejection()(session, draft, scores, dice)
        return (bool(verdict.path), verdict.tokens[0])

    def looked_up(dice):
        token = dice.choose(scores.distribution(0, WARM))
        return (token in heads, token)

    assert distance(every_outcome(walked), every_outcome(looked_up)) < 1e-12
