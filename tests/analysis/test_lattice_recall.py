"""Where the target's token stands in recorded lattices, counted by hand."""

from math import log

import pytest
import torch

from specdec_lib.analysis.guess_calibration import Guesses
from specdec_lib.analysis.lattice_recall import (
    best_accepted,
    chain_acceptance,
    chain_guesses,
    drawn_accepted,
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
    assert chain_guesses(((0, 1, 0), (0, 0, 0))) == [Guesses(2, 2), Guesses(2, 1), Guesses(1, 1)]
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


def slots(*logits):
    """Two candidates for each slot, 5 and 6, with these raw log-probabilities; they need not sum to one."""
    return Lattice(torch.tensor([[5, 6]] * len(logits)), torch.tensor(logits))


def test_drawn_chains_accept_what_one_of_them_begins_with():
    half, came = slots((-2.0, -2.0), (-2.0, -2.0)), (5, 6)
    assert drawn_accepted([(half, came)], (1, 2), 1.0) == pytest.approx({1: 0.5 + 0.25, 2: 0.75 + 7 / 16})
    assert drawn_accepted([(half, came), (half, (7, 5))], (1,), 1.0) == pytest.approx({1: 0.375})     # 7: no candidate


def test_a_draft_temperature_flattens_the_candidates_alone_and_the_best_chain_is_its_limit():
    sharp, odds = slots((log(0.3), log(0.1)), (log(0.3), log(0.1))), {1: 0.75 + 0.75 * 0.75}          # 3 to 1
    assert drawn_accepted([(sharp, (5, 5))], (1,), 1.0) == pytest.approx(odds)
    assert drawn_accepted([(sharp, (5, 6))], (1,), 0.01) == pytest.approx({1: best_accepted([(sharp, (5, 6))])})
    assert best_accepted([(sharp, (5, 5)), (sharp, (6, 5)), (sharp, (5, 9, 9))]) == 1.0
    assert drawn_accepted([(sharp, (5, 5))], (1,), 1e9)[1] == pytest.approx(0.75)


def test_a_position_without_slots_counts_and_no_position_has_no_words():
    empty = Lattice(torch.zeros((0, 2), dtype=torch.int64), torch.zeros((0, 2)))
    assert drawn_accepted([(empty, (5,)), (slots((0.0, 0.0)), (5,))], (1,), 1.0) == {1: 0.25}
    assert (drawn_accepted([], (1, 2), 1.0), best_accepted([])) == ({1: 0.0, 2: 0.0}, 0.0)
