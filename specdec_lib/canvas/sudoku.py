"""Sudoku boards and puzzles: a generator, a solver that proves uniqueness, and a split that no symmetry crosses.

A board is 81 digits in reading order, 1 to 9, and 0 for a blank. Relabelled digits, permuted rows of a band, columns of
a stack, bands and stacks, and the transpose turn one solved board into up to 1.2 million million others. Training
uses these symmetries, so boards are split by `fold`, which is the same for all of them: no image of a held-out board is
ever trained on. Everything follows from a seed. Knows nothing about networks.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from itertools import combinations, islice
from random import Random
from typing import NamedTuple

import numpy as np

from specdec_lib.types import Refusal

SIDE, CELLS, BLANK = 9, 81, 0
ROWS, COLUMNS = (tuple(line.tolist()) for line in np.divmod(np.arange(CELLS), SIDE))
BOXES = tuple(row // 3 * 3 + column // 3 for row, column in zip(ROWS, COLUMNS, strict=True))
DIGITS = 0b1111111110                              # bit d stands for digit d
FOLDS = 2                                          # fold 0 is held out
MOST_BLANKS = 54                                   # that removing one by one reaches on nearly every board

Board = tuple[int, ...]


class Puzzle(NamedTuple):
    """Clues with blanks, and the only solution."""

    clues: Board
    solution: Board


def solutions(clues: Sequence[int], most: int = 2, dice: Random | None = None) -> list[Board]:
    """Up to `most` solutions of these clues, by depth-first search from the cell with the fewest digits left.

    With `dice`, digits are tried in random order.
    """
    cells, found = list(clues), []
    used = [[0] * SIDE for _ in range(3)]
    for place, digit in enumerate(cells):
        if digit and not put(used, place, digit):
            return []
    blanks = [place for place, digit in enumerate(cells) if not digit]

    def search() -> None:
        if not blanks:
            found.append(tuple(cells))
            return
        left, place = min((options(used, place).bit_count(), place) for place in blanks)
        if not left:
            return
        free = [digit for digit in range(1, 10) if options(used, place) >> digit & 1]
        if dice:
            dice.shuffle(free)
        blanks.remove(place)
        for digit in free:
            cells[place] = digit
            put(used, place, digit)
            search()
            clear(used, place, digit)
            if len(found) >= most:
                break
        blanks.append(place)

    search()
    return found


def options(used: list[list[int]], place: int) -> int:
    """Bits of the digits that the row, column and box of this cell leave."""
    return DIGITS & ~(used[0][ROWS[place]] | used[1][COLUMNS[place]] | used[2][BOXES[place]])


def put(used: list[list[int]], place: int, digit: int) -> bool:
    """Marks the digit as used in the three units of the cell; False, and nothing done, where one has it already."""
    bit = 1 << digit
    if not options(used, place) & bit:
        return False
    for unit, which in zip(used, (ROWS, COLUMNS, BOXES), strict=True):
        unit[which[place]] |= bit
    return True


def clear(used: list[list[int]], place: int, digit: int) -> None:
    """Undoes `put`."""
    for unit, which in zip(used, (ROWS, COLUMNS, BOXES), strict=True):
        unit[which[place]] &= ~(1 << digit)


def random_board(dice: Random) -> Board:
    """A solved board: three random boxes on the diagonal, which never conflict, completed by the solver."""
    cells = [BLANK] * CELLS
    for box in (0, 4, 8):
        digits = list(range(1, 10))
        dice.shuffle(digits)
        for place, digit in zip((i for i in range(CELLS) if BOXES[i] == box), digits, strict=True):
            cells[place] = digit
    return solutions(cells, 1, dice)[0]


def fold(board: Sequence[int]) -> int:
    """A number below `FOLDS` that is the same for all images of a solved board under the symmetries of Sudoku.

    Two rows define a permutation of the digits (what stands below what). Relabelling and permuting columns keep its
    cycle lengths, swapping the rows inverts it and keeps them too. The fold hashes these lengths for all pairs of rows
    of a band, all pairs across bands, and the same of the transposed board, each sorted.
    """
    grid = np.asarray(board).reshape(SIDE, SIDE)
    return zlib.crc32(repr(sorted((row_cycles(grid), row_cycles(grid.T)))).encode()) % FOLDS


def row_cycles(grid: np.ndarray) -> tuple:
    """The sorted cycle lengths between rows: of the pairs within each band, then of all other pairs."""
    kinds = {pair: cycle_lengths(grid[pair[0]], grid[pair[1]]) for pair in combinations(range(SIDE), 2)}
    bands = [sorted(kind for (a, b), kind in kinds.items() if a // 3 == b // 3 == band) for band in range(3)]
    return sorted(bands), sorted(kind for (a, b), kind in kinds.items() if a // 3 != b // 3)


def cycle_lengths(above: np.ndarray, below: np.ndarray) -> tuple[int, ...]:
    """Sorted cycle lengths of the permutation that takes each digit to the one below it."""
    step = dict(zip(above.tolist(), below.tolist(), strict=True))
    out = []
    while step:
        start, at = next(iter(step.items()))
        del step[start]
        length = 1
        while at != start:
            at, length = step.pop(at), length + 1
        out.append(length)
    return tuple(sorted(out))


def boards(seed: int, held_out: bool) -> Iterator[Board]:
    """Solved boards without end, of the held-out fold or of the others."""
    dice = Random(f"boards {seed}")
    while True:
        board = random_board(dice)
        if (fold(board) == 0) == held_out:
            yield board


def puzzle_of(solution: Board, blanks: int, dice: Random) -> Puzzle | None:
    """Cells removed in random order while the solution stays the only one; None where that ends before `blanks`."""
    cells, left = list(solution), blanks
    for place in dice.sample(range(CELLS), CELLS):
        if not left:
            break
        cells[place] = BLANK
        if other_digit(cells, place, solution[place]):
            cells[place] = solution[place]
        else:
            left -= 1
    return None if left else Puzzle(tuple(cells), solution)


def other_digit(cells: list[int], place: int, digit: int) -> bool:
    """Whether the clues also have a solution with another digit in this blank cell."""
    used = [[0] * SIDE for _ in range(3)]
    for at, known in enumerate(cells):
        if known:
            put(used, at, known)
    for other in range(1, 10):
        if other != digit and options(used, place) >> other & 1:
            cells[place] = other
            again = solutions(cells, 1)
            cells[place] = BLANK
            if again:
                return True
    return False


def puzzles(count: int, blanks: int, seed: int = 0, held_out: bool = True) -> tuple[Puzzle, ...]:
    """Puzzles with this many blanks and one solution, of the held-out boards; the first ones do not depend on `count`.

    Refusal for a number of blanks that random removal does not reach.
    """
    if not 1 <= blanks <= MOST_BLANKS or count < 0:
        raise Refusal(f"a puzzle has 1 to {MOST_BLANKS} blanks, and a count of puzzles is 0 or more, got {blanks} and "
                      f"{count}")
    dice = Random(f"puzzles {seed} {blanks}")
    made = (puzzle_of(board, blanks, dice) for board in boards(seed, held_out))
    return tuple(islice((puzzle for puzzle in made if puzzle), count))


def board_images(base: np.ndarray, count: int, dice: np.random.Generator) -> np.ndarray:
    """Random symmetric images [count, 81] of random boards of `base` [n, 81], solved like them."""
    chosen = base[dice.integers(len(base), size=count)].reshape(count, SIDE, SIDE)
    return np.stack([random_image(grid, dice) for grid in chosen])


def random_image(grid: np.ndarray, dice: np.random.Generator) -> np.ndarray:
    """One random image [81] of a board [9, 9] under the symmetries of Sudoku."""
    def lines() -> np.ndarray:
        return np.concatenate([3 * band + dice.permutation(3) for band in dice.permutation(3)])

    digits = np.concatenate(([BLANK], 1 + dice.permutation(9)))
    turned = grid.T if dice.integers(2) else grid
    return digits[turned[lines()][:, lines()]].reshape(CELLS)


def board_lines(cells: Sequence[int]) -> str:
    """The board as nine lines of text, blanks as dots."""
    text = "".join(str(digit) if digit else "." for digit in cells)
    return "\n".join(text[start:start + SIDE] for start in range(0, CELLS, SIDE))
