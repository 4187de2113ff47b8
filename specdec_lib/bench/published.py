"""DiffuSpec's figures as published: a 7B diffusion model drafting for a 32B target on one A100, greedy, Spec-Bench.

Source: DiffuSpec (Li et al. 2025, arXiv 2510.02358 v1), tables and figure as named; the independent run is the one kept
by the public repository pluto0x0/DiffuSpec. Nothing here was measured by us: another target, another drafter, other
hardware, so these figures share no column with ours. Its MAT is read as all tokens of a round, the target's own
included: with that reading two rows of the paper imply the same time of a plain step, to 0.2 % (`STEPS`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Cell(NamedTuple):
    """One cell of the 2 x 2 ablation: whether the path is searched, and whether the length is controlled."""

    search: bool
    controller: bool


class Said(NamedTuple):
    """Tokens of a round (MAT) and times plain decoding, as printed."""

    tokens: float
    speed: float


class RoundTime(NamedTuple):
    """A round's parts in one unit that the paper calls seconds, which cannot be; only ratios are used."""

    draft: float
    verify: float
    search: float = 0.0

    @property
    def whole(self) -> float:
        return sum(self)


NEITHER, SEARCH, CONTROLLER, BOTH = CELLS = Cell(False, False), Cell(True, False), Cell(False, True), Cell(True, True)
ABLATION: Mapping[Cell, Said] = {                                      # Table 2, means over the tasks
    NEITHER: Said(6.05, 2.69), SEARCH: Said(6.95, 2.98), CONTROLLER: Said(6.43, 2.73), BOTH: Said(6.99, 3.08)}
TASKS = ("multi_turn", "translation", "summarization", "qa", "math_reasoning", "rag")
PER_TASK: Mapping[Cell, tuple[Said, ...]] = {                          # Table 4, in the order of TASKS
    BOTH: (Said(7.02, 3.12), Said(7.35, 3.40), Said(6.25, 2.45), Said(7.49, 3.05), Said(7.61, 4.05), Said(8.04, 2.40)),
    SEARCH: (Said(6.98, 3.01), Said(7.29, 3.28), Said(6.18, 2.37), Said(7.40, 2.92), Said(7.55, 3.88),
             Said(7.96, 2.34)),
    CONTROLLER: (Said(6.41, 2.70), Said(6.72, 2.79), Said(5.88, 2.11), Said(6.92, 2.55), Said(7.00, 3.11),
                 Said(7.25, 2.14)),
    NEITHER: (Said(6.03, 2.65), Said(6.48, 2.61), Said(5.72, 1.96), Said(6.75, 2.41), Said(6.82, 2.95),
              Said(7.08, 2.02))}
FIXED: Mapping[int, Said] = {                                          # Table 5: fixed lengths, path searched
    10: Said(5.53, 2.74), 20: Said(6.56, 2.98), 30: Said(6.49, 2.98), 50: Said(6.51, 2.91), 100: Said(6.69, 2.78)}
SAMD = Said(2.18, 2.35)                                                # Table 1, the best that trains nothing
SAMD_PER_TASK = (1.99, 1.54, 3.38, 2.44, 1.63, 3.27)                   # Table 1, speeds in the order of TASKS
SPS = Said(6.18, 1.67)                                                 # Table 1, a 7B model drafts token by token
STEPS_OF_DENOISING: Mapping[int, float] = {1: 3.08, 2: 2.4, 3: 2.0}    # Figure 7, speeds; those above 1 read off it
DIFFUSPEC_ROUND, SPS_ROUND = RoundTime(1.6, 2.13, 0.03), RoundTime(4.1, 2.02)          # Figure 6
INDEPENDENT: Mapping[str, Said] = {                # GSM8K, 10 prompts; its files leave the own token out: + 1
    "full method, Qwen2.5-32B-Instruct, generic word trigram": Said(3.79 + 1, 1.72),
    "best words of 6 slots, no search, no controller, Qwen2.5-32B": Said(3.77 + 1, 1.95)}


def plain_step(said: Said, took: RoundTime) -> float:
    """The time of a plain step that a printed row implies, in the unit of `took`."""
    return said.speed * took.whole / said.tokens


STEPS = plain_step(ABLATION[BOTH], DIFFUSPEC_ROUND), plain_step(SPS, SPS_ROUND)        # 1.657 and 1.654
STEP = sum(STEPS) / 2


def predicted(tokens: float, forwards: float = 1.0, searched: bool = True) -> float:
    """Times plain decoding that `tokens` a round would give the paper's pair, by the ratios of its Figure 6.

    `forwards` of the drafter per round, 0 for one that costs nothing. A prediction: it carries our acceptance over to
    their models and prices a verification as theirs, whose drafts were longer than ours; see `at_best`.
    """
    parts = DIFFUSPEC_ROUND
    return tokens * STEP / (parts.verify + forwards * parts.draft + searched * parts.search)


def at_best(tokens: float, forwards: float = 1.0, searched: bool = True) -> float:
    """The same, if verifying a draft cost no more than a plain step."""
    return tokens * STEP / (STEP + forwards * DIFFUSPEC_ROUND.draft + searched * DIFFUSPEC_ROUND.search)


def break_even(searched: bool = True) -> float:
    """Tokens a round from which the paper's pair would gain anything."""
    return 1 / predicted(1.0, searched=searched)
