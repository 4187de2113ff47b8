"""Block diffusion: one forward of a small network fills a block of masks, conditioned on the target's hidden states.

Source: DFlash (arXiv 2602.06036), with the anchor slot, the left-to-right correction and the confidence of DSpark
(arXiv 2607.05147), and the first layer of EAGLE-3 (arXiv 2503.01840). Tokens are chosen and none is drawn, so every
node is deterministic at every temperature. The confidence of a node is the drafter's estimate of the overlap of both
distributions at temperature 1, which stands in for the probability that it is accepted once it is reached. Cost: one
forward of the drafter per block; eight tokens cost as much as one.

With a cost curve the draft may be cut: from n - 1 to n tokens it is extended while
C_n T_{n-1} > tau_{n-1} (T_n - T_{n-1}), with C_n the product of n confidences, tau_n = 1 + C_1 + ... + C_n the expected
tokens of the round and T_n its seconds, for drafting and a forward of n + 1 tokens. That is: while tau_n / T_n rises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, cast

from specdec_lib.cards import Card, ForwardCost, Kit
from specdec_lib.cost.lengths import expected_rates
from specdec_lib.trees import first_nodes, prune
from specdec_lib.types import Budget, Draft, Lattice, RandomNumbers, Refusal, Session, up_to_end

if TYPE_CHECKING:
    from specdec_lib.heads.base import Target
    from specdec_lib.heads.block_diffusion import Block, BlockHead
    from specdec_lib.heads.dflash_head import DFlashHead
    from specdec_lib.linked_slots import LinkedSlots

NAME = "block-diffusion"


@dataclass(frozen=True)
class BlockDiffusion:
    """The chain of `head`, at most a block; with a `curve`, cut where another token lowers tokens per second.

    `specdec break-even block-diffusion` measures `drafting`, the time of a draft over that of a plain forward; the
    default is that of the shipped drafter on two cores in bf16.
    """

    head: BlockHead | DFlashHead
    curve: ForwardCost | None = None
    drafting: float = 0.36                         # cost of a block, in plain forwards

    def __post_init__(self):
        if self.drafting < 0:
            raise Refusal(f"drafting must be a cost in plain forwards, 0 or more, got {self.drafting}")

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        depth = min(budget.size, self.head.block)
        if depth < 1:
            return Draft()
        draft = prune(block_chain(self.head(session.tokens, depth), session.end), budget)
        curve, context = self.curve, len(session.tokens)
        if curve is None:
            return draft
        own = self.drafting * curve(1, context)
        return first_nodes(draft, profitable_length(draft.confidence, lambda n: own + curve(n + 1, context)))

    def lattice(self, session: Session, depth: int, top: int = 16) -> Lattice:
        """The most probable tokens of the first `depth` slots under each slot's distribution, before any correction.

        [depth, top] on the device, with fewer rows in a shorter block and fewer columns if the head keeps fewer
        candidates. ValueError for no slots.
        """
        return self.head.lattice(session.tokens, min(depth, self.head.block), top)

    def links(self, session: Session, depth: int, top: int) -> LinkedSlots:
        """The `top` most probable tokens of the first `depth` slots, each corrected by every one of the slot before."""
        return self.head.links(session.tokens, min(depth, self.head.block), top)


def block_chain(block: Block, end: frozenset[int]) -> Draft:
    """The block's tokens as deterministic nodes, up to the first end token."""
    n = len(up_to_end(block.tokens, end))
    return Draft(block.tokens[:n], tuple(range(-1, n - 1)), stats=block.stats[:n], source=(NAME,) * n,
                 confidence=block.confidence[:n])


def profitable_length(confidences: Sequence[float], seconds: Callable[[int], float]) -> int:
    """Number of nodes up to which each further one raises the expected tokens per second.

    `seconds(n)` is the time of a round with n of them. The block is already computed, so 0 is possible.
    """
    return next((n for n, (now, longer) in enumerate(pairwise(expected_rates(confidences, seconds))) if longer <= now),
                len(confidences))


def make(kit: Kit, block: int | None = None, cut: bool = False, drafting: float = 0.36,
         text_tokens: bool = True) -> BlockDiffusion:
    """Taps the kit's target. `block` defaults to the trained length; `cut` uses the kit's cost curve, if it has one.

    `text_tokens`: the text's own tokens can be drafted as well as those that it was trained to draft.
    """
    from specdec_lib.heads.block_diffusion import block_head

    head = block_head(kit.checkpoints[NAME], cast("Target", kit.target), block, text_tokens)
    return BlockDiffusion(head, kit.cost if cut else None, drafting)


CARD = Card(NAME, idea="one forward fills a block of masks from the target's hidden states",
            source="DFlash, arXiv 2602.06036; DSpark, arXiv 2607.05147", make=make, needs=(NAME,),
            notebook="27_what_block_diffusion", reads_states=True)
