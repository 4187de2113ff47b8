"""SSD: self-speculative decoding of a canvas. Stepwise decoding's output in fewer forwards of more rows.

Source: Gao et al. 2025 (arXiv 2510.04147). `rows` is the number of rows of a forward, the present canvas included;
`tree` the shape of the guesses (`draft_rows.py`). The rule and its proof stand in `speculation.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from specdec_lib.canvas.draft_rows import check_shape
from specdec_lib.canvas.filling import check_block, with_block
from specdec_lib.canvas.order import check_order
from specdec_lib.canvas.speculation import speculate_canvas
from specdec_lib.canvas.types import CanvasModel, CanvasSession
from specdec_lib.cards import Card
from specdec_lib.types import RandomNumbers, Refusal


@dataclass(frozen=True)
class SelfSpeculation:
    """Batches of at most `rows` rows; one row is stepwise decoding."""

    rows: int = 4
    tree: str = "chain"
    order: str = "confidence"
    block: int = 0

    def __call__(self, session: CanvasSession, model: CanvasModel, dice: RandomNumbers) -> Iterator[CanvasSession]:
        return speculate_canvas(with_block(session, self.block), model, self.rows, check_shape(self.tree), self.order,
                                dice)


def make(model: CanvasModel, rows: int = 4, tree: str = "chain", order: str = "confidence",
         block: int = 0) -> SelfSpeculation:
    if not 1 <= rows <= 256:
        raise Refusal(f"rows must be from 1 to 256, got {rows}")
    check_shape(tree)
    return SelfSpeculation(rows, tree, check_order(order), check_block(block))


CARD = Card("ssd", idea="guess the next canvases, decide all of them in one batch", source="SSD, arXiv 2510.04147",
            make=make, notebook="62_ssd")
