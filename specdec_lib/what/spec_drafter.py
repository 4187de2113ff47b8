"""Spec-Drafter: one forward of a non-autoregressive decoder fills a block of masked slots behind the output so far.

Source: SpecDec (Xia et al. 2023, arXiv 2203.16487). Every slot has a learned query of its own, sees the source and the
prefix, and takes its best token, independently of what the other slots take. Tokens are chosen and none is drawn, so
every node is deterministic at every temperature. Cost: one forward of the drafter a block, whose width is the block.
Knows nothing of the verifier but its encoder's hidden states.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specdec_lib.cards import Card, Kit
from specdec_lib.types import Budget, Draft, RandomNumbers, Refusal, Session, up_to_end

if TYPE_CHECKING:
    from specdec_lib.seq2seq.drafter import Block, BlockDrafter, BlockRequest

NAME, CHECKPOINT = "spec-drafter", "g2p-drafter"


@dataclass(frozen=True)
class SpecDrafter:
    """The chain of the block that `head` fills, up to its first end token."""

    head: BlockDrafter

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        size = self.slots(budget)
        return self.chain(session, self.head(session.source, session.tokens, size)) if size else Draft()

    def asking(self, session: Session, budget: Budget, dice: RandomNumbers) -> Generator[BlockRequest, Block, Draft]:
        """The same without its forward: yields the block that it asks for and is sent it filled."""
        from specdec_lib.seq2seq.drafter import BlockRequest

        size = self.slots(budget)
        if not size:
            return Draft()
        return self.chain(session, (yield BlockRequest(self.head, session.source, session.tokens, size)))

    def slots(self, budget: Budget) -> int:
        return max(0, min(budget.depth, budget.size, self.head.block))

    def chain(self, session: Session, block: Block) -> Draft:
        """The block up to its first end token, as a draft."""
        tokens, stats = block
        n = len(up_to_end(tokens, session.end))
        return Draft(tuple(tokens[:n]), tuple(range(-1, n - 1)), stats=tuple(stats[:n]), source=(NAME,) * n,
                     confidence=tuple(one.prob for one in stats[:n]))


def make(kit: Kit, k: int | None = None) -> SpecDrafter:
    """For an encoder-decoder target alone, whose encoder it shares; Refusal where it cannot fill `k` slots at once."""
    from specdec_lib.seq2seq.drafter import block_drafter

    head = block_drafter(kit.checkpoints[CHECKPOINT], kit.target)
    if k is not None and k > head.block:
        raise Refusal(f"the drafter fills at most {head.block} slots at once, got k={k}: ask for {head.block} or less")
    return SpecDrafter(head)


CARD = Card(NAME, idea="a non-autoregressive decoder fills a block of masked slots at once",
            source="SpecDec, arXiv 2203.16487", make=make, needs=(CHECKPOINT,), notebook="70_specdec_seq2seq")
