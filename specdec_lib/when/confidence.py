"""Confidence: stop drafting once the drafter was unsure of the token it just drew.

Source: transformers' `assistant_confidence_threshold` (default 0.4) [read in its code]. The chance is of the raw
softmax at temperature 1, there of what the logits processors leave. The unsure token itself stays in the draft, so the
rule is lossless when sampling as well. `of="best"` looks at the drafter's best token instead, TapOut's MaxConf.

`refit` is transformers' dynamic threshold: over the drafted tokens of this answer that were judged, kept or the first
refused, the one of least FPR + 3 FNR is taken; with fewer than six, or without both kinds, the given one holds. There
the lists grow on, here 2,000 count. Whether the last threshold starts the next prompt differs between its releases (in
5.23 it does not); `remember` does so, but for the last round of a decode, after which nobody asks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby

from specdec_lib.memory.value import carried_value
from specdec_lib.types import ROOT, Budget, Card, Kit, Refusal, Round, Session, Trail

KINDS = ("drawn", "best")
FEWEST, MOST = 6, 2000                             # judged tokens that a threshold is fitted to


@dataclass(frozen=True)
class Unsure:
    """Stop where the last token's chance, or the best one's of its row, fell below the threshold."""

    threshold: float
    of: str = "drawn"

    def __call__(self, trail: Trail) -> bool:
        return bool(trail) and (trail[-1].first if self.of == "best" else trail[-1].prob) < self.threshold


@dataclass(frozen=True)
class Confidence:
    """Up to `depth` tokens, fewer where the drafter is unsure."""

    depth: int
    threshold: float = 0.4
    of: str = "drawn"                              # "best": the chance of the drafter's best token
    refit: bool = False                            # to what was kept and refused so far
    miss: float = 3.0                              # FNR's weight beside FPR's: stopping before a token that was right

    def __post_init__(self):
        if not 0 <= self.threshold <= 1:
            raise Refusal(f"threshold is a chance between 0 and 1, got {self.threshold}")
        if self.of not in KINDS or not self.miss >= 0:
            raise Refusal(f"of is one of {', '.join(KINDS)} and miss zero or more, got {self.of!r} and {self.miss}")

    def __call__(self, session: Session, dice) -> Budget:
        return Budget(self.depth, stop=Unsure(self.after(self.threshold, session), self.of))

    def after(self, threshold: float, session: Session) -> float:
        """The threshold that a decode which began with `threshold` has come to."""
        if not self.refit:
            return threshold
        found = fitted([pair for round in session.rounds for pair in judged(round, self.of)][-MOST:], self.miss)
        return threshold if found is None else found


def judged(round: Round, of: str = "drawn") -> list[tuple[float, bool]]:
    """(chance, kept?) of the accepted path and of the first token that was refused; nothing without sights."""
    draft, path = round.draft, round.verdict.path
    if not draft.stats:
        return []
    ended = len(round.verdict.tokens) == len(path)                 # the loop cut it there: no one was refused
    refused = () if ended else draft.children.get(path[-1] if path else ROOT, ())[:1]
    stats = [(draft.stats[node], node in path) for node in (*path, *refused)]
    return [(seen.first if of == "best" else seen.prob, kept) for seen, kept in stats]


def fitted(seen: list[tuple[float, bool]], miss: float = 3.0) -> float | None:
    """The threshold of least FPR + miss * FNR, the highest of several; None for few tokens or without both kinds."""
    right = sum(kept for _, kept in seen)
    wrong = len(seen) - right
    if len(seen) < FEWEST or not right or not wrong:
        return None
    passed, costs = [0, 0], {}                     # refused and kept tokens at or above the threshold
    for prob, same in groupby(sorted(seen, reverse=True), key=lambda pair: pair[0]):
        for _, kept in same:
            passed[kept] += 1
        costs[prob] = passed[0] / wrong + miss * (1 - passed[1] / right)
    return min(costs, key=costs.__getitem__)


def make(kit: Kit, depth: int | None = None, threshold: float = 0.4, of: str = "drawn", refit: bool = False,
         miss: float = 3.0, remember: bool = False) -> Confidence:
    """Depth defaults to the nodes that the cost curve allows; `remember` takes a refitted threshold across prompts."""
    if remember and not refit:
        raise Refusal("remember carries a threshold that refit has found: ask for refit=True as well")
    rule = Confidence(kit.nodes if depth is None else depth, threshold, of, refit, miss)
    if not remember:
        return rule
    return replace(rule, threshold=carried_value(kit, f"confidence {threshold} {of} {miss}", threshold, rule.after))


CARD = Card("confidence", idea="stop where the drafter is unsure", source="transformers, confidence threshold",
            make=make, notebook="17_when_confidence", learns_across_prompts=True)
