"""A model whose batches always have the same number of rows: for comparisons in which rounding must not differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdec_lib.canvas.around_model import AroundModel
from specdec_lib.canvas.forecast import Forecast
from specdec_lib.canvas.types import Canvas, CanvasModel


@dataclass(frozen=True)
class PaddedModel(AroundModel):
    """The model at batches of `rows` rows: copies of the first canvas fill them up, and their forecasts are dropped.

    Matrix products of another shape may round differently, and a choice between two equal scores may then fall
    otherwise. At one shape, stepwise decoding and SSD see the same numbers, up to the row in which a canvas stands.
    """

    model: CanvasModel
    rows: int

    def __call__(self, canvases: Sequence[Canvas]) -> Forecast:
        missing = max(0, self.rows - len(canvases))
        return self.model((*canvases, *(canvases[0],) * missing))[:len(canvases)]
