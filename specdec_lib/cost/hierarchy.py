"""The latency of a stack of drafters, and the stack and blocks of least latency.

Models 0 to K are ordered by cost, K being the target. Model j verifies T tokens of model i in a forward of cost
c_j(T + 1) and accepts each with probability alpha_ij, independently, so a round emits E(alpha, T) tokens (Leviathan
et al. 2023, equation 1). With Lambda_i the time per token of level i,

    Lambda_i = c_i(1)                                                       a model that decodes alone
    Lambda_j = min over i < j, T of (T Lambda_i + c_j(T + 1)) / E(alpha_ij, T)

Each step increases in Lambda_i, so the minimum is found level by level: a shortest path in K^2 T_max steps, which is
the reduction of Mohri et al. 2025 (arXiv 2510.19705); the formula is a reconstruction, since the paper's text was not
at hand. It ignores that a buffer overshoots its block. `renewal_round` does not: the tokens that a level emits per
round are the steps of a renewal process, and its buffer B is the first sum to reach T, so T becomes E[B] and E(alpha,
T) becomes E[E(alpha, B)]. Both suppose that acceptance is independent of depth and of how the level below came to a
token, which it is not.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from itertools import combinations, pairwise, product
from typing import NamedTuple

from specdec_lib.cards import ForwardCost
from specdec_lib.cost.curves import expected_tokens

Price = float | ForwardCost                        # of a forward: the same at every width, or by its width in tokens
Law = dict[int, float]                             # number of tokens -> probability
LONGEST = 12                                       # T_max


class StackPlan(NamedTuple):
    """Drafters from the lowest up, the tokens that each buffers, and the predicted time per token of the target."""

    drafters: tuple[int, ...]                      # empty: plain decoding
    blocks: tuple[int, ...]
    latency: float


class BlockTime(NamedTuple):
    """The law of a number of tokens, and the mean time that they take: of a block handed up, or of one round."""

    law: Law
    time: float

    @property
    def tokens(self) -> float:
        """The mean number."""
        return sum(n * prob for n, prob in self.law.items())


def forward_price(cost: Price, width: float) -> float:
    """The price of a forward over `width` tokens."""
    return cost(width) if callable(cost) else cost


def best_stack(costs: Sequence[Price], alpha: Sequence[Sequence[float]], longest: int = LONGEST) -> StackPlan:
    """The stack of least latency by dynamic programming; the last model is the target."""
    return best_levels(costs, alpha, longest)[-1]


def best_levels(costs: Sequence[Price], alpha: Sequence[Sequence[float]], longest: int = LONGEST) -> list[StackPlan]:
    """The stack of least latency under every model; `alpha[i][j]` is that of drafter i under verifier j, i < j.

    A tie goes to fewer drafters and shorter blocks.
    """
    best: list[StackPlan] = []
    for j, cost in enumerate(costs):
        plans = [StackPlan((), (), forward_price(cost, 1))]
        plans += [StackPlan((*best[i].drafters, i), (*best[i].blocks, block),
                            step_latency(best[i].latency, cost, alpha[i][j], block))
                  for i in range(j) for block in range(1, longest + 1)]
        best.append(min(plans, key=lambda plan: (plan.latency, len(plan.blocks), plan.blocks)))
    return best


def step_latency(below: float, cost: Price, alpha: float, block: int) -> float:
    """Lambda_j: the time per token of a level whose draft of `block` tokens takes `below` per token."""
    return (block * below + forward_price(cost, block + 1)) / expected_tokens(alpha, block)


def stack_latency(costs: Sequence[Price], alpha: Sequence[Sequence[float]], drafters: Sequence[int],
                  blocks: Sequence[int]) -> float:
    """Lambda of the last model over these drafters, lowest first, without overshoot."""
    chain = (*drafters, len(costs) - 1)
    now = forward_price(costs[chain[0]], 1)
    for (i, j), block in zip(pairwise(chain), blocks, strict=True):
        now = step_latency(now, costs[j], alpha[i][j], block)
    return now


def every_stack(models: int, longest: int = LONGEST,
                sizes: Collection[int] | None = None) -> Iterator[tuple[tuple, tuple]]:
    """Drafters and blocks of all stacks under the last of `models`, or of those with so many drafters."""
    for size in range(models) if sizes is None else sizes:
        for drafters in combinations(range(models - 1), size):
            yield from ((drafters, blocks) for blocks in product(range(1, longest + 1), repeat=size))


def round_law(alpha: float, drafted: Law) -> Law:
    """The law of the tokens that one verification emits, given the law of the tokens drafted."""
    out: Law = {}
    for length, prob in drafted.items():
        for n in range(1, length + 2):
            reach = alpha ** (n - 1)
            out[n] = out.get(n, 0.0) + prob * (reach if n == length + 1 else reach * (1 - alpha))
    return out


def block_law(steps: Law, block: int) -> Law:
    """The law of the first sum of independent `steps` that reaches `block`: the tokens that are handed up."""
    reached, out = [1.0] + [0.0] * (block - 1), {}
    for so_far in range(block):
        for step, prob in steps.items():
            total, mass = so_far + step, reached[so_far] * prob
            if total < block:
                reached[total] += mass
            else:
                out[total] = out.get(total, 0.0) + mass
    return out


def renewal_round(costs: Sequence[Price], alpha: Sequence[Sequence[float]], drafters: Sequence[int],
                  blocks: Sequence[int]) -> BlockTime:
    """The tokens and the mean time of one round of the target, exact where acceptances are independent.

    By Wald's identity a block of a level takes E[B] / E[N] of its rounds in the mean, N being the tokens of a round.
    """
    chain = (*drafters, len(costs) - 1)
    alone = forward_price(costs[chain[0]], 1)
    if not drafters:
        return BlockTime({1: 1.0}, alone)
    handed = BlockTime({blocks[0]: 1.0}, blocks[0] * alone)
    for (i, j), block in zip(pairwise(chain), (*blocks[1:], 1), strict=True):      # the target hands up every round
        verify = sum(prob * forward_price(costs[j], n + 1) for n, prob in handed.law.items())
        turn = BlockTime(round_law(alpha[i][j], handed.law), handed.time + verify)
        handed = BlockTime(block_law(turn.law, block), 0.0)
        handed = handed._replace(time=turn.time * handed.tokens / turn.tokens)
    return handed


def renewal_latency(costs: Sequence[Price], alpha: Sequence[Sequence[float]], drafters: Sequence[int],
                    blocks: Sequence[int]) -> float:
    """The time per token of the target, with overshoot."""
    turn = renewal_round(costs, alpha, drafters, blocks)
    return turn.time / turn.tokens


def best_by_renewal(costs: Sequence[Price], alpha: Sequence[Sequence[float]], longest: int = LONGEST,
                    sizes: Collection[int] = (0, 1, 2)) -> StackPlan:
    """The stack of least latency with overshoot, by trying all that have one of these numbers of drafters."""
    return min((StackPlan(drafters, blocks, renewal_latency(costs, alpha, drafters, blocks))
                for drafters, blocks in every_stack(len(costs), longest, sizes)), key=lambda plan: plan.latency)


def gain_of_stacking(costs: Sequence[Price], alpha: Sequence[Sequence[float]], longest: int = LONGEST) -> float:
    """How many times as fast the best stack of two drafters is predicted to be as the best of one or none."""
    return (best_by_renewal(costs, alpha, longest, (0, 1)).latency
            / best_by_renewal(costs, alpha, longest, (2,)).latency)


def simulated_latency(costs: Sequence[Price], alpha: Sequence[Sequence[float]], drafters: Sequence[int],
                      blocks: Sequence[int], tokens: int, seed: int = 0) -> float:
    """Time per token of the recursion itself, played with independent acceptances until `tokens` are emitted."""
    dice, chain = random.Random(seed), (*drafters, len(costs) - 1)

    def verified(place: int) -> tuple[int, float]:
        """Tokens and time of one round of the model at this place of the chain."""
        drafted, spent = handed_up(place - 1)
        kept = next((n for n in range(drafted) if dice.random() >= alpha[chain[place - 1]][chain[place]]), drafted)
        return kept + 1, spent + forward_price(costs[chain[place]], drafted + 1)

    def handed_up(place: int) -> tuple[int, float]:
        if place == 0:
            return blocks[0], blocks[0] * forward_price(costs[chain[0]], 1)
        buffered, spent = 0, 0.0
        while buffered < blocks[place]:
            more, time = verified(place)
            buffered, spent = buffered + more, spent + time
        return buffered, spent

    emitted, spent = 0, 0.0
    while emitted < tokens:
        more, time = verified(len(chain) - 1) if drafters else (1, forward_price(costs[-1], 1))
        emitted, spent = emitted + more, spent + time
    return spent / emitted
