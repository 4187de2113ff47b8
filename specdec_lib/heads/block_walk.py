"""The result of a block drafter: candidates of its slots, and the walk from slot to slot that makes a chain of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specdec_lib.linked_slots import LinkedLattice, Listed
from specdec_lib.models.device import to_device, to_host
from specdec_lib.scores import TokenStats
from specdec_lib.types import Lattice

if TYPE_CHECKING:
    from specdec_lib.heads.block_diffusion import BlockHead
    from specdec_lib.heads.block_rows import CompiledBlock

NOTHING = -1                                       # where no token stands before a slot


@dataclass(frozen=True)
class Slots:
    """The candidates of a block's slots under each slot's own distribution, without correction; on the device.

    `told [slots, 2k + 2]` is what `row_stats.packed_stats` says of the slots' logits, and `ids` names the token of each
    column. Log-probabilities are in `dtype`.
    """

    told: Tensor
    ids: Tensor
    dtype: torch.dtype

    @cached_property
    def columns(self) -> Tensor:
        """The column [slots, k] of each candidate."""
        return self.told[:, self.told.shape[1] // 2 - 1:-2].long()

    @cached_property
    def lattice(self) -> Lattice:
        """The candidates with their log-probabilities over the whole draft vocabulary, best first."""
        logp = self.told[:, :self.columns.shape[1]] - self.told[:, -2:-1]
        return Lattice(self.ids[self.columns], logp.to(self.dtype))


@dataclass(frozen=True)
class Block:
    """The result of one forward: the slots by themselves, and a greedy chain through them from left to right.

    `tokens` is the greedy chain; `stats` describe the corrected distribution over a slot's candidates given the chain
    before it; `confidence` is the predicted probability that the slot's token is accepted once it is reached.
    """

    slots: Slots
    tokens: tuple[int, ...]
    stats: tuple[TokenStats, ...]
    confidence: tuple[float, ...]

    @property
    def lattice(self) -> Lattice:
        """The candidates of each slot under the slot's own distribution, on the device."""
        return self.slots.lattice


def walked(slots: Slots, told: list[list[float]]) -> Block:
    """The block, from each slot's token, two largest probabilities, entropy and confidence."""
    stats = tuple(TokenStats(first, first, second, entropy) for _, first, second, entropy, _ in told)
    return Block(slots, tuple(int(row[0]) for row in told), stats, tuple(row[4] for row in told))


@dataclass(frozen=True)
class CompiledLinks:
    """The linked slots of the block drafted last, from `told` as `CompiledBlock.draft` gives it.

    A candidate's correction is computed when what follows it is asked for the first time.
    """

    head: BlockHead                                # owns the memory that its compiled code reads
    block: CompiledBlock
    told: Tensor

    def listed(self, width: int) -> Listed:
        """See `LinkedSlots`."""
        k = self.told.shape[1] // 2 - 1
        tokens = self.head.ids[self.told[:, k:-2].long()].tolist()
        return tokens, cache(lambda slot, before: self.block.after(tokens[slot - 1][before] if slot else NOTHING,
                                                                   self.told, slot))


def link(slots: Slots, rows: Tensor, word: Callable[[Tensor], Tensor], correct: Callable[[Tensor], Tensor]
         ) -> LinkedLattice:
    """The candidates of each slot, later ones corrected by each of the slot before; arguments as in `walk`.

    The correction shifts probability among a slot's candidates, whose sum stays that of the slot itself. The first slot
    is as it is: its row has read the token before it. All corrections are one product, so no slot waits for a choice.
    """
    own = slots.lattice
    added = correct(word(own.ids[:-1].flatten())).to(own.logp.dtype).unflatten(0, (-1, own.ids.shape[1]))
    after = torch.baddbmm(own.logp[1:, None], added, rows[1:].to(added.dtype).mT)
    return LinkedLattice(own.ids, own.logp[0], after.log_softmax(-1) + own.logp[1:, None].logsumexp(-1, keepdim=True))


def walk(anchor: int, x: Tensor, slots: Slots, rows: Tensor, word: Callable[[Tensor], Tensor],
         correct: Callable[[Tensor], Tensor], confidence: Tensor) -> Block:
    """The greedy chain of `steps` after this token; it moves to the host in one transfer."""
    found = steps(to_device([anchor], x.device), x, slots, rows, word, correct, confidence)
    return walked(slots, to_host(found).tolist())


def steps(token: Tensor, x: Tensor, slots: Slots, rows: Tensor, word: Callable[[Tensor], Tensor],
          correct: Callable[[Tensor], Tensor], confidence: Tensor) -> Tensor:
    """The greedy chain [n, 5] on the device: the token before a slot corrects the scores of its candidates [n, K].

    `token` [1] stands before the first slot. x [n, hidden] are the slots' hidden states and `rows` [n, K, hidden] the
    candidates' output rows; `word` embeds a token, and `correct` says what it adds to the state of the slot behind it.
    """
    before, weighed, chosen = [], [], []
    lattice = slots.lattice
    for logp, ids, each in zip(lattice.logp, lattice.ids, rows.to(lattice.logp.dtype), strict=True):
        before.append(word(token))
        weighed.append(torch.addmv(logp, each, correct(before[-1])[0].to(logp.dtype)))
        token = ids.gather(0, weighed[-1].argmax(-1, keepdim=True))
        chosen.append(token)
    logp = torch.log_softmax(torch.stack(weighed), -1)
    two = logp.topk(2, -1).values.exp()
    entropy = torch.special.entr(logp.exp()).sum(-1)
    sure = torch.sigmoid(torch.mv(torch.cat((x, torch.cat(before)), -1), confidence))
    columns = (torch.cat(chosen), two[:, 0], two[:, 1], entropy, sure)
    return torch.stack([column.double() for column in columns], 1)
