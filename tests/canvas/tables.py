"""Small exact worlds: three tokens, four positions, and a model that answers a canvas it has seen from memory.

And the rule of Sudoku, which boards and puzzles are held against.
"""

import itertools
from dataclasses import dataclass, field

import torch

from specdec_lib.canvas.sudoku import BOXES, CELLS, COLUMNS, ROWS, SIDE
from specdec_lib.canvas.types import Canvas
from specdec_lib.canvas.world_table import TableDiffusion

LENGTH = 4


@dataclass(frozen=True)
class Remembered:
    """A model that runs every canvas once, and counts what it is asked."""

    model: object
    seen: dict = field(default_factory=dict)
    calls: list = field(default_factory=list)      # rows of every call

    @property
    def vocab(self):
        return self.model.vocab

    @property
    def mask(self):
        return self.model.mask

    @property
    def end(self):
        return self.model.end

    def __call__(self, canvases):
        self.calls.append(len(canvases))
        for canvas in canvases:
            if canvas.tokens not in self.seen:
                self.seen[canvas.tokens] = self.model((canvas,))[0]
        return tuple(self.seen[canvas.tokens] for canvas in canvases)


def remembered(seed=0, length=LENGTH):
    return Remembered(TableDiffusion.random(3, length, seed=seed))


def tied_model():
    """Every text is equally likely: all positions and all tokens are tied on every canvas."""
    return TableDiffusion(torch.full((3,) * LENGTH, 3.0 ** -LENGTH, dtype=torch.float64))


def empty(model, length=LENGTH, block=0):
    return Canvas((model.mask,) * length, model.mask, tuple(range(length)), block)


def every_canvas(model, length=LENGTH):
    """Every canvas with at least one mask."""
    for tokens in itertools.product(range(model.mask + 1), repeat=length):
        if model.mask in tokens:
            yield Canvas(tokens, model.mask, tuple(range(length)))


def is_solved(cells):
    """Whether every row, column and box holds the nine digits."""
    return all({cells[place] for place in range(CELLS) if which[place] == unit} == set(range(1, 10))
               for which in (ROWS, COLUMNS, BOXES) for unit in range(SIDE))
