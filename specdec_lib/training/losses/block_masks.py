"""Blocks of masks behind clean texts: their anchors, the positions of their rows, and what each row sees.

A text of S tokens is read once, causally; a block anchored at row t follows token t and sees the text up to and
including that token, and itself in both directions. It sees no other block and no later token, as at inference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Blocks:
    """A blocks for each of B texts; a block of `size` slots has `size - 1` rows, since its anchor is the text's."""

    anchors: Tensor                                # [B, A] row of the last known token
    lengths: Tensor                                # [B, A] slots that it drafts, up to `size`; later rows are hidden
    size: int

    @property
    def rows(self) -> int:
        """Rows of one block beside its anchor."""
        return self.size - 1

    def places(self) -> Tensor:
        """The position [B, A, rows] of every row in its text."""
        return self.anchors[..., None] + torch.arange(1, self.size, device=self.anchors.device)

    def seen(self, text: int) -> Tensor:
        """[B, 1, A * rows, text + A * rows] bool: which of `text` text rows and of all block rows each row sees."""
        count, device = self.anchors.shape[1], self.anchors.device
        clean = torch.arange(text, device=device) <= self.anchors[..., None]                     # [B, A, text]
        clean = clean[:, :, None].expand(-1, -1, self.rows, -1).flatten(1, 2)
        block = torch.arange(count, device=device).repeat_interleave(self.rows)
        there = (torch.arange(1, self.size, device=device) < self.lengths[..., None]).flatten(1)  # [B, A * rows]
        own = (block[:, None] == block) & there[:, None]
        return torch.cat((clean, own), -1)[:, None]


def drawn_anchors(valid: Tensor, count: int, dice: torch.Generator) -> tuple[Tensor, Tensor]:
    """Up to `count` anchors [B, A] drawn without repetition from the `valid [B, S]` rows, and which of them are valid.

    Where a text has fewer valid rows, invalid ones fill up, and the second tensor is False there.
    """
    lots = torch.rand(valid.shape, generator=dice).to(valid.device).masked_fill(~valid, -1.0)
    lot, anchors = lots.topk(min(count, valid.shape[1]), -1)
    return anchors, lot >= 0


def in_parts(chosen: Tensor, count: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The chosen rows [B, S], at most `count` of each text at a time: texts [b], their rows [b, a], which are chosen.

    A text without remaining rows is left out; where a text has fewer rows than another, rows that were not chosen fill
    up.
    """
    rows, left = chosen.int().argsort(dim=1, descending=True, stable=True), chosen.sum(1)
    for at in range(0, int(left.max()), count):
        texts = (left > at).nonzero()[:, 0]
        part = rows[texts, at:min(at + count, int(left.max()))]
        yield texts, part, torch.arange(at, at + part.shape[1], device=rows.device) < left[texts, None]
