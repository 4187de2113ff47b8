"""The drafts of one drafter in a recording: from every prefix of a given text.

Chains are kept at each length. For a drafter that grows trees the union of its trees is kept, from which every tree up
to the given size can be read. A drafter whose card says `off_path` (it learns from rejected nodes) is recorded on its
own run, at one length; prefixes that this run skips have no draft. A drafter with a `lattice` method has its lattices
kept beside its chains; a block shorter than the length limits the lattice to the block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

from specdec_lib import catalog
from specdec_lib.cards import Kit
from specdec_lib.loop import decode
from specdec_lib.models.replay import Recording
from specdec_lib.recordings.tree_union import union_tree
from specdec_lib.types import NO_DICE, Budget, Draft, Lattice, Session

CANDIDATES = 16                                    # of each slot of a lattice


@dataclass(frozen=True)
class RecordedDrafts:
    """The drafts of one drafter by length; entry i is drafted after the prompt and i output tokens."""

    drafts: Mapping[int, tuple[Draft, ...]]
    seconds: Mapping[int, tuple[float, ...]]
    lattices: Mapping[int, tuple[Lattice, ...]] = field(default_factory=dict)
    blocks: tuple[int, ...] = ()                   # block lengths that a lattice drafter was trained for
    largest: Budget | None = None                  # of trees


def record_drafts(name: str, session: Session, kit: Kit, lengths: Sequence[int],
                  trees: Mapping[str, Budget]) -> RecordedDrafts:
    """Everything that is kept of this part: trees if `trees` names it, else chains at each of `lengths`."""
    if catalog.part_card(name).off_path:
        return RecordedDrafts(*drafts_of_own_run(name, session, kit))
    if name in trees:
        return RecordedDrafts(*every_tree(name, session, kit, trees[name]), largest=trees[name])
    chains = every_prefix(name, session, kit, lengths)
    if not hasattr(fresh(name, kit), "lattice"):
        return RecordedDrafts(*chains)
    return RecordedDrafts(*chains, every_lattice(name, session, kit, lengths), block_lengths(name, kit))


def with_drafts(recording: Recording, found: Mapping[str, RecordedDrafts]) -> Recording:
    """The recording with these drafters added."""
    lattices = {name: one.lattices for name, one in found.items() if one.lattices}
    return replace(recording, drafts={**recording.drafts, **{name: one.drafts for name, one in found.items()}},
                   seconds={**recording.seconds, **{name: one.seconds for name, one in found.items()}},
                   trees={**recording.trees, **{name: one.largest for name, one in found.items() if one.largest}},
                   lattices={**recording.lattices, **lattices},
                   blocks={**recording.blocks, **{name: found[name].blocks for name in lattices}})


def fresh(name: str, kit: Kit):
    """A new instance of the part, with empty indexes and caches."""
    return catalog.make_part(name, replace(kit, indexes={}, target=kit.target.fresh()))


def every_prefix(name: str, session: Session, kit: Kit, lengths: Sequence[int]):
    """The largest draft at each length from every committed prefix; one part per length reads the prefixes in order."""
    drafts, seconds = {}, {}
    for length in lengths:
        part = fresh(name, kit)
        kept, took = [], []
        for place in range(session.prompt, len(session.tokens)):
            here = replace(session, tokens=session.tokens[:place], remaining=length + 1)
            start = perf_counter()
            kept.append(part(here, Budget(length), NO_DICE).bare())
            took.append(perf_counter() - start)
        drafts[length], seconds[length] = tuple(kept), tuple(took)
    return drafts, seconds


def every_lattice(name: str, session: Session, kit: Kit, lengths: Sequence[int]) -> dict[int, tuple[Lattice, ...]]:
    """The lattice from every committed prefix at each length, by its number of slots."""
    out: dict[int, tuple[Lattice, ...]] = {}
    for length in lengths:
        part = fresh(name, kit)
        kept = [part.lattice(replace(session, tokens=session.tokens[:place], remaining=length + 1), length, CANDIDATES)
                for place in range(session.prompt, len(session.tokens))]
        out.setdefault(len(kept[0].ids), tuple(Lattice(one.ids.cpu().clone(), one.logp.float().cpu().clone())
                                               for one in kept))
    return out


def block_lengths(name: str, kit: Kit) -> tuple[int, ...]:
    """The block lengths that the checkpoints of this part were trained for."""
    metas = [getattr(kit.checkpoints[need], "meta", {}) for need in catalog.part_card(name).needs
             if need in kit.checkpoints]
    return tuple(sorted({size for meta in metas for size in meta.get("blocks", [meta.get("block")]) if size}))


def every_tree(name: str, session: Session, kit: Kit, largest: Budget):
    """The union of trees from every committed prefix and the seconds of its largest tree, by the most nodes of a tree.

    No node costs anything while recording, so that none is left out for its price; `recorded` can do that on replay.
    """
    part = fresh(name, replace(kit, price=0.0, cost=None))
    kept, took = [], []
    for place in range(session.prompt, len(session.tokens)):
        here, spent = replace(session, tokens=session.tokens[:place], remaining=largest.depth + 1), []

        def ask(budget: Budget, here=here, spent=spent) -> Draft:
            start = perf_counter()
            draft = part(here, budget, NO_DICE)
            spent.append(perf_counter() - start)
            return draft

        kept.append(union_tree(ask, largest))
        took.append(spent[0])
    return {largest.size: tuple(kept)}, {largest.size: tuple(took)}


def drafts_of_own_run(name: str, session: Session, kit: Kit):
    """The drafts of this drafter's own decode at the kit's node budget, by prefix."""
    anew = replace(kit, indexes={}, target=kit.target.fresh())
    method = catalog.build(name, anew)
    empty = len(session.tokens) - session.prompt
    kept, took = [Draft()] * empty, [0.0] * empty
    place = 0
    for now in decode(session.tokens[:session.prompt], anew.target, *method, end=kit.facts.end,
                      max_new_tokens=len(session.tokens) - session.prompt):
        round = now.rounds[-1]
        kept[place], took[place] = round.draft, round.seconds.what
        place += len(round.verdict.tokens)
    return {kit.nodes: tuple(kept)}, {kit.nodes: tuple(took)}
