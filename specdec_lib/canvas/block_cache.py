"""Prefix and dual cache of Fast-dLLM: inside a block, what lies outside is read as the block's first forward left it.

In a bidirectional model the keys and values of every position change with every token that is written, so reusing them
is an approximation. Source: Fast-dLLM (arXiv 2505.22618): the prefix cache reuses the positions before the open block,
the dual cache those behind it as well; everything is computed anew when a block is full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from specdec_lib.canvas.around_model import AroundModel
from specdec_lib.canvas.forecast import Forecast, RowForecast
from specdec_lib.canvas.types import Canvas, CanvasModel, CanvasSession
from specdec_lib.types import Refusal

PREFIX, DUAL = "prefix", "dual"


class CachingModel(CanvasModel, Protocol):
    """A model of canvases that can compute some positions against kept keys and values of the others."""

    @property
    def caches(self) -> bool:
        """Whether this model, as it was made, can."""
        ...

    def keep(self, canvas: Canvas) -> tuple[RowForecast, Any]:
        """One whole forward: its forecast, and the keys and values of all positions."""
        ...

    def within(self, canvas: Canvas, kept: Any, positions: tuple[int, ...]) -> RowForecast:
        """The forecast of `positions`, ascending; what they read of others is what was kept."""
        ...


@dataclass
class BlockCache(AroundModel):
    """The model as one decode sees it through a cache; it forecasts at least the open block."""

    model: CachingModel
    kind: str
    block: tuple[int, ...] = ()                    # the block of the last whole forward
    kept: Any = None

    def __call__(self, canvases: Sequence[Canvas]) -> Forecast:
        [canvas] = canvases                        # a cache belongs to one decode
        if canvas.open_block == self.block:
            return (self.model.within(canvas, self.kept, recomputed(canvas, self.kind)),)
        row, self.kept = self.model.keep(canvas)
        self.block = canvas.open_block
        return (row,)


def recomputed(canvas: Canvas, kind: str) -> tuple[int, ...]:
    """The positions that a forward computes while the open block is filled."""
    return canvas.open_block if kind == DUAL else tuple(range(canvas.open_block[0], len(canvas)))


def computed_positions(session: CanvasSession, kind: str | None) -> int:
    """The positions that all forwards of a decode computed, one token or more a forward; None: without a cache."""
    total, block = 0, ()
    for canvas in session.canvases()[:-1]:
        again = kind is not None and canvas.open_block == block
        total += len(recomputed(canvas, kind)) if kind is not None and again else len(canvas)
        block = canvas.open_block
    return total


def check_cache(kind: str, model: CanvasModel) -> CachingModel:
    """The model; Refusal for another kind of cache, or a model that keeps no keys and values."""
    if kind not in (PREFIX, DUAL):
        raise Refusal(f"the cache is {PREFIX!r} or {DUAL!r}, got {kind!r}")
    if not getattr(model, "caches", False):
        raise Refusal("this world's model has no such cache, which takes attention in both directions: take the world"
                      " sudoku, or `threshold`")
    return cast(CachingModel, model)
