from math import log2

import pytest

from specdec_lib.analysis.continuation_chances import DraftedToken, drafted_tokens, followed, surprise
from specdec_lib.index.continuations import MATCH, SHARES
from specdec_lib.index.trees import copy_probability

TEXT = (1, 2, 3, 4, 1, 2, 3, 5)                    # the copy of (1, 2, 3) ends with a wrong token


def test_a_chain_is_followed_up_to_its_first_wrong_token_and_the_end_of_the_answer():
    assert followed((1, 2, 3), (0.5, 0.6, 0.7), (1, 9, 3)) == [DraftedToken(1, 0.5, True), DraftedToken(2, 0.6, False)]
    assert followed((1, 2), (0.5, 0.6), (1,)) == [DraftedToken(1, 0.5, True)]
    assert followed((), (), (1,)) == []


def test_every_position_with_a_repeat_is_continued_by_its_likeliest_chain():
    found = drafted_tokens([(TEXT, 5)], SHARES, deepest=3)
    assert found == [DraftedToken(1, 0.5, True), DraftedToken(2, 1.0, True), DraftedToken(3, 1.0, False),   # after 1
                     DraftedToken(1, 0.5, True), DraftedToken(2, 1.0, False), DraftedToken(1, 0.5, False)]


def test_the_rule_gives_the_chances():
    found = drafted_tokens([(TEXT, 7)], MATCH)
    assert found == [DraftedToken(1, pytest.approx(copy_probability(3)), False)]
    assert drafted_tokens([((1, 2, 3), 1)], MATCH) == []


def test_the_surprise_is_small_where_a_sure_token_was_right():
    assert surprise([DraftedToken(1, 0.5, True), DraftedToken(1, 0.25, False)]) == pytest.approx((1 - log2(0.75)) / 2)
    assert surprise([DraftedToken(1, 1.0, True)]) == pytest.approx(-log2(0.99))
    assert surprise([DraftedToken(1, 1.0, False)]) == pytest.approx(-log2(0.01))
