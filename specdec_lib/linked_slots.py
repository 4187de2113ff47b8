"""Slots of a draft whose candidates depend on the token before: what a tree of the likeliest paths asks of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from specdec_lib.lazy import torch
from specdec_lib.types import Lattice

if TYPE_CHECKING:
    from torch import Tensor


class Children(NamedTuple):
    """The best candidates of a slot after one token, best first, and the entropy (nats) of all of them."""

    columns: list[int]                             # their places in the slot
    logp: list[float]
    entropy: float


Listed = tuple[list[list[int]], Callable[[int, int], Children]]


class LinkedSlots(Protocol):
    """Candidates whose probabilities depend on the candidate of the slot before."""

    def listed(self, width: int) -> Listed:
        """Token ids by slot and column, and the children in a slot after a column of the one before, on the host.

        At least two children, where there are as many: their probabilities are the statistics of a node. The first slot
        has one list of children. What candidates lack to a probability of 1 counts as one token in their entropy.
        """
        ...


@dataclass(frozen=True)
class LinkedLattice:
    """Candidates `ids [n, m]` of n slots with all their probabilities, on the device.

    `first [m]` holds the log-probabilities of the first slot's candidates, `after [n - 1, m, m]` those of a later
    slot's, in columns, after each candidate of the slot before, in rows. Order says nothing.
    """

    ids: Tensor
    first: Tensor
    after: Tensor

    def listed(self, width: int) -> Listed:
        """See `LinkedSlots`; in one transfer."""
        n, m = self.ids.shape
        logp = torch.cat((self.first[None], self.after.flatten(0, 1))).double()              # [1 + (n - 1) m, m]
        columns, values, entropy = best_of_rows(logp, width)
        parts = (self.ids.double(), columns.double(), values, entropy)                  # ids are exact below 2 ** 53
        told = torch.cat([part.flatten() for part in parts]).cpu().split([part.numel() for part in parts])
        ids, columns, values, entropy = (part.view(whole.shape) for part, whole in zip(told, parts, strict=True))
        rows = [Children(*row) for row in zip(columns.long().tolist(), values.tolist(), entropy.tolist(), strict=True)]
        return ids.long().tolist(), lambda slot, before: rows[max(0, slot - 1) * m + before + (slot > 0)]


@dataclass(frozen=True)
class UnlinkedSlots:
    """The candidates of a lattice, where no slot depends on another."""

    lattice: Lattice

    def listed(self, width: int) -> Listed:
        """See `LinkedSlots`."""
        ids, logp = self.lattice.ids, self.lattice.logp.double()
        if logp.device.type != "cpu":
            both = torch.stack((ids.double(), logp)).cpu()
            ids, logp = both[0].long(), both[1]
        columns, values, entropy = best_of_rows(logp, width)
        rows = [Children(*row) for row in zip(columns.tolist(), values.tolist(), entropy.tolist(), strict=True)]
        return ids.tolist(), lambda slot, before: rows[slot]


def best_of_rows(logp: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Columns and log-probabilities [n, max(2, width)] of the best of each row [n, m], and its entropy [n]."""
    best, probs = logp.topk(min(max(2, width), logp.shape[1]), -1), logp.exp()
    rest = torch.special.entr((1 - probs.sum(-1)).clamp(min=0))
    return best.indices, best.values, torch.special.entr(probs).sum(-1) + rest
