"""Sampled chains: several chains drawn through the slots of one diffusion draft, merged into one trie.

Source: SpecDiff-2 (arXiv 2511.00606, algorithm 1): K chains, drawn independently from the marginals of one denoising
step at a temperature between 1 and 2, and one of them chosen afterwards (`how/self_selection`). They cost the drafter
the one forward that a single chain costs; the target's forward grows with the trie. Slots know nothing of each other,
so a chain may begin one sentence and go on with another, and further chains make up for it only where a slot's second
guess is right.

Two published choices are parameters. The first chain takes the best token of every slot (`best`), at temperature 0 as
the paper's draft temperature near 0 does, and above it, since a certain node is kept with the target's own chance of
it and no drawn token can beat the best guess; `best=False` draws all. Candidates are the `top` of each slot, 64 in the
published code. As many chains are drawn as the budget is wide, and equal beginnings are merged, so every node is
certain. The coins are the drafter's own, since at temperature 0 the loop's refuse to be thrown; keyed by seed, text
and position they fall alike whenever the same session is asked about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp
from typing import Protocol

import torch

from specdec_lib.dice import Dice
from specdec_lib.lattice import at_hand
from specdec_lib.scores import Distribution, TokenStats
from specdec_lib.trees import deterministic_tree, with_notes
from specdec_lib.types import Budget, Card, Draft, Kit, Lattice, Refusal, Session

NAME = "sampled-chains"
Chain = tuple[int, ...]


class SlotDrafter(Protocol):
    """A drafter that shows the candidates of its slots, as many slots as it has and candidates as it keeps."""

    def lattice(self, session: Session, depth: int, top: int) -> Lattice: ...


@dataclass(frozen=True)
class SampledChains:
    """The trie of `budget.width` chains through the slots of `drafter`, in the order drawn, until the nodes are used.

    Belief and sight of a node are its slot's: the raw chance of the token, whatever the draft's `temperature`. The
    stop rule hears the first chain and cuts all of them at its depth.
    """

    drafter: SlotDrafter
    temperature: float = 1.0                       # of the draws; the paper has 1 to 2, the more chains the higher
    top: int = 64                                  # candidates of each slot
    best: bool = True                              # the first chain is not drawn but takes each slot's best token
    seed: int = 0

    def __post_init__(self):
        if self.temperature < 0 or self.top < 1:
            raise Refusal(f"chains are drawn at temperature 0 or more from 1 candidate or more, got {self.temperature}"
                          f" and {self.top}")

    def __call__(self, session: Session, budget: Budget, dice) -> Draft:
        depth = min(budget.depth, budget.size)
        if depth < 1:
            return Draft()
        slots = shown(self.drafter.lattice(session, depth, self.top))
        chains = self.chains(session, slots, budget.width)
        reach = reach_of(slots, ended(chains[0], session.end), budget)
        trie = deterministic_tree([ended(chain[:reach], session.end) for chain in chains], budget.size, NAME)
        stats = tuple(seen(slots[at - 1], token) for at, token in zip(trie.depths, trie.tokens, strict=True))
        draft = replace(trie, stats=stats, confidence=tuple(stat.prob for stat in stats))
        unseen = self.drafter.unseen(session, depth) if hasattr(self.drafter, "unseen") else 0
        return with_notes(draft, unseen=unseen) if unseen else draft

    def chains(self, session: Session, slots: Sequence[Slot], count: int) -> list[Chain]:
        """`count` chains of one token a slot, drawn apart from each other."""
        own = Dice(self.seed).aside().fork("chains", session.id, session.prompt, len(session.tokens))
        dists = [slot.distribution(self.temperature) for slot in slots]
        drawn = [tuple(own.fork(k, at).choose(dist) for at, dist in enumerate(dists)) for k in range(count)]
        return [tuple(slot.ids[0] for slot in slots), *drawn[1:]] if self.best else drawn


@dataclass(frozen=True)
class Slot:
    """Candidates of one slot, best first, with raw log-probabilities."""

    ids: tuple[int, ...]
    logp: tuple[float, ...]

    def distribution(self, temperature: float) -> Distribution:
        """The law of the candidates at this temperature; certain at 0."""
        if temperature == 0:
            return Distribution.point_mass(self.ids[0])
        return Distribution(torch.tensor(self.ids),
                            torch.softmax(torch.tensor(self.logp, dtype=torch.float64) / temperature, 0))


def shown(lattice: Lattice) -> list[Slot]:
    """The slots of a lattice, in one transfer."""
    near = at_hand(lattice)
    return [Slot(tuple(ids), tuple(logp)) for ids, logp in zip(near.ids.tolist(), near.logp.tolist(), strict=True)]


def seen(slot: Slot, token: int) -> TokenStats:
    """The sight of `token` in its slot; in the entropy all that is no candidate counts as one."""
    probs = [exp(logp) for logp in slot.logp]
    rest = max(0.0, 1.0 - sum(probs))
    entropy = float(torch.special.entr(torch.tensor([*probs, rest], dtype=torch.float64)).sum())
    second = probs[1] if len(probs) > 1 else 0.0
    return TokenStats(probs[slot.ids.index(token)], probs[0], second, entropy)


def ended(chain: Chain, end: frozenset[int]) -> Chain:
    """The chain up to its first end token."""
    return chain[:next((place for place, token in enumerate(chain, 1) if token in end), len(chain))]


def reach_of(slots: Sequence[Slot], chain: Chain, budget: Budget) -> int:
    """How deep the stop rule lets the draft go, by the sights of this chain; all the way without a rule."""
    if budget.stop is None:
        return len(slots)
    trail = tuple(seen(slot, token) for slot, token in zip(slots, chain, strict=False))
    return next((depth for depth in range(1, len(trail) + 1) if budget.stop(trail[:depth])), len(slots))


def make(kit: Kit, drafter: str = "diffusion-lm", settings: Mapping | None = None, temperature: float = 1.0,
         top: int = 64, best: bool = True, seed: int = 0) -> SampledChains:
    """`settings` are parameters of the `drafter`, which may be any that shows its lattice."""
    slots = kit.part(drafter, **(settings or {}))
    if not hasattr(slots, "lattice"):
        raise Refusal(f"chains are drawn through the slots of a lattice, and {drafter} shows none: take diffusion-lm"
                      " or block-diffusion")
    return SampledChains(slots, temperature, top, best, seed)


CARD = Card(NAME, idea="several chains drawn through the slots of one diffusion draft", source="SpecDiff-2, "
            "arXiv 2511.00606", make=make, parts=("diffusion-lm",), notebook="35_how_self_selection")
