"""Fitting a length predictor: a set number of epochs over places in memory, saved as it goes, the same after a kill."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from time import perf_counter

import torch
from torch import nn

from specdec_lib.training import fit
from specdec_lib.training.data.batches import order
from specdec_lib.training.data.length_labels import DRAFTERS, LengthLabels
from specdec_lib.training.fit import LOG, Progress, Settings
from specdec_lib.training.nets.length import LengthNet, known_labels, length_figures, one_sided, predict
from specdec_lib.types import Refusal

HIDDEN = 128


@dataclass(frozen=True)
class LengthSettings:
    """What is asked of a predictor. The paper has a rate of 5e-5 over millions of places; with fewer it is larger."""

    drafters: tuple[str, ...] = tuple(DRAFTERS)
    longest: int = 10                              # tokens of the longest draft that is labelled and predicted
    weight: float = 3.0                            # of a draft that is too short; not stated in the paper
    positions: int = 100_000                       # to learn from, at most
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
            raise Refusal(f"a drafter is named twice: {', '.join(self.drafters)}")
        if not 1 <= self.longest <= 100 or not self.weight > 0 or not self.rate > 0:
            raise Refusal(f"longest lies between 1 and 100, weight and rate above 0, got {self.longest}, {self.weight} "
                          f"and {self.rate}")
        if min(self.positions, self.epochs, self.batch, self.hidden) < 1:
            raise Refusal(f"positions, epochs, batch and hidden are at least 1, got {self.positions}, {self.epochs}, "
                          f"{self.batch} and {self.hidden}")


def fit_length(model: LengthNet, name: str, train: LengthLabels, held: LengthLabels, asked: LengthSettings,
               folder: Path,
               progress: Callable[[int, int, dict], None] = lambda step, steps, line: None,
               clock: Callable[[], float] = perf_counter) -> Progress:
    """Trains in place on the labels of this drafter; a folder with such a fit in it is gone on with.

    After each epoch the log gets the held-out figures. Refusal where the folder holds another fit or a damaged one, and
    where no place has a label.
    """
    rows, held_rows = known_labels(train.labels[name]), known_labels(held.labels[name])
    if not len(rows) or not len(held_rows):
        raise Refusal(f"{len(rows)} places to train a predictor for {name} on and {len(held_rows)} to measure with: "
                      "give more --minutes or more --data")
    folder.mkdir(parents=True, exist_ok=True)
    each = ceil(len(rows) / asked.batch)
    settings = Settings(steps=asked.epochs * each, rate=asked.rate, seed=asked.seed)
    optimiser = fit.optimiser_of(model, settings)
    now = fit.resume(folder, model, optimiser, settings)
    if now.step >= settings.steps:
        return now
    began, saved, device, mixed = clock() - now.seconds, now.seconds, model.embedding.device, []
    with fit.open_log(folder / LOG, now) as log:
        while now.step < settings.steps:
            epoch, place = divmod(now.step, each)
            if place == 0 or not mixed:
                mixed = order(len(rows), epoch, asked.seed)
            some = rows[torch.tensor(mixed[place * asked.batch:(place + 1) * asked.batch])]
            fit.rate_at(optimiser, asked.rate * fit.schedule(now.step / settings.steps, settings))
            optimiser.zero_grad(set_to_none=True)
            loss = one_sided(model(train.tokens[some].to(device), train.states[some].to(device)),
                             train.labels[name][some].to(device).float(), asked.weight)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
            optimiser.step()
            now = Progress(now.step + 1, clock() - began, now.tokens + len(some))
            if now.step % each == 0:
                told = length_figures(predict(model, held, held_rows), held.labels[name][held_rows], asked.longest,
                                      asked.weight)
                line = {"drafter": name, "step": now.step, "epoch": epoch + 1, "seconds": round(now.seconds, 2),
                        "loss": round(float(loss.detach()), 4), "held_out": told}
                fit.log_line(log, line)
                progress(now.step, settings.steps, line)
            if now.seconds - saved >= settings.save_every:
                fit.save_state(folder, model, optimiser, settings, now)
                saved = now.seconds
        fit.save_state(folder, model, optimiser, settings, now)
    return now


def epoch_log(folder: Path) -> list[dict]:
    """The log of a fit: one line for each epoch."""
    return [json.loads(line) for line in (folder / LOG).read_text().splitlines()]
