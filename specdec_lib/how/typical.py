"""Typical: a drafted token is accepted if the target finds it likely enough, whatever the target would have drawn.

Source: typical acceptance of Medusa (Cai et al. 2024, arXiv 2401.10774; its code). A token passes if, in the
distribution that is sampled from, p(x) > min(eps, delta exp(-H)), strictly. The longest path of tokens that pass is
kept, of equals the one with the largest summed log p, then the first. A drafted token needs no q and no random number.

Not lossless above temperature 0: a chain of one token x that passes emits x with probability 1 where the target has
p(x), so it is off the target by 1 - p(x); drawn from q, by as much as (q on what passes + p times the probability of
the rest) is off p. At temperature 0 the distribution is a point mass, H = 0, only the best token passes: it keeps what
`match` keeps, and both bounds would have to be 1 for nothing to pass. An end token is tested like any other.

Traps. Medusa's code takes H with log(p + 1e-5), so a long tail counts less and its bound lies higher; we take H. Some
of its functions have the two defaults the other way round; its generation runs with these. Top-k and top-p are part of
the distribution here, so that a draft cannot emit a token that the session forbids; Medusa's rule uses temperature
alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache

from specdec_lib.acceptance import Typical, entropy_nats, standings
from specdec_lib.cards import Card, Kit
from specdec_lib.scores import Categorical, Scores
from specdec_lib.trees import Path, passing_paths
from specdec_lib.types import ROOT, Draft, RandomNumbers, Refusal, Session, Verdict

EXTRA = ("draw", "best", "typical")


@dataclass(frozen=True)
class TypicalAcceptance:
    """Keeps the longest path of typical tokens; `extra` says what follows it."""

    rule: Typical = field(default_factory=Typical)
    extra: str = "draw"

    def __call__(self, session: Session, draft: Draft, scores: Scores, dice: RandomNumbers) -> Verdict:
        found = self.paths(session, draft, scores)
        path = max(found, key=lambda some: (len(some), found[some]))
        dist = scores.distribution((path[-1] if path else ROOT) + 1, session.sampling)
        if self.extra == "best":
            dist = Categorical.point_mass(scores.best[(path[-1] if path else ROOT) + 1])
        if self.extra == "typical":
            dist = truncated(dist, self.rule)
        return Verdict.of(draft, path, dice.at(len(session.tokens) + len(path)).choose(dist))

    def paths(self, session: Session, draft: Draft, scores: Scores) -> dict[Path, float]:
        """Every path on which all tokens pass, with its summed log-probability; the empty one is always there."""
        @cache
        def below(parent: int) -> dict[int, float]:
            nodes = draft.children[parent]
            dist = scores.distribution(parent + 1, session.sampling)
            stands = standings(dist, [draft.tokens[node] for node in nodes])
            return {node: math.log(one.prob) for node, one in zip(nodes, stands, strict=True) if self.rule(one)}

        def test(logp: float, node: int) -> float | None:
            own = below(draft.parents[node]).get(node)
            return None if own is None else logp + own

        return dict(passing_paths(draft, 0.0, test))


def truncated(dist: Categorical, rule: Typical) -> Categorical:
    """`dist` restricted to the tokens that pass, rescaled; a point mass on its best token where none does."""
    keep = dist.probs > rule.bound(entropy_nats(dist))
    if dist.only is not None or not keep.any():
        return Categorical.point_mass(int(dist.ids[dist.probs.argmax()]))
    return Categorical(dist.ids[keep], dist.probs[keep] / dist.probs[keep].sum())


def make(kit: Kit, eps: float = 0.09, delta: float = 0.3, extra: str = "draw") -> TypicalAcceptance:
    """`extra`, the token after the path, is a `draw` from the target, its `best` token or a `typical` draw.

    The first is ours: where nothing drafted passes, the output is the target's. Medusa's fast mode takes the best token
    at any temperature, and otherwise a draw from the tokens that pass. eps and delta are what Medusa generates with; it
    recommends delta = sqrt(eps).
    """
    if extra not in EXTRA:
        raise Refusal(f"extra is one of {', '.join(EXTRA)}, got {extra!r}")
    return TypicalAcceptance(Typical(eps, delta), extra)


CARD = Card("typical", idea="accept a drafted token that the target finds likely enough; match at temperature 0",
            source="Medusa, arXiv 2401.10774", make=make, lossless=False, notebook="32_how_typical")
