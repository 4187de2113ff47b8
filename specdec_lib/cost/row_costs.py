"""Which nodes of a tree are worth their rows: the cost of a wider forward, counted in tokens.

Source: ours, from the algebra of Leviathan et al. 2023, section 3. While decoding generates `gain` tokens in the time
of a plain forward, the n nodes of a draft cost gain (T(n + 1) / T(1) - 1) tokens, where T(w) are the seconds of a
forward over w rows. They bring as many tokens as their paths' probabilities sum to. The rows of a forward do not cost
the same: a measured curve is flat at first and has steps, so an early node pays with a less probable path than a later
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from specdec_lib.cards import ForwardCost, Kit
from specdec_lib.types import Refusal

MOST = 64                                          # nodes whose cost is read from a curve; more continue its last step


@dataclass(frozen=True)
class RowCosts:
    """What drafts of 0, 1, 2, ... nodes cost in `tokens` beside a draft of none; further nodes as the last one."""

    tokens: tuple[float, ...] = (0.0,)

    def __call__(self, nodes: int) -> float:
        """Tokens that a draft of so many nodes costs."""
        last = len(self.tokens) - 1
        return self.tokens[min(nodes, last)] + self.step * max(0, nodes - last)

    def worth(self, chances: Sequence[float], before: int = 0) -> int:
        """How many of these nodes gain the most, the first ones counted; the larger number on a tie.

        `chances` are the probabilities of their paths, a parent before its children; `before` nodes are drafted anyway.
        """
        best, most, gained = 0, 0.0, 0.0
        for n, chance in enumerate(chances, 1):
            gained += chance
            worth = gained - (self(before + n) - self(before))
            if worth >= most:
                best, most = n, worth
        return best

    def too_dear(self, nodes: int, chance: float) -> bool:
        """Whether no draft of more than `nodes` can gain by them, if none of them has a higher chance than this.

        Drafts up to one node beyond the costs count: many more at a cheap last step could still gain.
        """
        return chance < (self.slopes[nodes] if nodes < len(self.slopes) else self.step)

    @property
    def step(self) -> float:
        """What the last node costs more than the one before."""
        return self.tokens[-1] - self.tokens[-2] if len(self.tokens) > 1 else 0.0

    @cached_property
    def slopes(self) -> tuple[float, ...]:
        """By nodes drafted: the least mean cost of those that follow, from the lower hull of the costs to the right."""
        out: list[float] = []
        hull: list[int] = [len(self.tokens)]       # one node beyond the last: further ones rest on a single step

        def slope(left: int, right: int) -> float:
            return (self(right) - self(left)) / (right - left)

        for nodes in reversed(range(len(self.tokens))):
            while len(hull) > 1 and slope(nodes, hull[-1]) >= slope(hull[-1], hull[-2]):
                hull.pop()
            out.append(slope(nodes, hull[-1]))
            hull.append(nodes)
        return tuple(reversed(out))

    @cached_property
    def least(self) -> tuple[float, ...]:
        """By rank among all candidates, best first: below it no node of that rank or a later one gains in any draft."""
        return tuple(accumulate(reversed(self.slopes), min))[::-1]


FREE = RowCosts()                                  # rows that cost nothing


def row_costs(cost: ForwardCost, gain: float, most: int = MOST) -> RowCosts:
    """The costs of up to `most` nodes on a curve while `gain` tokens are generated in the time of a plain forward.

    A wider forward that was measured quicker than a narrower one costs as much as that one.
    """
    plain = cost(1)
    return RowCosts(tuple(accumulate((gain * max(0.0, cost(1 + n) / plain - 1) for n in range(most + 1)), max)))


def node_costs(kit: Kit, gain: float, price: float | None = None) -> tuple[float, RowCosts]:
    """The least probability of a node's path, and what rows cost beside: one of the two limits a tree, by the kit.

    With a `price` every node needs that probability. Else the kit's measured curve says what rows cost, and without a
    curve every node needs the probability gain times the kit's price. Refusal unless the price is a probability.
    """
    if price is not None:
        if not 0 <= price <= 1:
            raise Refusal(f"price must be a probability between 0 and 1, got {price}")
        return price, FREE
    return (min(1.0, gain * kit.price), FREE) if kit.cost is None else (0.0, row_costs(kit.cost, gain))
