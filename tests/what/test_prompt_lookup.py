import pytest

from specdec_lib.cards import Kit
from specdec_lib.index.ngram_positions import NgramPositions
from specdec_lib.types import NO_DICE, Budget, Draft, Refusal, Session
from specdec_lib.what.prompt_lookup import CARD, PromptLookup

TEXT = (1, 2, 3, 9, 2, 3, 8, 1, 2, 3)


def draft(tokens, budget=Budget(3), end=(), **choice):
    session = Session(tuple(tokens), len(tokens), 50, frozenset(end))
    return PromptLookup(NgramPositions(3), **choice)(session, budget, NO_DICE)


def test_the_longest_ngram_is_tried_first():
    assert draft(TEXT).tokens == (9, 2, 3)              # 1 2 3 occurs at the start; 2 3 alone also later
    assert draft(TEXT, longest=2).tokens == (8, 1, 2)


def test_mode_selects_the_last_or_the_first_earlier_occurrence():
    assert draft(TEXT, longest=1).tokens == (8, 1, 2)
    assert draft(TEXT, longest=1, mode="first").tokens == (9, 2, 3)


def test_a_shorter_ngram_is_tried_if_the_longer_is_new():
    assert draft((5, 3, 6, 7, 3)).tokens == (6, 7, 3)
    assert draft((5, 3, 6, 7, 3), shortest=2).tokens == ()


def test_no_ngram_longer_than_the_text_before_its_last_token_is_looked_up():
    class Counted(NgramPositions):
        looked = 0

        def after(self, gram):
            self.looked += 1
            return super().after(gram)

    positions = Counted(10_000)
    session = Session((5, 6, 7), 3, 50)
    assert PromptLookup(positions, longest=10_000)(session, Budget(3), NO_DICE) == Draft()
    assert positions.looked == 2


def test_the_budgets_query_bounds_the_ngram_length():
    assert draft(TEXT, Budget(2, notes={"query": 2})).tokens == (8, 1)
    assert draft(TEXT, Budget(2, notes={"query": 9})).tokens == (9, 2)


def test_depth_and_nodes_bound_the_chain():
    assert len(draft(TEXT, Budget(7))) == 7
    assert len(draft(TEXT, Budget(7, nodes=2))) == 2
    assert len(draft(TEXT, Budget(0))) == 0


def test_the_chain_ends_with_the_first_end_token():
    assert draft(TEXT, Budget(7), end={3}).tokens == (9, 2, 3)


def test_nodes_are_deterministic_and_name_their_source():
    found = draft(TEXT, Budget(2))
    assert found.parents == (-1, 0)
    assert found.q == ()
    assert found.source == ("prompt-lookup",) * 2


def test_after_a_new_token_the_draft_is_empty():
    assert draft((1, 2, 3)).tokens == ()
    assert draft((4,)).tokens == ()


@pytest.mark.parametrize("choice", [{"mode": "recent"}, {"longest": 0}, {"shortest": 0}, {"shortest": 4},
                                    {"longest": 2, "shortest": 3}], ids=str)
def test_an_impossible_parameter_is_refused(choice):
    with pytest.raises(Refusal, match="mode|lengths"):
        CARD.make(Kit(None), **choice)
