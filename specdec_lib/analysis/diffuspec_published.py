"""DiffuSpec's published figures: a 7B diffusion model drafts for a 32B target on one A100, greedy, Spec-Bench.

Source: DiffuSpec (Li et al. 2025, arXiv 2510.02358 v1), tables and figures as named; the independent run is the one in
the public repository pluto0x0/DiffuSpec. None of this is our measurement: target, drafter and hardware differ, so
these figures never share a column with ours. We read MAT as all tokens of a round, the target's own included: with
that reading two rows of the paper imply the same time of a plain step, to 0.2 % (`STEPS`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class AblationCell(NamedTuple):
    """One cell of the 2 x 2 ablation: with path search or without, with length controller or without."""

    search: bool
    controller: bool


class PublishedClaim(NamedTuple):
    """Tokens of a round (MAT) and speed-up over plain decoding, as printed."""

    tokens: float
    speed: float


class RoundTime(NamedTuple):
    """The parts of a round, in a unit that the paper calls seconds, which is impossible; only ratios are used."""

    draft: float
    verify: float
    search: float = 0.0

    @property
    def whole(self) -> float:
        return sum(self)


NEITHER, SEARCH, CONTROLLER, BOTH = CELLS = tuple(
    AblationCell(*parts) for parts in ((False, False), (True, False), (False, True), (True, True)))
ABLATION: Mapping[AblationCell, PublishedClaim] = {                    # Table 2, means over the tasks
    NEITHER: PublishedClaim(6.05, 2.69), SEARCH: PublishedClaim(6.95, 2.98), CONTROLLER: PublishedClaim(6.43, 2.73),
    BOTH: PublishedClaim(6.99, 3.08)}
TASKS = ("multi_turn", "translation", "summarization", "qa", "math_reasoning", "rag")
PER_TASK: Mapping[AblationCell, tuple[PublishedClaim, ...]] = {        # Table 4, in the order of TASKS
    BOTH: (PublishedClaim(7.02, 3.12), PublishedClaim(7.35, 3.40), PublishedClaim(6.25, 2.45),
           PublishedClaim(7.49, 3.05), PublishedClaim(7.61, 4.05), PublishedClaim(8.04, 2.40)),
    SEARCH: (PublishedClaim(6.98, 3.01), PublishedClaim(7.29, 3.28), PublishedClaim(6.18, 2.37),
             PublishedClaim(7.40, 2.92), PublishedClaim(7.55, 3.88), PublishedClaim(7.96, 2.34)),
    CONTROLLER: (PublishedClaim(6.41, 2.70), PublishedClaim(6.72, 2.79), PublishedClaim(5.88, 2.11),
                 PublishedClaim(6.92, 2.55), PublishedClaim(7.00, 3.11), PublishedClaim(7.25, 2.14)),
    NEITHER: (PublishedClaim(6.03, 2.65), PublishedClaim(6.48, 2.61), PublishedClaim(5.72, 1.96),
              PublishedClaim(6.75, 2.41), PublishedClaim(6.82, 2.95), PublishedClaim(7.08, 2.02))}
FIXED: Mapping[int, PublishedClaim] = {                                # Table 5: fixed lengths, path searched
    10: PublishedClaim(5.53, 2.74), 20: PublishedClaim(6.56, 2.98), 30: PublishedClaim(6.49, 2.98),
    50: PublishedClaim(6.51, 2.91), 100: PublishedClaim(6.69, 2.78)}
SAMD = PublishedClaim(2.18, 2.35)                                      # Table 1, the best training-free baseline
SAMD_PER_TASK = (1.99, 1.54, 3.38, 2.44, 1.63, 3.27)                   # Table 1, speeds in the order of TASKS
SPS = PublishedClaim(6.18, 1.67)                                       # Table 1, a 7B model drafts token by token
STEPS_OF_DENOISING: Mapping[int, float] = {1: 3.08, 2: 2.4, 3: 2.0}    # Figure 7, speeds; 2 and 3 read off the plot
DIFFUSPEC_ROUND, SPS_ROUND = RoundTime(1.6, 2.13, 0.03), RoundTime(4.1, 2.02)          # Figure 6
INDEPENDENT: Mapping[str, PublishedClaim] = {      # GSM8K, 10 prompts; its files omit the target's own token: + 1
    "full method, Qwen2.5-32B-Instruct, generic word trigram": PublishedClaim(3.79 + 1, 1.72),
    "best words of 6 slots, no search, no controller, Qwen2.5-32B": PublishedClaim(3.77 + 1, 1.95)}


def mean_over_tasks(cell: AblationCell) -> PublishedClaim:
    """Our arithmetic mean of a cell's six tasks in Table 4; the means that Table 2 prints are other numbers."""
    rows = PER_TASK[cell]
    return PublishedClaim(sum(one.tokens for one in rows) / len(rows), sum(one.speed for one in rows) / len(rows))


def plain_step(said: PublishedClaim, took: RoundTime) -> float:
    """The time of a plain step that a printed row implies, in the unit of `took`."""
    return said.speed * took.whole / said.tokens


STEPS = plain_step(ABLATION[BOTH], DIFFUSPEC_ROUND), plain_step(SPS, SPS_ROUND)        # 1.657 and 1.654
STEP = sum(STEPS) / 2


def published_speedup(tokens: float, forwards: float = 1.0, searched: bool = True) -> float:
    """The speed-up that `tokens` a round would give the paper's pair, by the ratios of its Figure 6.

    `forwards` are the drafter's per round, 0 for a free drafter. A prediction: it assumes our acceptance for their
    models and the price of their verification, whose drafts were longer than ours; see `at_best`.
    """
    parts = DIFFUSPEC_ROUND
    return tokens * STEP / (parts.verify + forwards * parts.draft + searched * parts.search)


def published_speedup_at_best(tokens: float, forwards: float = 1.0, searched: bool = True) -> float:
    """The same prediction if the verification of a draft costs no more than a plain step."""
    return tokens * STEP / (STEP + forwards * DIFFUSPEC_ROUND.draft + searched * DIFFUSPEC_ROUND.search)


def published_break_even(searched: bool = True) -> float:
    """Tokens a round at which the paper's pair breaks even."""
    return 1 / published_speedup(1.0, searched=searched)
