"""Where the target's token stands in recorded lattices, counted by hand."""

import pytest
import torch

from specdec_lib.analysis.guess_calibration import Guesses
from specdec_lib.analysis.lattice_recall import (
    chain_acceptance,
    chain_guesses,
    drawn_beside_best,
    one_at_a_time,
    ranks_by_slot,
    recall_by_slot,
    token_ranks,
)
from specdec_lib.models.replay import Recording
from specdec_lib.scores import RowStats
from specdec_lib.types import Lattice, Refusal


def lattice(*rows):
    return Lattice(torch.tensor(rows), torch.zeros(len(rows), len(rows[0])))


KEPT = (lattice((5, 9), (6, 9), (9, 7)),           # 5 6 7 came
        lattice((6, 9), (9, 8), (5, 9)),           # 6 7, and the text ends
        lattice((9, 7), (8, 9), (8, 9)))           # 7
TAPE = Recording((1, 2, 5, 6, 7), 2, RowStats(None, None), {}, {}, lattices={"block": {3: KEPT}})


def test_a_rank_is_counted_wherever_the_text_has_a_token_for_the_slot():
    assert ranks_by_slot(TAPE, "block", 3) == ((0, 0, 1), (0, None), (1,))
    assert ranks_by_slot(TAPE, "block", 1) == ((0,), (0,), (1,))


def test_recall_is_the_share_of_places_whose_token_is_among_the_first():
    assert recall_by_slot(ranks_by_slot(TAPE, "block", 3), 1) == [2 / 3, 1 / 2, 0]
    assert recall_by_slot(ranks_by_slot(TAPE, "block", 3), 2) == [1, 1 / 2, 1]
    assert recall_by_slot((), 4) == []


def test_a_chain_goes_on_among_those_that_were_right_so_far():
    assert chain_acceptance(ranks_by_slot(TAPE, "block", 3)) == [2 / 3, 1 / 2, 0]
    assert chain_acceptance(((0, 0, 0), (1, 0, 0), (None, 0, 0), (0, 1, 0))) == [1 / 2, 1 / 2, 1]
    assert chain_acceptance(((1, 0),)) == [0, None]


def test_a_chain_is_counted_and_held_against_one_token_at_a_time():
    ranks = ranks_by_slot(TAPE, "block", 3)         # (0, 0, 1), (0, None), (1,)
    assert chain_guesses(ranks) == [Guesses(3, 2), Guesses(2, 1), Guesses(1, 0)]
    assert [one.share for one in chain_guesses(ranks)] == chain_acceptance(ranks)
    assert one_at_a_time(ranks) == ((0, 0, 1), (0, 1), (1,))
    assert chain_guesses(()) == []


def test_a_path_and_its_candidates_need_not_have_one_length():
    assert token_ranks([[1, 2], [3, 4]], (2, 9, 5)) == (1, None)
    assert token_ranks([[1, 2], [3, 4]], (1,)) == (0,)


def test_lattices_that_were_not_recorded_are_refused():
    with pytest.raises(Refusal, match="no lattices of 'other'; it holds those of: block"):
        ranks_by_slot(TAPE, "other", 3)


@pytest.mark.parametrize(("drawn", "said"), [
    ({1: 0.4, 2: 0.5, 4: 0.7}, "one drawn chain 0.40; 4 drawn chains reach the best words."),
    ({1: 0.4, 8: 0.5}, "one drawn chain 0.40; 8 drawn chains give fewer."),
    ({1: 0.6, 2: 0.8}, "one drawn chain 0.60; drawing loses nothing.")])
def test_a_sentence_says_how_many_drawn_chains_reach_the_chain_of_best_words(drawn, said):
    assert drawn_beside_best("slots", 0.6, drawn) == f"slots: the chain of best words has 0.60 accepted words, {said}"
