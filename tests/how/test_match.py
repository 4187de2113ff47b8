"""Draw from the target, keep while it matches."""

from specdec_lib.how.match import Match
from specdec_lib.loop import begin
from specdec_lib.trees import deterministic_tree
from specdec_lib.types import NO_DICE
from tests.worlds import Scripted

PROMPT, TEXT = (1, 2), (5, 6, 7, 8)


def judge(draft):
    return Match()(begin(PROMPT, 9), draft, Scripted(PROMPT, TEXT)(PROMPT, draft), NO_DICE)


def test_it_follows_the_branch_that_the_target_draws():
    verdict = judge(deterministic_tree([(5, 9), (5, 6, 3), (4,)], nodes=9))
    assert verdict.path == (0, 2)
    assert verdict.tokens == (5, 6, 7)


def test_a_draft_that_is_all_right_earns_a_bonus_token():
    assert judge(deterministic_tree([(5, 6, 7)], nodes=9)).tokens == (5, 6, 7, 8)


def test_without_a_draft_it_is_plain_decoding():
    assert judge(deterministic_tree([], nodes=9)).tokens == (5,)
