"""What every model of canvases that is made around another one has in common: its tokens."""

from __future__ import annotations

from specdec_lib.canvas.types import CanvasModel


class AroundModel:
    """The vocabulary, mask and end tokens of `model`."""

    model: CanvasModel

    @property
    def vocab(self) -> int:
        return self.model.vocab

    @property
    def mask(self) -> int:
        return self.model.mask

    @property
    def end(self) -> tuple[int, ...]:
        return self.model.end
