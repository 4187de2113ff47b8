"""Match: draw each token from the target itself and keep going while the draft holds the same token.

Source: the point-mass case of speculative sampling; transformers and Spec-Bench's retrieval methods verify like this.
The emitted token is always the target's own draw, so no draft changes the distribution of the output, not even one that
breaks its promise of `q`. With random numbers keyed by position the output equals plain decoding's, token for token, at
any temperature. With independent random numbers for draft and target, a sampled draft is accepted less often than
under `rejection`: with probability sum p q instead of sum min(p, q).

`SharedNoise` gives draft and target the same Gumbel noise instead (Daliri et al. 2025, arXiv 2408.07978): each takes
argmax(log prob + noise), so equal distributions always match. The output stays exact and independent of the drafter,
because the noise of a position is used for one emitted token only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from specdec_lib.cards import Card
from specdec_lib.dice import Dice
from specdec_lib.lazy import torch
from specdec_lib.scores import Categorical, Scores
from specdec_lib.types import ROOT, Draft, RandomNumbers, Session, Verdict


@dataclass(frozen=True)
class Match:
    """Walks down the tree along the target's own draws."""

    def __call__(self, session: Session, draft: Draft, scores: Scores, dice: RandomNumbers) -> Verdict:
        path: list[int] = []
        node = ROOT
        while True:
            position = len(session.tokens) + len(path)
            token = dice.at(position).choose(scores.distribution(node + 1, session.sampling))
            node = next((child for child in draft.children.get(node, ()) if draft.tokens[child] == token), ROOT)
            if node == ROOT:
                return Verdict.of(draft, tuple(path), token)
            path.append(node)


@dataclass(frozen=True)
class SharedNoise(Dice):
    """Dice for `Match` whose draft and target draw with the same Gumbel noise at each position.

    Give them to the loop in place of `Dice`, with no other rule: a rule that tests a drafted token is proven lossless
    only for random numbers that are independent of the draft.
    """

    def fork(self, *key) -> SharedNoise:
        return replace(self, key=() if key == ("what",) else self.key + key)    # the drafter's are the target's

    def choose(self, dist: Categorical) -> int:
        """argmax(log p + Gumbel noise), as the argmin of exponential noise / p; a point mass uses no noise."""
        if dist.only is not None:
            return dist.only
        generator = torch.Generator().manual_seed(self._generator.getrandbits(63))
        noise = -torch.rand(int(dist.ids.max()) + 1, generator=generator, dtype=torch.float64).log()    # by token id
        return int(dist.ids[(noise.to(dist.ids.device)[dist.ids] / dist.probs.double()).argmin()])


def shared_noise_acceptance(p: torch.Tensor, q: torch.Tensor) -> float:
    """Exact probability that draws from `p` and `q` [V] agree under shared Gumbel noise.

    At least (1 - TV) / (1 + TV), while the best coupling has 1 - TV (Daliri et al. 2025).
    """
    each = ((dist / dist[:, None]).nan_to_num(0, inf) for dist in (p, q))       # [x, y]; 0 / 0 where neither is drawn
    ratio = torch.maximum(*each)                   # how much faster than x the other token y is
    return float((1 / ratio.sum(1)).sum())


CARD = Card("match", idea="draw from the target, keep while the draft matches", source="Saxena 2023; Spec-Bench",
            make=lambda kit: Match(), notebook="31_how_match")
