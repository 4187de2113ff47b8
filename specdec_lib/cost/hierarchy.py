"""The latency of a stack of drafters, and the stack and blocks of least latency.

Models 0 to K are ordered by cost, K being the target. Model j verifies T tokens of model i in a forward of cost
c_j(T + 1) and accepts each with probability alpha_ij, independently, so a round emits E(alpha, T) tokens (Leviathan
et al. 2023, equation 1). With Lambda_i the time per token of level i,

    Lambda_i = c_i(1) + s_i                                                            a model that decodes alone
    Lambda_j = min over i < j, T of (e_i + T Lambda_i + c_j(T + 1) + v_j) / E(alpha_ij, T)

Each step increases in Lambda_i, so the minimum is found level by level: a shortest path in K^2 T_max steps, which is
the reduction of Mohri et al. 2025 (arXiv 2510.19705); the formula is a reconstruction, since the paper's text was not
at hand. The terms s, v and e are ours (`LevelTerms`): what a step, a verification and the start of a block take beyond
their forwards. A drafter's reading of the prompt is a fixed sum per token of the target, so the programme keeps every
plan that no other beats in both Lambda and that sum. Without terms the formulas are the reconstruction's.

The programme ignores that a buffer overshoots its block. `renewal_round` does not: the tokens that a level emits per
round are the steps of a renewal process, and its buffer B is the first sum to reach T, so T becomes E[B] and E(alpha,
T) becomes E[E(alpha, B)]. Both suppose that acceptance is independent of depth and of how the level below came to a
token, which it is not.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from typing import NamedTuple

from specdec_lib.cards import ForwardCost
from specdec_lib.cost.curves import expected_tokens

Price = float | ForwardCost                        # of a forward: the same at every width, or by its width in tokens
Law = dict[int, float]                             # number of tokens -> probability
LONGEST = 12                                       # T_max


class LevelTerms(NamedTuple):
    """What a level takes beyond the forwards that its curve charges, in the unit of the curve."""

    step: float = 0.0                              # s: a token drawn with nothing below, the rule of plain decoding
    verification: float = 0.0                      # v: a verification: the rule, statistics, what is handed up
    start: float = 0.0                             # e: a block's first forward, after another model's
    prompt: float = 0.0                            # a drafter's reading of the prompt, per token of the answer


@dataclass(frozen=True)
class LevelCost:
    """The costs of a level: its forwards by width, and its terms."""

    forward: Price
    terms: LevelTerms = LevelTerms()

    @property
    def alone(self) -> float:
        """A token with nothing below."""
        return forward_price(self.forward, 1) + self.terms.step

    def verified(self, width: float) -> float:
        """The verification of a draft with its forward over `width` tokens."""
        return forward_price(self.forward, width) + self.terms.verification


Costs = Sequence[Price | LevelCost]                # of the models, the cheapest first and the target last


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


def level_cost(cost: Price | LevelCost) -> LevelCost:
    """The costs of a level; a price alone has no terms."""
    return cost if isinstance(cost, LevelCost) else LevelCost(cost)


def reading(costs: Costs, drafters: Sequence[int]) -> float:
    """What these drafters' reading of the prompt adds to each token of the target."""
    return sum(level_cost(costs[i]).terms.prompt for i in drafters)


def best_stack(costs: Costs, alpha: Sequence[Sequence[float]], longest: int = LONGEST) -> StackPlan:
    """The stack of least latency by dynamic programming; the last model is the target."""
    return best_levels(costs, alpha, longest)[-1]


def best_levels(costs: Costs, alpha: Sequence[Sequence[float]], longest: int = LONGEST) -> list[StackPlan]:
    """The stack of least latency under every model; `alpha[i][j]` is that of drafter i under verifier j, i < j.

    A tie goes to fewer drafters and shorter blocks.
    """
    kept: list[list[tuple[float, StackPlan]]] = []                             # plans are without what is read
    for j, cost in enumerate(costs):
        plans = [StackPlan((), (), level_cost(cost).alone)]
        plans += [StackPlan((*plan.drafters, i), (*plan.blocks, block),
                            step_latency(plan.latency, cost, alpha[i][j], block, level_cost(costs[i]).terms.start))
                  for i in range(j) for _, plan in kept[i] for block in range(1, longest + 1)]
        kept.append(unbeaten([(reading(costs, plan.drafters), plan) for plan in plans]))
    whole = [[plan._replace(latency=plan.latency + read) for read, plan in plans] for plans in kept]
    return [min(plans, key=lambda plan: (plan.latency, len(plan.blocks), plan.blocks)) for plans in whole]


def unbeaten(plans: Sequence[tuple[float, StackPlan]]) -> list[tuple[float, StackPlan]]:
    """The plans that no other equals or beats in both numbers: what is read, and the latency."""
    out: list[tuple[float, StackPlan]] = []
    for read, plan in sorted(plans, key=lambda one: (one[0], one[1].latency, len(one[1].blocks), one[1].blocks)):
        if not out or plan.latency < out[-1][1].latency:
            out.append((read, plan))
    return out


def step_latency(below: float, cost: Price | LevelCost, alpha: float, block: int, start: float = 0.0) -> float:
    """Lambda_j: the time per token of a level whose draft of `block` tokens takes `below` per token and `start`."""
    return (start + block * below + level_cost(cost).verified(block + 1)) / expected_tokens(alpha, block)


def stack_latency(costs: Costs, alpha: Sequence[Sequence[float]], drafters: Sequence[int],
                  blocks: Sequence[int]) -> float:
    """The time per token of the last model over these drafters, lowest first, without overshoot."""
    chain = (*drafters, len(costs) - 1)
    now = level_cost(costs[chain[0]]).alone
    for (i, j), block in zip(pairwise(chain), blocks, strict=True):
        now = step_latency(now, costs[j], alpha[i][j], block, level_cost(costs[i]).terms.start)
    return now + reading(costs, drafters)


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


def renewal_round(costs: Costs, alpha: Sequence[Sequence[float]], drafters: Sequence[int],
                  blocks: Sequence[int]) -> BlockTime:
    """The tokens and the mean time of one round of the target, exact where acceptances are independent.

    By Wald's identity a block of a level takes E[B] / E[N] of its rounds in the mean, N being the tokens of a round.
    """
    chain, level = (*drafters, len(costs) - 1), [level_cost(cost) for cost in costs]
    if not drafters:
        return BlockTime({1: 1.0}, level[-1].alone)
    handed = BlockTime({blocks[0]: 1.0}, blocks[0] * level[chain[0]].alone)
    for (i, j), block in zip(pairwise(chain), (*blocks[1:], 1), strict=True):      # the target hands up every round
        verified = sum(prob * level[j].verified(n + 1) for n, prob in handed.law.items())
        turn = BlockTime(round_law(alpha[i][j], handed.law), level[i].terms.start + handed.time + verified)
        handed = BlockTime(block_law(turn.law, block), 0.0)
        handed = handed._replace(time=turn.time * handed.tokens / turn.tokens)
    return handed._replace(time=handed.time + reading(costs, drafters) * handed.tokens)


def renewal_latency(costs: Costs, alpha: Sequence[Sequence[float]], drafters: Sequence[int],
                    blocks: Sequence[int]) -> float:
    """The time per token of the target, with overshoot."""
    turn = renewal_round(costs, alpha, drafters, blocks)
    return turn.time / turn.tokens


def best_by_renewal(costs: Costs, alpha: Sequence[Sequence[float]], longest: int = LONGEST,
                    sizes: Collection[int] = (0, 1, 2)) -> StackPlan:
    """The stack of least latency with overshoot, by trying all that have one of these numbers of drafters."""
    return min((StackPlan(drafters, blocks, renewal_latency(costs, alpha, drafters, blocks))
                for drafters, blocks in every_stack(len(costs), longest, sizes)), key=lambda plan: plan.latency)


def gain_of_stacking(costs: Costs, alpha: Sequence[Sequence[float]], longest: int = LONGEST) -> float:
    """How many times as fast the best stack of two drafters is predicted to be as the best of one or none."""
    return (best_by_renewal(costs, alpha, longest, (0, 1)).latency
            / best_by_renewal(costs, alpha, longest, (2,)).latency)


def simulated_latency(costs: Costs, alpha: Sequence[Sequence[float]], drafters: Sequence[int],
                      blocks: Sequence[int], tokens: int, seed: int = 0) -> float:
    """Time per token of the recursion itself, played with independent acceptances until `tokens` are emitted."""
    dice, chain = random.Random(seed), (*drafters, len(costs) - 1)
    level = [level_cost(costs[i]) for i in chain]

    def verified(place: int) -> tuple[int, float]:
        """Tokens and time of one round of the model at this place of the chain."""
        drafted, spent = handed_up(place - 1)
        kept = next((n for n in range(drafted) if dice.random() >= alpha[chain[place - 1]][chain[place]]), drafted)
        return kept + 1, spent + level[place].verified(drafted + 1)

    def handed_up(place: int) -> tuple[int, float]:
        if place == 0:
            return blocks[0], level[0].terms.start + blocks[0] * level[0].alone
        buffered, spent = 0, level[place].terms.start
        while buffered < blocks[place]:
            more, time = verified(place)
            buffered, spent = buffered + more, spent + time
        return buffered, spent

    emitted, spent = 0, 0.0
    while emitted < tokens:
        more, time = verified(len(chain) - 1) if drafters else (1, level[0].alone)
        emitted, spent = emitted + more, spent + time
    return spent / emitted + reading(costs, drafters)
