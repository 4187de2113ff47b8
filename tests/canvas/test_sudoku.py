"""Boards and puzzles: solved means solved, one solution, folds that symmetries keep, everything from a seed."""

from itertools import islice
from random import Random

import numpy as np
import pytest

from specdec_lib.canvas.sudoku import (
    BLANK,
    CELLS,
    SIDE,
    board_images,
    board_lines,
    boards,
    fold,
    puzzle_of,
    puzzles,
    random_board,
    row_cycles,
    solutions,
)
from specdec_lib.types import Refusal
from tests.canvas.tables import is_solved

# A published puzzle with 17 clues, the fewest there can be (Royle's list), and two rows that conflict with nothing.
SEVENTEEN = "000000010400000000020000000000050407008000300001090000300400200050100000000806000"


def brute_force(clues) -> int:
    """Solutions counted without any propagation: cell by cell in reading order, each digit checked against peers."""
    cells = list(clues)

    def fits(place, digit):
        row, column = divmod(place, SIDE)
        return all(cells[at] != digit for at in range(CELLS)
                   if at != place and (at // SIDE == row or at % SIDE == column
                                       or (at // 27 == place // 27 and at % SIDE // 3 == column // 3)))

    def count(place):
        if place == CELLS:
            return 1
        if cells[place]:
            return count(place + 1)
        total = 0
        for digit in range(1, 10):
            if fits(place, digit):
                cells[place] = digit
                total += count(place + 1)
        cells[place] = BLANK
        return total

    return count(0)


def test_the_solver_finds_the_only_solution_of_a_published_puzzle():
    clues = [int(digit) for digit in SEVENTEEN]
    found = solutions(clues)
    assert len(found) == 1
    assert is_solved(found[0])
    assert all(given in (BLANK, digit) for given, digit in zip(clues, found[0], strict=True))


def test_the_solver_counts_as_brute_force_does():
    dice, counts = Random(3), []
    for _ in range(12):
        cells = list(random_board(dice))
        for place in dice.sample(range(CELLS), 38):
            cells[place] = BLANK
        counts.append(brute_force(cells))
        assert len(solutions(cells, 10 ** 6)) == counts[-1]
    assert len(set(counts)) > 2                    # among them puzzles with several solutions


def test_clues_that_conflict_have_no_solution():
    assert solutions([1, 1] + [BLANK] * 79) == []


@pytest.mark.parametrize("blanks", [1, 30, 50])
def test_a_puzzle_has_its_blanks_and_one_solution_and_is_held_out(blanks):
    for puzzle in puzzles(4, blanks, seed=5):
        assert puzzle.clues.count(BLANK) == blanks
        assert solutions(puzzle.clues, 2) == [puzzle.solution]
        assert fold(puzzle.solution) == 0


def test_every_removal_that_is_refused_would_have_allowed_a_second_solution():
    board = random_board(Random(1))
    assert puzzle_of(board, 70, Random(0)) is None                     # fewer than 17 clues: no such puzzle
    densest = next(made for blanks in range(62, 40, -1) if (made := puzzle_of(board, blanks, Random(0))))
    again = [place for place in range(CELLS) if densest.clues[place]]
    fewer = [(*densest.clues[:place], BLANK, *densest.clues[place + 1:]) for place in again]
    assert all(len(solutions(clues, 2)) == 2 for clues in fewer)


def test_puzzles_follow_from_the_seed_and_the_first_do_not_depend_on_how_many():
    assert puzzles(3, 35, 7) == puzzles(6, 35, 7)[:3]
    assert puzzles(3, 35, 7) != puzzles(3, 35, 8)
    assert len({puzzle.solution for puzzle in puzzles(12, 35, 7)}) == 12


def test_no_symmetry_changes_the_fold_and_both_folds_occur():
    dice = np.random.default_rng(0)
    some = list(islice(boards(0, held_out=True), 3)) + list(islice(boards(0, held_out=False), 3))
    for board, held in zip(some, (True,) * 3 + (False,) * 3, strict=True):
        images = board_images(np.array([board]), 12, dice)
        assert all(is_solved(image.tolist()) for image in images)
        assert len({tuple(image) for image in images.tolist()}) == 12
        assert {fold(image) == 0 for image in images} == {held}
    assert sum(fold(random_board(Random(seed))) == 0 for seed in range(60)) in range(15, 46)


def test_images_reach_every_order_of_the_rows_of_a_band_and_the_transpose():
    board = np.array(random_board(Random(2))).reshape(SIDE, SIDE)
    images = board_images(board.reshape(1, CELLS), 400, np.random.default_rng(1)).reshape(-1, SIDE, SIDE)

    def shape_of(grid):                            # which columns hold equal digits: relabelling does not change it
        return tuple(tuple(int(np.flatnonzero(grid[0] == digit)[0]) for digit in row) for row in grid[:3])

    assert len({shape_of(image) for image in images}) > 300
    assert len({tuple(image[0]) for image in images}) > 390            # digits are relabelled
    turned = {str(row_cycles(grid)) for grid in images}
    assert turned == {str(row_cycles(board)), str(row_cycles(board.T))}
    assert len(turned) == 2


@pytest.mark.parametrize("asked", [{"blanks": 0}, {"blanks": 55}, {"blanks": 30, "count": -1}])
def test_puzzles_that_cannot_be_made_are_refused(asked):
    with pytest.raises(Refusal, match="1 to 54 blanks"):
        puzzles(**{"count": 1} | asked)


def test_a_board_is_shown_as_nine_lines():
    assert board_lines([1, *[BLANK] * 80]).splitlines() == ["1........", *["........."] * 8]
