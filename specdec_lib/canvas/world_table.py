"""The table world: a joint distribution over short texts, whose exact conditionals are the model's forecasts.

A model that has learned its data perfectly says for every position the probability of each token given all filled
positions. Here the data are a table of all texts, so these probabilities are sums over the table: every rule can be
compared with the truth, and every canvas can be visited. The mask's id follows the tokens'.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from specdec_lib.canvas.forecast import Forecast, forecast
from specdec_lib.canvas.types import Canvas, CanvasTask, CanvasWorld
from specdec_lib.types import Refusal

TOKENS, LENGTH, SHARPNESS = 3, 6, 2.0


@dataclass(frozen=True)
class TableDiffusion:
    """`joint [V, V, ...]`, one axis per position, sums to one, float64, no entry zero: the law of whole texts."""

    joint: Tensor
    end: tuple[int, ...] = ()

    @staticmethod
    def random(tokens: int = TOKENS, length: int = LENGTH, sharpness: float = SHARPNESS,
               seed: int = 0) -> TableDiffusion:
        """A random law: neighbours and distant positions interact, so that filling one position changes the others."""
        dice = torch.Generator().manual_seed(seed % 2 ** 63)
        energy = torch.zeros((tokens,) * length, dtype=torch.float64)
        for one, other in itertools.combinations(range(length), 2):
            pair = torch.randn(tokens, tokens, generator=dice, dtype=torch.float64) / (other - one)
            energy = energy + pair.view([tokens if axis in (one, other) else 1 for axis in range(length)])
        return TableDiffusion(torch.softmax(sharpness * energy.flatten(), 0).view(energy.shape))

    @property
    def vocab(self) -> int:
        return self.mask + 1

    @property
    def mask(self) -> int:
        return self.joint.shape[0]

    def __call__(self, canvases: Sequence[Canvas]) -> Forecast:
        logits = torch.stack([self.conditionals(canvas) for canvas in canvases])
        return forecast(logits, range(self.joint.ndim), None)

    def conditionals(self, canvas: Canvas) -> Tensor:
        """Log-probabilities [positions, tokens]: each position given all *other* filled positions."""
        return torch.stack([self.conditional(canvas, position) for position in range(self.joint.ndim)])

    def conditional(self, canvas: Canvas, position: int) -> Tensor:
        known = tuple(slice(None) if token == self.mask or at == position else token
                      for at, token in enumerate(canvas.tokens))
        kept = self.joint[known]                   # axes of the masked positions and of this one, ascending
        own = sum(canvas.tokens[at] == self.mask for at in range(position))
        weight = kept.sum([axis for axis in range(kept.ndim) if axis != own]) if kept.ndim > 1 else kept
        return (weight / weight.sum()).log()

    def mode(self, canvas: Canvas) -> tuple[int, ...]:
        """The most probable text that agrees with the canvas's filled positions, the first of equal ones."""
        known = tuple(slice(token, token + 1) if token != self.mask else slice(None) for token in canvas.tokens)
        best = torch.unravel_index(self.joint[known].argmax(), self.joint[known].shape)
        return tuple(int(index) if token == self.mask else token
                     for index, token in zip(best, canvas.tokens, strict=True))


def open_world(limit: int, seed: int, folder: Path | None = None) -> CanvasWorld:
    """Canvases with one to six masks over a random law; the answer is the most probable text that agrees with them.

    Refusal for a folder of checkpoints, since this world has no trained model.
    """
    if folder is not None:
        raise Refusal("the table world has no trained model: leave out --checkpoints")
    model = TableDiffusion.random(seed=seed)
    kinds = list(itertools.product((True, False), repeat=LENGTH))[1:]       # which positions are given: never all
    tasks = []
    for number in range(limit):
        given, text = kinds[(number * 37) % len(kinds)], divmod(number * 101, TOKENS ** LENGTH)[1]
        digits = [text // TOKENS ** place % TOKENS for place in range(LENGTH)]
        tokens = tuple(digit if kept else model.mask for digit, kept in zip(digits, given, strict=True))
        canvas = Canvas(tokens, model.mask, tuple(range(LENGTH)))
        tasks.append(CanvasTask(f"table-{number:03d}", canvas, model.mode(canvas), f"{len(canvas.masked)} masks"))
    return CanvasWorld("table", model, tuple(tasks), lambda task, canvas: canvas.tokens == task.answer,
                       quality=lambda task, canvas: {"log_probability": float(model.joint[canvas.tokens].log())},
                       about={"tokens": TOKENS, "positions": LENGTH, "seed": seed})
