"""Blocks of masks behind clean texts: where they are anchored, where their rows stand and what each of them sees.

A text of S tokens is read once, causally; a block anchored at row t stands behind token t, sees the text up to and
with that token, and itself in both directions. It sees no other block and no later token of the text, as at inference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Blocks:
    """A blocks behind each of B texts; a block of `size` slots has `size - 1` rows, since its anchor is the text's."""

    anchors: Tensor                                # [B, A] row of the last token that is known
    lengths: Tensor                                # [B, A] slots that it drafts, up to `size`; rows behind are unseen
    size: int

    @property
    def rows(self) -> int:
        """Rows of one block beside its anchor."""
        return self.size - 1

    def places(self) -> Tensor:
        """The position [B, A, rows] of every row in its text."""
        return self.anchors[..., None] + torch.arange(1, self.size, device=self.anchors.device)

    def seen(self, text: int) -> Tensor:
        """[B, 1, A * rows, text + A * rows] bool: what the rows see of a text of so many rows and of all blocks."""
        count, device = self.anchors.shape[1], self.anchors.device
        clean = torch.arange(text, device=device) <= self.anchors[..., None]                     # [B, A, text]
        clean = clean[:, :, None].expand(-1, -1, self.rows, -1).flatten(1, 2)
        block = torch.arange(count, device=device).repeat_interleave(self.rows)
        there = (torch.arange(1, self.size, device=device) < self.lengths[..., None]).flatten(1)  # [B, A * rows]
        own = (block[:, None] == block) & there[:, None]
        return torch.cat((clean, own), -1)[:, None]


def drawn_anchors(valid: Tensor, count: int, dice: torch.Generator) -> tuple[Tensor, Tensor]:
    """Up to `count` anchors [B, A] drawn without repetition from the `valid [B, S]` rows; and which of them are any.

    Where a text has fewer, the rest are rows that are not valid, and the second tensor says so.
    """
    lots = torch.rand(valid.shape, generator=dice).to(valid.device).masked_fill(~valid, -1.0)
    lot, anchors = lots.topk(min(count, valid.shape[1]), -1)
    return anchors, lot >= 0


def in_parts(chosen: Tensor, count: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The chosen rows [B, S], at most `count` of each text at a time: texts [b], their rows [b, a], which are any.

    A text of which nothing is left is left out; where one has fewer rows than another, some that were not chosen fill
    the gap.
    """
    rows, left = chosen.int().argsort(dim=1, descending=True, stable=True), chosen.sum(1)
    for at in range(0, int(left.max()), count):
        texts = (left > at).nonzero()[:, 0]
        part = rows[texts, at:min(at + count, int(left.max()))]
        yield texts, part, torch.arange(at, at + part.shape[1], device=rows.device) < left[texts, None]
