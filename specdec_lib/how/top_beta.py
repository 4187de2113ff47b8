"""Top-beta: a drafted token is accepted if it is among the target's best few and its logit is close to the best one.

Source: the verification of SpecDec (Xia et al. 2023, arXiv 2203.16487; its code). A token passes if it is among the
`beta` best and its raw logit lies at most `tolerance` (the paper's tau) below the best one; after the path follows the
target's own best token. The test does not depend on a temperature. Above 0, where the paper is silent, a draw from the
distribution that is sampled from follows. The paper verifies one block; in a tree the longest path is kept, of equals
the likeliest, then the first. An end token is tested like any other.

Not lossless. With beta = 1 it emits greedy decoding's tokens at temperature 0, ties or not: of tied tokens the one that
the target names ranks first, and it alone passes. With tolerance = 0 a token tied with the best passes as well (bf16
sometimes ties), so the output is greedy up to the choice between tied tokens. Above temperature 0 neither is lossless,
because the best token then passes with probability 1 where the target has p.

The same as `RankMargin(beta, exp(-tolerance))` with one difference: the gap is taken of logits, so one of exactly
`tolerance` passes. In bf16 they lie on a grid of 1/8 or so, and such gaps are common.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from specdec_lib.acceptance import RankMargin, TargetStanding, top_beta
from specdec_lib.cards import Card, Kit
from specdec_lib.scores import Scores
from specdec_lib.trees import Path, longest_path, passing_paths
from specdec_lib.types import ROOT, Draft, RandomNumbers, Session, Verdict


@dataclass(frozen=True)
class TopBeta:
    """Keeps the longest path of tokens that pass the rule, followed by the target's own token."""

    rule: RankMargin = field(default_factory=top_beta)

    def __call__(self, session: Session, draft: Draft, scores: Scores, dice: RandomNumbers) -> Verdict:
        path = longest_path(draft, scores, self.paths(draft, scores))
        dist = scores.distribution((path[-1] if path else ROOT) + 1, session.sampling)
        return Verdict.of(draft, path, dice.at(len(session.tokens) + len(path)).choose(dist))

    def paths(self, draft: Draft, scores: Scores) -> list[Path]:
        """Every path on which all tokens pass, the empty one first."""
        best = top_standings(scores, self.rule.rank) if len(draft) else ()

        def test(state: bool, node: int) -> bool | None:
            found = best[draft.parents[node] + 1].get(draft.tokens[node])
            return True if found is not None and self.rule(found) else None

        return [path for path, _ in passing_paths(draft, True, test)]


def top_standings(scores: Scores, beta: int) -> list[Mapping[int, TargetStanding]]:
    """Standings of the best tokens of each row, `beta` at least; probabilities relative to the best, entropy unknown.

    The first is the token that the target itself would choose, which a sorted list may miss in a tie.
    """
    row_stats = scores.row_stats(k=beta)
    rows = []
    for first, ids, logits in zip(scores.best, row_stats.ids.tolist(), row_stats.logits.tolist(), strict=True):
        shares = {token: math.exp(logit - logits[0]) for token, logit in zip(ids, logits, strict=True)}
        order = [first, *(token for token in ids if token != first)]
        rows.append({token: TargetStanding(shares.get(token, 1.0), 1.0, rank, math.nan)
                     for rank, token in enumerate(order, 1)})
    return rows


def make(kit: Kit, beta: int = 3, tolerance: float = 1.0) -> TopBeta:
    """The paper's main setting, as far as we know it without its text: three tokens, a gap of one nat.

    Its published script runs beta = 5 and tolerance = 3, for blocks of 25 tokens, and its command line has the defaults
    beta = 1 and tolerance = 0. Of the two lossy settings this is the stricter one: a gap of one nat is a third of the
    best one's probability, three nats are a twentieth.
    """
    return TopBeta(top_beta(beta, tolerance))


CARD = Card("top-beta", idea="accept a drafted token among the target's best few and close to the best",
            source="SpecDec, arXiv 2203.16487", make=make, lossless=False, notebook="36_how_top_beta")
