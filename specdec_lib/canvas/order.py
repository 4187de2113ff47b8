"""Orders: which masked position is filled first. The scores of positions, the ranked choices, and exact ties.

Source: the most probable token's probability (MaskGIT, LLaDA's low-confidence remasking), its margin and the negative
entropy (Dream's `topk_margin` and `entropy`). A random order is the contrast: a permutation of the area that is drawn
once, so that it is a function of the canvas like the others. Equal scores: the lowest position first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from specdec_lib.canvas.forecast import RowForecast
from specdec_lib.canvas.types import Canvas, Choice
from specdec_lib.lazy import torch
from specdec_lib.scores import Categorical
from specdec_lib.types import RandomNumbers, Refusal

Order = Callable[[RowForecast, int], float]        # the score of a position: the highest is filled first
ORDERS = ("confidence", "margin", "entropy", "random")


def by_confidence(row: RowForecast, position: int) -> float:
    return row.confidence[row.column[position]]


def by_margin(row: RowForecast, position: int) -> float:
    return row.margin[row.column[position]]


def by_entropy(row: RowForecast, position: int) -> float:
    return -row.entropy[row.column[position]]


class ByRank(NamedTuple):
    """A fixed order: `rank[position]`, the lowest first, whatever the model says."""

    rank: dict[int, int]

    def __call__(self, row: RowForecast, position: int) -> float:
        return -float(self.rank[position])


def check_order(name: str) -> str:
    """The name of an order; Refusal for another."""
    if name not in ORDERS:
        raise Refusal(f"there is no order named {name!r}; there are: {', '.join(ORDERS)}")
    return name


def make_order(name: str, canvas: Canvas, dice: RandomNumbers) -> Order:
    """The order of this name for one decode; the random one is drawn here, for all positions of the area."""
    known: dict[str, Order] = {"confidence": by_confidence, "margin": by_margin, "entropy": by_entropy}
    if check_order(name) in known:
        return known[name]
    drawn = shuffled(canvas.area, dice.fork("order"))
    return ByRank({position: rank for rank, position in enumerate(drawn)})


def shuffled(positions: Sequence[int], dice: RandomNumbers) -> tuple[int, ...]:
    """The positions in an order that is drawn uniformly."""
    left, out = list(positions), []
    while left:
        uniform = Categorical(torch.arange(len(left)), torch.full((len(left),), 1 / len(left), dtype=torch.float64))
        out.append(left.pop(dice.choose(uniform)))
    return tuple(out)


def ranked(row: RowForecast, canvas: Canvas, order: Order) -> tuple[Choice, ...]:
    """The best token of every open position, highest score first."""
    scored = (Choice(position, row.best[row.column[position]], row.confidence[row.column[position]],
                     order(row, position)) for position in canvas.open)
    return by_score(scored)


def by_score(choices) -> tuple[Choice, ...]:
    """Choices with the highest score first, of equal ones that with the lowest position."""
    return tuple(sorted(choices, key=lambda choice: (-choice.score, choice.position)))


def stepwise_choice(row: RowForecast, canvas: Canvas, order: Order) -> Choice:
    """S(x): the one choice that stepwise decoding makes on this canvas, which has an open position."""
    return min((Choice(position, row.best[row.column[position]], row.confidence[row.column[position]],
                       order(row, position)) for position in canvas.open),
               key=lambda choice: (-choice.score, choice.position))


def tied(row: RowForecast, canvas: Canvas, order: Order, choice: Choice) -> bool:
    """Whether another open position has exactly the same score, or another token exactly the same probability."""
    rivals = sum(order(row, position) == choice.score for position in canvas.open)
    return rivals > 1 or row.margin[row.column[choice.position]] == 0
