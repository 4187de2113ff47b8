"""Hierarchy: a stack of drafters, each of which verifies the drafts of the one below with one forward.

Source: Mohri et al. 2025 (arXiv 2510.19705), hierarchical speculative decoding. The lowest drafter drafts T_0 tokens.
Level i asks the level below and verifies what it gets, again and again, until it has buffered T_i tokens or the text
ends; the buffer is its draft for the next level, and the topmost buffer is the draft for the target. Lossless by
induction: a level verifies with a lossless rule, so each of its tokens is distributed as its own row, which it hands
up as `q`. The last verification may emit more than the T_i tokens that were missing, so a buffer holds between T_i
and T_0 + ... + T_i tokens. Lower levels need no undo code: a cache aligns itself to the tokens of the next call. Cost:
one forward of level i for each of its rounds, and those of the levels below.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import NamedTuple

from specdec_lib.cards import Card, Kit
from specdec_lib.speculate import Speculation, as_draft, speculate
from specdec_lib.trees import first_nodes, grow, readable, with_notes
from specdec_lib.types import LM, ROOT, Budget, Draft, How, RandomNumbers, Refusal, Session, Stop, What

NAME = "hierarchy"
TRIGRAM = "ngram"                                  # a checkpoint, and a model without a *what* of its own
MODELS = (TRIGRAM, "draft-model", "early-exit")    # these verify as well
COPIES = ("prompt-lookup", "suffix-automaton")     # these only draft, so they stand at the bottom
BLOCK = 2                                          # T_i of every drafter, where no blocks are named


class InnerRound(NamedTuple):
    """One round of a level above the lowest, as it is kept in the notes of the draft."""

    level: int                                     # 1 verifies the lowest drafter
    start: int                                     # position of its first token in the text
    drafted: tuple[int, ...]                       # what the level below handed up
    accepted: int                                  # of them
    emitted: tuple[int, ...]                       # those and its own token, unless cut


@dataclass(frozen=True)
class ModelDrafter:
    """The lowest drafter where it is a model: a chain drawn from it under the session's sampling."""

    model: LM
    name: str

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        room = readable(budget, self.model, session)
        return grow(session, room, dice, lambda draft: self.model(session.tokens, draft), self.name)


@dataclass(frozen=True)
class Level:
    """A model that verifies the level below, and how many tokens it buffers before it hands them up."""

    name: str
    model: LM
    block: int


@dataclass(frozen=True)
class Hierarchy:
    """A chain of what the topmost level buffered; `block` is T_0, and without `levels` the drafter is alone.

    The budget's depth bounds the chain and its stop rule cuts it. `notes["hierarchy"]` holds all inner rounds in order.
    """

    drafter: What
    block: int
    levels: tuple[Level, ...]
    how: How                                       # of the levels; a lossy rule would break the promise of `q`

    @property
    def longest(self) -> int:
        """The most tokens that the stack hands up: every block once, since each level adds at most its own."""
        return self.block + sum(level.block for level in self.levels)

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        for level in self.levels:
            budget = readable(budget, level.model, session)
        return self.buffered(len(self.levels), session, budget, dice) if budget.size else Draft()

    def buffered(self, place: int, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        """What the level at this place hands up, 0 being the lowest: its block of tokens or more, at most the budget.

        Random numbers are forked by level and by inner round, so that no two decisions share any.
        """
        most = min(budget.depth, budget.size)
        if place == 0:
            return self.drafter(session, replace(budget, depth=min(self.block, most)), dice)
        level, below = self.levels[place - 1], partial(self.buffered, place - 1)
        out, inner, ended = Draft(), (), False
        for turn in count():
            here = replace(session, tokens=session.tokens + out.tokens, remaining=most - len(out))
            found = speculate(here, Budget(most).within(here), level.model, below, self.how, dice.fork(place, turn))
            inner += inner_rounds(place, here, found)
            out, ended = joined(out, as_draft(here, found, level.name), budget.stop)
            if ended or len(out) >= min(level.block, most) or out.tokens[-1] in session.end:
                break
        return with_notes(out, **{NAME: inner})


def inner_rounds(place: int, session: Session, found: Speculation) -> tuple[InnerRound, ...]:
    """The rounds of the levels below that made this draft, then the one that verified it."""
    own = InnerRound(place, len(session.tokens), found.draft.tokens, len(found.verdict.path), found.verdict.tokens)
    return (*found.draft.notes.get(NAME, ()), own)


def joined(draft: Draft, more: Draft, stop: Stop | None) -> tuple[Draft, bool]:
    """A chain followed by another one, up to the token at which the stop rule fires, and whether it did.

    That token stays. What is cut was drawn later, so its own values decide nothing.
    """
    tokens, stats = draft.tokens + more.tokens, draft.stats + more.stats
    fires = (n for n in range(len(draft) + 1, len(tokens) + 1) if stop and stop(stats[:n]))
    end = next(fires, None)
    whole = Draft(tokens, tuple(range(ROOT, len(tokens) - 1)), draft.q + more.q, stats, draft.source + more.source)
    return (whole, False) if end is None else (first_nodes(whole, end), True)


def drafter_names(stack: str) -> tuple[str, ...]:
    """The drafters of `ngram+draft-model`, lowest first; Refusal for one that cannot stand where it does."""
    names = tuple(stack.split("+"))
    for place, name in enumerate(names):
        if name.partition(":")[0] not in MODELS and (place or name not in COPIES):
            raise Refusal(f"a stack names its drafters from the lowest up, joined by +, each of {', '.join(MODELS)};"
                          f" only the lowest may be {' or '.join(COPIES)}; got {stack!r}")
    if len(set(names)) < len(names):
        raise Refusal(f"a drafter stands in a stack once, got {stack!r}")
    return names


def level_model(kit: Kit, name: str) -> LM:
    """The model of this name; `early-exit:10` is the exit after layer 10, `early-exit` the lowest trained one."""
    part, _, layer = name.partition(":")
    if part != TRIGRAM:
        if layer and not (part == "early-exit" and layer.isdigit()):
            raise Refusal(f"only early-exit takes a layer, a whole number as in early-exit:10, got {name!r}")
        return kit.part(part, **{"layer": int(layer)} if layer else {}).model
    return trigram_of(kit)


def trigram_of(kit: Kit) -> LM:
    """The trigram; Refusal where none was counted for this vocabulary."""
    if TRIGRAM not in kit.checkpoints:
        raise Refusal(f"the checkpoint {TRIGRAM} is missing (`specdec train {TRIGRAM}` makes it)")
    found = kit.checkpoints[TRIGRAM]
    if kit.facts.vocab and found.vocab != kit.facts.vocab:
        raise Refusal(f"the checkpoint {TRIGRAM} counts {found.vocab} tokens and the target knows {kit.facts.vocab}:"
                      f" `specdec train {TRIGRAM}` makes one that fits")
    return found.fresh()


def lowest_of(kit: Kit) -> str:
    """The drafter at the bottom where none is named: a trigram where one fits, else copies."""
    try:
        trigram_of(kit)
    except Refusal:
        return COPIES[0]
    return TRIGRAM


def make(kit: Kit, stack: str | None = None, blocks: tuple[int, ...] | None = None) -> Hierarchy:
    """`stack` names the drafters from the lowest up, `blocks` their T_0, T_1, ...

    By default a trigram under the draft model, or copies of the text where no trigram fits; every block is 2.
    """
    names = drafter_names(f"{lowest_of(kit)}+draft-model" if stack is None else stack)
    sizes = (BLOCK,) * len(names) if blocks is None else blocks
    if len(sizes) != len(names) or min(sizes) < 1:
        raise Refusal(f"a stack has one block of at least 1 token for each of {', '.join(names)}, got {sizes}")
    drafter = kit.part(names[0]) if names[0] in COPIES else ModelDrafter(level_model(kit, names[0]), names[0])
    levels = tuple(Level(name, level_model(kit, name), size) for name, size in zip(names[1:], sizes[1:], strict=True))
    return Hierarchy(drafter, sizes[0], levels, kit.part("rejection"))


CARD = Card(NAME, idea="a stack of drafters, each verifying the one below",
            source="Mohri et al. 2025, arXiv 2510.19705", make=make, parts=("draft-model", "rejection"),
            prefers=(TRIGRAM, "early-exit"), notebook="56_hierarchical")
