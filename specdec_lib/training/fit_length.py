"""Fitting a length predictor: a given number of epochs over labelled positions in memory; a killed fit resumes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, inf
from pathlib import Path
from time import perf_counter
from typing import Protocol

import torch
from torch import Tensor

from specdec_lib.training import fit
from specdec_lib.training.data.batches import order
from specdec_lib.training.data.length_labels import DRAFTERS, LengthLabels
from specdec_lib.training.fit import LOG, Progress, Settings
from specdec_lib.training.nets.length import LengthNet, known_labels, length_figures, one_sided, predict
from specdec_lib.types import Refusal

HIDDEN = 128


@dataclass(frozen=True)
class LengthSettings:
    """Settings of a predictor. The paper has a rate of 5e-5 over millions of positions; fewer take a larger rate."""

    drafters: tuple[str, ...] = tuple(DRAFTERS)
    longest: int = 10                              # tokens of the longest draft that is labelled and predicted
    weight: float = 3.0                            # of a draft that is too short; not stated in the paper
    positions: int = 100_000                       # at most, to learn from
    epochs: int = 5
    batch: int = 128
    rate: float = 1e-3
    hidden: int = HIDDEN                           # width of the network
    seed: int = 0

    def __post_init__(self):
        strange = [name for name in self.drafters if name not in DRAFTERS]
        if strange or not self.drafters:
            raise Refusal(f"length predictors are for {', '.join(DRAFTERS)}, got {', '.join(strange) or 'none'}")
        if len(set(self.drafters)) < len(self.drafters):
            raise Refusal(f"a drafter is named twice: name each once, got {', '.join(self.drafters)}")
        if not 1 <= self.longest <= 100 or not 0 < self.weight < inf or not 0 < self.rate < inf:
            raise Refusal(f"longest lies between 1 and 100, weight and rate above 0, got {self.longest}, {self.weight} "
                          f"and {self.rate}")
        if min(self.positions, self.epochs, self.batch, self.hidden) < 1:
            raise Refusal(f"positions, epochs, batch and hidden are at least 1, got {self.positions}, {self.epochs}, "
                          f"{self.batch} and {self.hidden}")


def fit_length(model: LengthNet, name: str, train: LengthLabels, held: LengthLabels, asked: LengthSettings,
               folder: Path, progress: Callable[[int, int, dict], None] = lambda step, steps, line: None,
               clock: Callable[[], float] = perf_counter) -> Progress:
    """Trains in place on the labels of this drafter; resumes the fit that `folder` holds, if any.

    After each epoch the log gets the held-out figures. Raises Refusal where the folder holds another fit or a damaged
    one, and where no position has a label.
    """
    rows, held_rows = known_labels(train.labels[name]), known_labels(held.labels[name])
    if not len(rows) or not len(held_rows):
        raise Refusal(f"{len(rows)} positions to train a predictor for {name} on and {len(held_rows)} to measure with: "
                      "give more --minutes, more --data or longer answers; a cut one does not tell how far its last"
                      " drafts went")
    folder.mkdir(parents=True, exist_ok=True)
    each = ceil(len(rows) / asked.batch)           # steps of an epoch
    steps = asked.epochs * each
    settings = Settings(steps=steps, rate=asked.rate, seed=asked.seed)
    optimiser = fit.optimiser_of(model, settings)
    now = fit.resume(folder, model, optimiser, settings)
    if now.step >= steps:
        return now
    batches = EpochBatches(rows, asked)

    def take(now: Progress) -> tuple[int, dict]:
        some = batches(*divmod(now.step, each))
        optimiser.zero_grad(set_to_none=True)
        loss = length_loss(model, name, train, some, asked.weight)
        fit.descend(loss, model, optimiser, settings.clip)
        return len(some), {"loss": loss.detach()}

    with fit.open_log(folder / LOG, now) as log:
        def record(now: Progress, rate: float, shown: dict) -> None:
            if now.step % each == 0:
                figures = length_figures(predict(model, held, held_rows), held.labels[name][held_rows], asked.longest,
                                         asked.weight)
                line = {"drafter": name, "step": now.step, "epoch": now.step // each, "seconds": round(now.seconds, 2),
                        "loss": round(float(shown["loss"]), 4), "held_out": figures}
                fit.log_line(log, line)
                progress(now.step, steps, line)

        return fit.run_steps(model, optimiser, settings, folder, now, take, record, fit.never, clock)


class EpochSettings(Protocol):
    """What decides the batches of an epoch."""

    @property
    def batch(self) -> int: ...
    @property
    def seed(self) -> int: ...


class EpochBatches:
    """Labelled rows in batches, shuffled anew in each epoch; seed, epoch and place determine a batch."""

    def __init__(self, rows: Tensor, asked: EpochSettings):
        self.rows, self.asked, self.epoch, self.shuffled = rows, asked, -1, []

    def __call__(self, epoch: int, place: int) -> Tensor:
        if epoch != self.epoch:
            self.epoch, self.shuffled = epoch, order(len(self.rows), epoch, self.asked.seed)
        return self.rows[torch.tensor(self.shuffled[place * self.asked.batch:(place + 1) * self.asked.batch])]


def length_loss(model: LengthNet, name: str, train: LengthLabels, rows: Tensor, weight: float) -> Tensor:
    """The one-sided loss of the predicted lengths on these rows."""
    device = model.embedding.device
    return one_sided(model(train.tokens[rows].to(device), train.states[rows].to(device)),
                     train.labels[name][rows].to(device).float(), weight)


def epoch_log(folder: Path) -> list[dict]:
    """The log of a fit: one record for each epoch."""
    return [json.loads(line) for line in (folder / LOG).read_text().splitlines()]
