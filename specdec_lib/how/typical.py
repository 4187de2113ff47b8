"""Typical: a drafted token stands if the target finds it likely enough, however the target would have chosen.

Source: typical acceptance of Medusa (Cai et al. 2024, arXiv 2401.10774; its code). A token passes if, in the law that
is sampled from, p(x) > min(eps, delta exp(-H)), strictly. Kept is the longest path of tokens that pass, of equals the
one with the largest summed log p of that law, then the first. No q is read and no coin is thrown for a drafted token.

Not lossless above temperature 0: a chain of one token x that passes emits x with chance 1 where the target has p(x), so
it is off the target's law by 1 - p(x); drawn from q, by as much as (q on what passes + p times the chance of the rest)
is off p. At temperature 0 the law is certain, H = 0, only the best token passes: it keeps what `match` keeps, and both
bounds would have to be 1 for nothing to pass. An end token is judged like any other.

Traps. Medusa's code takes H with log(p + 1e-5), so a long tail counts less and its bound lies higher; we take H. Some
of its functions carry the two defaults the other way round; its generation runs with these. Top-k and top-p are part of
the law here, for a serving that forbids a token should not get it from a draft; Medusa's rule knows temperature alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache

from specdec_lib.acceptance import Typical, entropy_nats, standings
from specdec_lib.scores import Distribution, Scores
from specdec_lib.trees import Path, passing_paths
from specdec_lib.types import ROOT, Card, Draft, Kit, Refusal, Session, Verdict

EXTRA = ("draw", "best", "typical")


@dataclass(frozen=True)
class TypicalAcceptance:
    """Keeps the longest path of typical tokens; `extra` says what follows it."""

    rule: Typical = field(default_factory=Typical)
    extra: str = "draw"

    def __call__(self, session: Session, draft: Draft, scores: Scores, dice) -> Verdict:
        found = self.paths(session, draft, scores)
        path = max(found, key=lambda some: (len(some), found[some]))
        dist = scores.distribution((path[-1] if path else ROOT) + 1, session.sampling)
        if self.extra == "best":
            dist = Distribution.point_mass(scores.best[(path[-1] if path else ROOT) + 1])
        if self.extra == "typical":
            dist = truncated(dist, self.rule)
        return Verdict.of(draft, path, dice.at(len(session.tokens) + len(path)).choose(dist))

    def paths(self, session: Session, draft: Draft, scores: Scores) -> dict[Path, float]:
        """Every path on which all tokens pass, with their summed log-chance; the empty one is always there."""
        @cache
        def below(parent: int) -> dict[int, float]:
            nodes = draft.children[parent]
            seen = standings(scores.distribution(parent + 1, session.sampling), [draft.tokens[node] for node in nodes])
            return {node: math.log(one.prob) for node, one in zip(nodes, seen, strict=True) if self.rule(one)}

        def test(logp: float, node: int) -> float | None:
            own = below(draft.parents[node]).get(node)
            return None if own is None else logp + own

        return dict(passing_paths(draft, 0.0, test))


def truncated(dist: Distribution, rule: Typical) -> Distribution:
    """The law of the tokens that pass, rescaled; of its best token where none does."""
    keep = dist.probs > rule.bound(entropy_nats(dist))
    if dist.only is not None or not keep.any():
        return Distribution.point_mass(int(dist.ids[dist.probs.argmax()]))
    return Distribution(dist.ids[keep], dist.probs[keep] / dist.probs[keep].sum())


def make(kit: Kit, eps: float = 0.09, delta: float = 0.3, extra: str = "draw") -> TypicalAcceptance:
    """`extra`, the token after the path, is a `draw` from the target's law, its `best` or a `typical` draw.

    The first is ours: where nothing drafted passes, the output is the target's. Medusa's fast mode takes the best token
    at any temperature, and otherwise a draw from the tokens that pass. eps and delta are what Medusa generates with; it
    recommends delta = sqrt(eps).
    """
    if extra not in EXTRA:
        raise Refusal(f"extra is one of {', '.join(EXTRA)}, got {extra!r}")
    return TypicalAcceptance(Typical(eps, delta), extra)


CARD = Card("typical", idea="a drafted token stands if the target finds it likely enough; match at temperature 0",
            source="Medusa, arXiv 2401.10774", make=make, lossless=False, notebook="32_how_typical")
