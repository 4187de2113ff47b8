"""Match: draw each token from the target itself and keep going while the draft happens to hold it.

Source: the point-mass case of speculative sampling; transformers and Spec-Bench's retrieval methods verify like this.
The emitted token is always the target's own draw, so nothing about the draft can bend the law, not even a broken
promise of `q`. With coins keyed by position the output is plain decoding's, token for token, at any temperature.
Accepts a sampled draft less often than `rejection` does: with chance sum p q instead of sum min(p, q).
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec_lib.scores import Scores
from specdec_lib.types import ROOT, Card, Draft, Session, Verdict


@dataclass(frozen=True)
class Match:
    """Walks down the tree along the target's own draws."""

    def __call__(self, session: Session, draft: Draft, scores: Scores, dice) -> Verdict:
        path: list[int] = []
        node = ROOT
        while True:
            place = len(session.tokens) + len(path)
            token = dice.at(place).choose(scores.distribution(node + 1, session.sampling))
            node = next((child for child in draft.children.get(node, ()) if draft.tokens[child] == token), ROOT)
            if node == ROOT:
                return Verdict.of(draft, tuple(path), token)
            path.append(node)


CARD = Card("match", idea="draw from the target, keep while the draft matches", source="Saxena 2023; Spec-Bench",
            make=lambda kit: Match(), notebook="31_how_match")
