"""Draft rows: the canvases that SSD guesses stepwise decoding will reach, as shapes of its trees.

Source: SSD (Gao et al. 2025, arXiv 2510.04147), linear chains and trees with drafts in another order ("jump", "mixed
order") or with another token. Its figures and Table 2 were not at hand: the order in which a shape spends its rows is
ours. Attention is bidirectional, so every node is a whole row of the batch, and two paths to one canvas share it: the
shapes are sets of canvases, not lists of paths. `subset_rows` is our own.

A row is written here as a set of (rank, token number): rank 0 is the open position with the highest score, token
number 0 its most probable token. A draft never leaves the block that is open now: stepwise decoding may not fill later
positions, whatever the model says of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import zip_longest

from specdec_lib.canvas.forecast import RowForecast
from specdec_lib.canvas.order import Order, ranked
from specdec_lib.canvas.types import Canvas
from specdec_lib.types import Refusal

Guess = tuple[tuple[int, int], ...]                # (rank, token number), filled beside the present canvas
Shape = Callable[[int], Iterator[Guess]]           # open positions -> guesses, the first to be run first


def prefix(n: int) -> Guess:
    """The `n` best-ranked choices."""
    return tuple((rank, 0) for rank in range(n))


def chain_rows(open_positions: int) -> Iterator[Guess]:
    """The best choice, the two best, the three best, ..."""
    return (prefix(n) for n in range(1, open_positions + 1))


def jump_rows(open_positions: int) -> Iterator[Guess]:
    """After every two rows of the chain one that leaves a choice out: the order of two neighbours is swapped."""
    jumps = ((*prefix(n), (n + 1, 0)) for n in range(open_positions - 1))
    return mixed(chain_rows(open_positions), jumps)


def token_rows(open_positions: int) -> Iterator[Guess]:
    """After every two rows of the chain one whose last position takes its second token."""
    others = ((*prefix(n), (n, 1)) for n in range(open_positions))
    return mixed(chain_rows(open_positions), others)


def mixed_rows(open_positions: int) -> Iterator[Guess]:
    """After every two rows of the chain one jump or one second token, in turn."""
    jumps = ((*prefix(n), (n + 1, 0)) for n in range(open_positions - 1))
    others = ((*prefix(n), (n, 1)) for n in range(open_positions))
    turns = (guess for pair in zip_longest(jumps, others) for guess in pair if guess is not None)
    return mixed(chain_rows(open_positions), turns)


def subset_rows(open_positions: int) -> Iterator[Guess]:
    """Every subset of the best choice, of the two best, of the three best, ...: right in whatever order they come.

    2^n rows hold all orders of the n best, where a chain of n + 1 rows holds one.
    """
    return (tuple((rank, 0) for rank in range(open_positions) if number >> rank & 1)
            for number in range(1, 2 ** open_positions))


def mixed(two: Iterator[Guess], one: Iterator[Guess]) -> Iterator[Guess]:
    """Two of the first, then one of the second, until both are used up."""
    pairs = zip_longest(two, two)
    return (guess for pair, single in zip_longest(pairs, one, fillvalue=()) for guess in
            (*(guess for guess in pair if guess is not None), *([single] if single else [])))


SHAPES: dict[str, Shape] = {"chain": chain_rows, "jump": jump_rows, "token": token_rows, "mixed": mixed_rows,
                            "subset": subset_rows}


def check_shape(name: str) -> Shape:
    """The shape of this name; Refusal for another."""
    if name not in SHAPES:
        raise Refusal(f"there is no tree named {name!r}; there are: {', '.join(SHAPES)}")
    return SHAPES[name]


def draft_rows(canvas: Canvas, row: RowForecast, order: Order, shape: Shape, rows: int) -> tuple[Canvas, ...]:
    """The present canvas and at most `rows - 1` guesses, all different, none of them full.

    `row` is the forecast of an earlier canvas: it was made before the last token was written, and covers the area.
    """
    choices, out = ranked(row, canvas, order), {canvas.tokens: canvas}
    for guess in shape(len(choices)):
        if len(out) >= rows:
            break
        tokens = [token_at(row, choices[rank].position, number) for rank, number in guess]
        if None in tokens:
            continue
        drafted = canvas.fill([choices[rank].position for rank, _ in guess], [token for token in tokens
                                                                             if token is not None])
        if not drafted.full:                       # a full canvas needs no forward: nothing is decided on it
            out.setdefault(drafted.tokens, drafted)
    return tuple(out.values())


def token_at(row: RowForecast, position: int, number: int) -> int | None:
    """The token of this number at a position; None where the model knows fewer."""
    if number == 0:
        return row.best[row.column[position]]
    found = row.alternatives(position, number + 1)
    return found[number] if len(found) > number else None
