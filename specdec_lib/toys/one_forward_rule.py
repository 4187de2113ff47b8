"""A wrong way to verify drafts of a canvas, kept because it looks right: one forward for all drafts at once.

Fill the most confident positions together, run that canvas, and keep the drafts up to the first that the model no
longer gives. Every draft sees the later drafts, which stepwise decoding would not have written yet, and whether a
position's turn had come is not asked. So the result is not stepwise decoding's.
"""

from __future__ import annotations

from specdec_lib.canvas.order import by_confidence, ranked
from specdec_lib.canvas.types import Canvas, CanvasModel


def one_forward_rule(canvas: Canvas, model: CanvasModel, drafts: int) -> Canvas:
    """The canvas filled by the wrong rule, `drafts` positions at a time."""
    while not canvas.full:
        choices = ranked(model((canvas,))[0], canvas, by_confidence)[:drafts]
        positions, tokens = [choice.position for choice in choices], [choice.token for choice in choices]
        seen, kept = model((canvas.fill(positions, tokens),))[0], 1
        while kept < len(choices) and seen.best[seen.column[positions[kept]]] == tokens[kept]:
            kept += 1
        canvas = canvas.fill(positions[:kept], tokens[:kept])
    return canvas
