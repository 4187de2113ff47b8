"""Blocks with a cache: a confidence threshold fills a block while positions outside keep their keys and values.

Source: Fast-dLLM (arXiv 2505.22618), prefix and dual cache with parallel decoding at theta = 0.9. An approximation: the
canvas can differ from that of `threshold` with the same block. Cost: a block's first forward computes all positions,
the others those of the block (dual), or those from the block on (prefix).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from specdec_lib.canvas.block_cache import DUAL, BlockCache, CachingModel, check_cache
from specdec_lib.canvas.filling import check_block, check_theta, fill, reaching, with_block
from specdec_lib.canvas.types import CanvasModel, CanvasSession
from specdec_lib.cards import Card
from specdec_lib.types import RandomNumbers


@dataclass(frozen=True)
class CachedBlocks:
    """The threshold rule in blocks; every decode has a cache of its own."""

    cache: str = DUAL
    block: int = 9
    theta: float = 0.9

    def __call__(self, session: CanvasSession, model: CanvasModel, dice: RandomNumbers) -> Iterator[CanvasSession]:
        caching: CachingModel = check_cache(self.cache, model)
        return fill(with_block(session, self.block), BlockCache(caching, self.cache), reaching(self.theta), dice)


def make(model: CanvasModel, cache: str = DUAL, block: int = 9, theta: float = 0.9) -> CachedBlocks:
    """`block` 0 leaves the canvas's own blocks."""
    check_cache(cache, model)
    return CachedBlocks(cache, check_block(block), check_theta(theta))


CARD = Card("cached-blocks", idea="fill a block while all outside keeps its keys and values",
            source="Fast-dLLM, arXiv 2505.22618", make=make, lossless=False, notebook="61_parallel_filling")
