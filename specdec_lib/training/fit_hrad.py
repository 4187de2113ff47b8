"""Fitting H-RAD: a given number of epochs over pending drafts in memory; a killed fit resumes to the same weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, inf
from pathlib import Path
from time import perf_counter

import torch

from specdec_lib.training import fit
from specdec_lib.training.data.batches import place_seed
from specdec_lib.training.data.pending_drafts import PendingDrafts, classes_of
from specdec_lib.training.fit import LOG, Progress, Settings
from specdec_lib.training.fit_length import EpochBatches
from specdec_lib.training.nets.hrad import HradNet, class_figures, class_loss, class_weights, classify
from specdec_lib.types import Refusal


@dataclass(frozen=True)
class HradSettings:
    """Settings of H-RAD. The paper trains 20 epochs with widths 256 and 64.

    Of the 3,000 drafts that two minutes of reading give, a quarter was set aside to choose the epochs: more than 6, or
    a dropout of 0.5, were no better there.
    """

    longest: int = 3                               # tokens of a pending draft: the schedule's four, less the first
    layers: int = 4                                # of the target, from the last one down
    positions: int = 100_000                       # at most, to learn from
    epochs: int = 6
    batch: int = 32
    rate: float = 1e-3
    hidden: int = 80                               # first width; 256 in the paper, a file three times as large
    narrow: int = 64                               # second width
    dropout: float = 0.2
    balance: float = 0.0                           # of the classes in the loss: 0 as they come, 1 alike
    seed: int = 0

    def __post_init__(self):
        if not 1 <= self.longest <= 100 or not 0 < self.rate < inf:
            raise Refusal(f"longest lies between 1 and 100 and the rate above 0, got {self.longest} and {self.rate}")
        if min(self.positions, self.epochs, self.batch, self.hidden, self.narrow, self.layers) < 1:
            raise Refusal(f"positions, epochs, batch, widths and layers are at least 1, got {self.positions}, "
                          f"{self.epochs}, {self.batch}, {self.hidden}, {self.narrow} and {self.layers}")
        if not 0 <= self.dropout < 1 or not 0 <= self.balance <= 1:
            raise Refusal(f"dropout is below 1 and balance at most 1, got {self.dropout} and {self.balance}")


def fit_hrad(model: HradNet, train: PendingDrafts, held: PendingDrafts, asked: HradSettings, folder: Path,
             progress: Callable[[int, int, dict], None] = lambda step, steps, line: None,
             clock: Callable[[], float] = perf_counter) -> Progress:
    """Trains in place; resumes the fit that `folder` holds, if any. After each epoch the log gets held-out figures.

    Raises Refusal where the folder holds another fit or a damaged one, and without drafts to learn from or measure.
    """
    if not len(train) or not len(held):
        raise Refusal(f"{len(train)} pending drafts to learn from and {len(held)} to measure with: give more"
                      " --minutes, more --data or longer answers; a cut one does not tell how far its last drafts went")
    folder.mkdir(parents=True, exist_ok=True)
    labels, held_labels = (classes_of(some.accepted, asked.longest) for some in (train, held))
    weights = class_weights(labels, asked.balance)
    each = ceil(len(train) / asked.batch)          # steps of an epoch
    settings = Settings(steps=asked.epochs * each, rate=asked.rate, seed=asked.seed)
    optimiser = fit.optimiser_of(model, settings)
    now = fit.resume(folder, model, optimiser, settings)
    if now.step >= asked.epochs * each:
        return now
    batches = EpochBatches(torch.arange(len(train)), asked)

    def take(now: Progress) -> tuple[int, dict]:
        some = batches(*divmod(now.step, each))
        dice = torch.Generator().manual_seed(place_seed(asked.seed, now.step))
        optimiser.zero_grad(set_to_none=True)
        loss = class_loss(model, train, some, labels, weights, dice)
        fit.descend(loss, model, optimiser, settings.clip)
        return len(some), {"loss": loss.detach()}

    with fit.open_log(folder / LOG, now) as log:
        def record(now: Progress, rate: float, shown: dict) -> None:
            if now.step % each == 0:
                line = {"step": now.step, "epoch": now.step // each, "seconds": round(now.seconds, 2),
                        "loss": round(float(shown["loss"]), 4),
                        "held_out": class_figures(classify(model, held), held_labels)}
                fit.log_line(log, line)
                progress(now.step, asked.epochs * each, line)

        return fit.run_steps(model, optimiser, settings, folder, now, take, record, fit.never, clock)
