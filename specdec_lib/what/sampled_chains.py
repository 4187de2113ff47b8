"""Sampled chains: several chains drawn through the slots of one diffusion draft, merged into one trie.

Source: SpecDiff-2 (arXiv 2511.00606, algorithm 1): K chains, drawn independently from the marginals of one denoising
step at a temperature between 1 and 2; one of them is chosen afterwards (`how/self_selection`). Slots are independent of
each other, so a chain can mix the tokens of two sentences, and further chains help only where the second-best token of
a slot is right. Cost: one forward of the drafter, whatever the number of chains; the target's forward grows with the
trie.

Two published choices are parameters. With `best`, the first chain takes the best token of every slot: at temperature 0
as the paper's draft temperature near 0 does, and above it because a deterministic node is accepted with the target's
own probability, so no drawn token beats the best one; `best=False` draws all chains. Candidates are the `top` of each
slot, 64 in the published code. The budget's width is the number of chains. Equal beginnings are merged, so every node
is deterministic. The drafter has its own random numbers, because at temperature 0 the loop's dice raise an error on a
draw; they are keyed by seed, text and position, so the same session always gets the same draft.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp
from typing import Protocol

from specdec_lib.cards import Card, Kit
from specdec_lib.dice import Dice
from specdec_lib.lattice import to_host
from specdec_lib.lazy import torch
from specdec_lib.scores import Categorical, TokenStats
from specdec_lib.trees import deterministic_tree, with_notes
from specdec_lib.types import Budget, Draft, Lattice, RandomNumbers, Refusal, Session, up_to_end

NAME = "sampled-chains"
Chain = tuple[int, ...]


class SlotDrafter(Protocol):
    """A drafter with a lattice: the candidates of as many slots as it has."""

    def lattice(self, session: Session, depth: int, top: int) -> Lattice: ...


@dataclass(frozen=True)
class SampledChains:
    """The trie of `budget.width` chains through the slots of `drafter`, in the order drawn, until the nodes are used.

    Confidence and statistics of a node are those of its slot: the raw probability of the token, at any `temperature`.
    The stop rule is called with the first chain and cuts all chains at its depth.
    """

    drafter: SlotDrafter
    temperature: float = 1.0                       # of the draws; the paper has 1 to 2, higher for more chains
    top: int = 64                                  # candidates of each slot
    best: bool = True                              # the first chain takes each slot's best token
    seed: int = 0

    def __post_init__(self):
        if self.temperature < 0 or self.top < 1:
            raise Refusal(f"temperature must be 0 or more and top at least 1, got {self.temperature} and {self.top}")

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        depth = min(budget.depth, budget.size)
        if depth < 1:
            return Draft()
        slots = slots_of(self.drafter.lattice(session, depth, self.top))
        chains = self.chains(session, slots, budget.width)
        reach = stop_depth(slots, up_to_end(chains[0], session.end), budget)
        trie = deterministic_tree([up_to_end(chain[:reach], session.end) for chain in chains], budget.size, NAME)
        stats = tuple(slot_stats(slots[at - 1], token) for at, token in zip(trie.depths, trie.tokens, strict=True))
        draft = replace(trie, stats=stats, confidence=tuple(stat.prob for stat in stats))
        count = getattr(self.drafter, "unseen", None)
        unseen = count(session, depth) if count else 0
        return with_notes(draft, unseen=unseen) if unseen else draft

    def chains(self, session: Session, slots: Sequence[Slot], count: int) -> list[Chain]:
        """`count` chains of one token per slot, drawn independently."""
        own = Dice(self.seed).aside().fork("chains", session.id, session.prompt, len(session.tokens))
        dists = [slot.distribution(self.temperature) for slot in slots]
        drawn = [tuple(own.fork(k, at).choose(dist) for at, dist in enumerate(dists)) for k in range(count)]
        return [tuple(slot.ids[0] for slot in slots), *drawn[1:]] if self.best else drawn


@dataclass(frozen=True)
class Slot:
    """Candidates of one slot, best first, with raw log-probabilities."""

    ids: tuple[int, ...]
    logp: tuple[float, ...]

    def distribution(self, temperature: float) -> Categorical:
        """The distribution of the candidates at this temperature; one token at 0."""
        if temperature == 0:
            return Categorical.point_mass(self.ids[0])
        return Categorical(torch.tensor(self.ids),
                           torch.softmax(torch.tensor(self.logp, dtype=torch.float64) / temperature, 0))


def slots_of(lattice: Lattice) -> list[Slot]:
    """The slots of a lattice, in one transfer."""
    host = to_host(lattice)
    return [Slot(tuple(ids), tuple(logp)) for ids, logp in zip(host.ids.tolist(), host.logp.tolist(), strict=True)]


def slot_stats(slot: Slot, token: int) -> TokenStats:
    """Statistics of `token` in its slot; the entropy counts the mass outside the candidates as one token."""
    probs = [exp(logp) for logp in slot.logp]
    rest = max(0.0, 1.0 - sum(probs))
    entropy = float(torch.special.entr(torch.tensor([*probs, rest], dtype=torch.float64)).sum())
    second = probs[1] if len(probs) > 1 else 0.0
    return TokenStats(probs[slot.ids.index(token)], probs[0], second, entropy)


def stop_depth(slots: Sequence[Slot], chain: Chain, budget: Budget) -> int:
    """Depth at which the stop rule cuts this chain; all slots without a rule."""
    if budget.stop is None:
        return len(slots)
    trail = tuple(slot_stats(slot, token) for slot, token in zip(slots, chain, strict=False))
    return next((depth for depth in range(1, len(trail) + 1) if budget.stop(trail[:depth])), len(slots))


def make(kit: Kit, drafter: str = "diffusion-lm", settings: Mapping | None = None, temperature: float = 1.0,
         top: int = 64, best: bool = True, seed: int = 0) -> SampledChains:
    """`settings` are parameters of the `drafter`, which may be any drafter with a lattice."""
    slots = kit.part(drafter, **(settings or {}))
    if not hasattr(slots, "lattice"):
        raise Refusal(f"{drafter} has no lattice to draw chains from: use diffusion-lm or block-diffusion")
    return SampledChains(slots, temperature, top, best, seed)


CARD = Card(NAME, idea="several chains drawn through the slots of one diffusion draft",
            source="SpecDiff-2, arXiv 2511.00606", make=make, parts=("diffusion-lm",),
            notebook="35_how_self_selection")
