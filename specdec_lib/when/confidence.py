"""Confidence: stop drafting once the drafter gave the token it just drew a low probability.

Source: transformers' `assistant_confidence_threshold` (default 0.4) [read in its code]. The probability is that of the
raw softmax at temperature 1, or with `eagle2` its score, sharpened and counted where decoding is greedy; transformers
takes it after its logits processors. The low-confidence token stays in the draft, so the rule is lossless when sampling
as well. `of="best"` tests the drafter's best token instead (TapOut's MaxConf). Cost: no model pass.

`refit` is transformers' dynamic threshold. Over the verified draft tokens of this answer (accepted, or the first
rejected of a round) it takes the threshold of least FPR + 3 FNR; with fewer than six such tokens, or without both
kinds, the given threshold holds. In transformers the lists grow without bound; here the last 2,000 tokens count.
Whether the last threshold starts the next prompt differs between its releases (in 5.23 it does not). `remember` carries
it over; the last round of a decode counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from specdec_lib.cards import Card, Kit
from specdec_lib.memory.value import carried_value
from specdec_lib.running_fold import RunningFold
from specdec_lib.types import ROOT, Budget, RandomNumbers, Refusal, Round, Session, Trail

KINDS = ("drawn", "best")
FEWEST, MOST = 6, 2000                             # verified tokens that a threshold is fitted to
Seen = tuple[tuple[float, bool], ...]              # of each, its probability and whether it was accepted


@dataclass(frozen=True)
class BelowConfidence:
    """Stop where the probability of the last token, or of the best one in its row, is below the threshold."""

    threshold: float
    of: str = "drawn"

    def __call__(self, trail: Trail) -> bool:
        return bool(trail) and (trail[-1].first if self.of == "best" else trail[-1].prob) < self.threshold


@dataclass(frozen=True)
class Confidence:
    """Up to `depth` tokens, fewer where the drafter's confidence is low."""

    depth: int
    threshold: float = 0.4
    of: str = "drawn"                              # "best": the probability of the drafter's best token
    refit: bool = False                            # to the accepted and rejected tokens so far
    miss: float = 3.0                              # weight of a right token stopped, over a wrong one passed
    fold: RunningFold = field(default_factory=RunningFold, init=False, repr=False, compare=False)

    def __post_init__(self):
        Budget(self.depth)                         # refuses an impossible depth before the first round
        if not 0 <= self.threshold <= 1:
            raise Refusal(f"threshold must be a probability between 0 and 1, got {self.threshold}")
        if self.of not in KINDS or not self.miss >= 0:
            raise Refusal(f"of must be one of {', '.join(KINDS)} and miss zero or more, "
                          f"got {self.of!r} and {self.miss}")

    def __call__(self, session: Session, dice: RandomNumbers) -> Budget:
        return Budget(self.depth, stop=BelowConfidence(self.after(self.threshold, session), self.of))

    def after(self, threshold: float, session: Session) -> float:
        """The threshold at the end of a decode that began with `threshold`."""
        if not self.refit:
            return threshold
        found = fit_threshold(self.fold(self.next, session.rounds, ()), self.miss)
        return threshold if found is None else found

    def next(self, seen: Seen, round: Round) -> Seen:
        """The last verified tokens after one more round."""
        return (*seen, *verified_tokens(round, self.of))[-MOST:]


def verified_tokens(round: Round, of: str = "drawn") -> list[tuple[float, bool]]:
    """(probability, accepted?) of the accepted path and the first rejected token; empty without token statistics."""
    draft, path = round.draft, round.verdict.path
    if not draft.stats:
        return []
    ended = len(round.verdict.tokens) == len(path)                 # the loop cut the path there: nothing was rejected
    rejected = () if ended else draft.children.get(path[-1] if path else ROOT, ())[:1]
    stats = [(draft.stats[node], node in path) for node in (*path, *rejected)]
    return [(stat.first if of == "best" else stat.prob, kept) for stat, kept in stats]


def fit_threshold(seen: Sequence[tuple[float, bool]], miss: float = 3.0) -> float | None:
    """The threshold of least FPR + miss * FNR, the highest of equals; None for few tokens or without both kinds."""
    right = sum(kept for _, kept in seen)
    wrong = len(seen) - right
    if len(seen) < FEWEST or not right or not wrong:
        return None
    passed, costs = [0, 0], {}                     # rejected and accepted tokens at or above the threshold
    for prob, same in groupby(sorted(seen, reverse=True), key=lambda pair: pair[0]):
        for _, kept in same:
            passed[kept] += 1
        costs[prob] = passed[0] / wrong + miss * (1 - passed[1] / right)
    return min(costs, key=costs.__getitem__)


def make(kit: Kit, depth: int | None = None, threshold: float = 0.4, of: str = "drawn", refit: bool = False,
         miss: float = 3.0, remember: bool = False) -> Confidence:
    """Depth defaults to the nodes that the cost curve allows; `remember` carries the threshold across prompts."""
    if remember and not refit:
        raise Refusal("remember carries over a refitted threshold: it needs refit=True")
    rule = Confidence(kit.nodes if depth is None else depth, threshold, of, refit, miss)
    if not remember:
        return rule
    return replace(rule, threshold=carried_value(kit, f"confidence {threshold} {of} {miss}", threshold, rule.after))


CARD = Card("confidence", idea="stop where the drafter's confidence is low",
            source="transformers, confidence threshold", make=make, notebook="17_when_confidence",
            learns_across_prompts=True)
