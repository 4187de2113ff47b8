"""Fitting: steps until the minutes are used up, saved on the way; a killed fit resumes and repeats the same steps.

The seed and the number of a step alone determine its batch. A save holds weights, the optimiser's state and the time
used, and is written whole or not at all. So a killed run loses the steps since its last save and nothing else.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TextIO

import torch
from torch import Tensor, nn

from specdec_lib.files import write_atomically, write_text, writing
from specdec_lib.training.data.batches import Batch, order, place_seed
from specdec_lib.training.data.features import read_tensors, write_tensors
from specdec_lib.training.losses.objective import Objective
from specdec_lib.training.muon import Muon
from specdec_lib.training.nets.base import Trainable, TrainableDrafter
from specdec_lib.types import Refusal

LOG, STATE = "log.jsonl", "fit.safetensors"
DIVERGED = "the training has diverged, its numbers are not finite: give a smaller --rate, and another --out"
KEPT_LOG = LOG + ".gz"                             # the log beside a finished checkpoint


@dataclass(frozen=True)
class Settings:
    """Length, learning rate and saving of a fit; `steps` instead of `minutes` takes the same steps on any machine."""

    minutes: float = 25.0
    steps: int | None = None
    rate: float = 1e-3
    optimiser: str = "adamw"                       # or muon
    warmup: float = 0.04                           # share of the run
    floor: float = 0.05                            # share of the rate that is left at the end of the cosine
    clip: float = 1.0
    seed: int = 0
    save_every: float = 30.0                       # seconds
    judge_every: float = 180.0                     # least seconds between measurements on held-out prompts
    looking: float = 0.05                          # share of the time that these measurements may take

    def __post_init__(self):
        if self.minutes <= 0 or self.rate <= 0 or self.steps is not None and self.steps < 1:
            raise ValueError(f"minutes, steps and the rate are above 0, got {self.minutes}, {self.steps}, {self.rate}")
        if self.optimiser not in ("adamw", "muon"):
            raise ValueError(f"there is no optimiser {self.optimiser!r}: take adamw or muon")


@dataclass
class Progress:
    """How far a fit has come: steps, seconds of training and target tokens."""

    step: int = 0
    seconds: float = 0.0
    tokens: int = 0


def fit(drafter: TrainableDrafter, groups: Sequence[Sequence[int]], batch_of: Callable[[Sequence[int]], Batch],
        objective: Objective, settings: Settings, folder: Path, judge: Callable[[], dict] | None = None,
        progress: Callable[[Progress, float, dict], None] = lambda now, done, line: None,
        clock: Callable[[], float] = perf_counter) -> Progress:
    """Trains in place and returns how far it came; resumes the fit that `folder` holds, if any.

    `judge()` measures on held-out prompts at the start, every few minutes and at the end; the log keeps what it returns
    (by name of the prompts, so `held_out` and others).
    Raises Refusal where the folder holds another fit or a damaged one, and where there are no groups.
    """
    if not groups:
        raise Refusal("there is nothing to train on: every example was held out, excluded or empty")
    folder.mkdir(parents=True, exist_ok=True)
    optimiser = optimiser_of(drafter, settings)
    now = resume(folder, drafter, optimiser, settings)
    if share_done(now, settings) >= 1:
        return now                                 # a finished fit; its log ends with the last held-out figures
    device = next(drafter.parameters()).device

    def take(now: Progress) -> tuple[int, dict]:
        group = groups[order(len(groups), now.step // len(groups), settings.seed)[now.step % len(groups)]]
        batch = replace(batch_of(group), seed=place_seed(settings.seed, now.step), step=now.step)
        return int(batch.stop.sum()), step(drafter, optimiser, batch.to(device), objective, settings.clip)

    with open_log(folder / LOG, now) as log:
        record = recorder(log, settings, progress)
        look = Looks(judge, log, settings, now, clock) if judge else never
        return run_steps(drafter, optimiser, settings, folder, now, take, record, look, clock)


def recorder(log: TextIO, settings: Settings, progress: Callable[[Progress, float, dict], None]
             ) -> Callable[[Progress, float, dict], None]:
    """What follows each step of a fit: a line in the log, and `progress(now, share done, line)`."""
    def record(now: Progress, rate: float, shown: dict) -> None:
        line = {"step": now.step, "seconds": round(now.seconds, 2), "tokens": now.tokens,
                "rate": float(f"{rate:.6g}")} | shown
        log_line(log, line)
        progress(now, share_done(now, settings), line)
    return record


def run_steps(net: Trainable, optimiser: torch.optim.Optimizer, settings: Settings, folder: Path, now: Progress,
              take: Callable[[Progress], tuple[int, dict]], record: Callable[[Progress, float, dict], None],
              look: Callable[[Progress], bool], clock: Callable[[], float]) -> Progress:
    """The loop of every fit, from `now` to the end of the settings; saves on the way and at the end.

    `take(now)` makes one step and returns its tokens and what to record; `record(now, rate, shown)` follows each step.
    `look(now)` comes before each step and after the last one; True says that it measured, and that time does not count.
    """
    began, saved = clock() - now.seconds, now.seconds
    while (done := share_done(now, settings)) < 1:
        if look(now):
            began = clock() - now.seconds
        rate = set_rate(optimiser, settings.rate * schedule(done, settings))
        tokens, shown = take(now)
        now = Progress(now.step + 1, clock() - began, now.tokens + tokens)
        record(now, rate, shown)
        if now.seconds - saved >= settings.save_every and share_done(now, settings) < 1:   # a fit is whole after a look
            save_state(folder, net, optimiser, settings, now)
            saved = now.seconds
    look(now)
    save_state(folder, net, optimiser, settings, now)
    return now


def never(now: Progress) -> bool:
    """Measures nothing between steps."""
    return False


class Looks:
    """Writes `judge()` into the log at the start of a fit, at its end, and between in at most `looking` of its time."""

    def __init__(self, judge: Callable[[], dict], log: TextIO, settings: Settings, now: Progress,
                 clock: Callable[[], float]):
        self.judge, self.log, self.settings, self.clock = judge, log, settings, clock
        self.judged, self.pause = (now.seconds, settings.judge_every) if now.step else (0.0, 0.0)

    def __call__(self, now: Progress) -> bool:
        last = share_done(now, self.settings) >= 1
        if not last and now.seconds - self.judged < self.pause:
            return False
        started = self.clock()
        log_line(self.log, {"step": now.step, "seconds": now.seconds, "tokens": now.tokens} | self.judge())
        self.pause = max(self.settings.judge_every, (self.clock() - started) / self.settings.looking)
        self.judged = now.seconds
        return True


def optimiser_of(drafter: Trainable, settings: Settings) -> torch.optim.Optimizer:
    """The optimiser of these settings over all of the drafter's parameters."""
    if settings.optimiser == "muon":
        return Muon(drafter.parameters(), lr=settings.rate)
    return torch.optim.AdamW(drafter.parameters(), lr=settings.rate, betas=(0.9, 0.95), weight_decay=0.0)


def step(drafter: TrainableDrafter, optimiser: torch.optim.Optimizer, batch: Batch, objective: Objective,
         clip: float) -> dict:
    """One step on one batch: its loss, the gradient's norm and, by slot, the share of tokens predicted right."""
    optimiser.zero_grad(set_to_none=True)
    with torch.autocast(batch.tokens.device.type, torch.bfloat16, enabled=drafter.frozen.rows.dtype != torch.float32):
        loss, told = objective(drafter, batch)
    size = descend(loss, drafter, optimiser, clip)
    return {"loss": round(float(loss.detach()), 4), "gradient": round(float(size), 3),
            "right": [round(value, 4) for value in told["right"]]}


def descend(loss: Tensor, net: Trainable, optimiser: torch.optim.Optimizer, clip: float) -> Tensor:
    """One update of the parameters against this loss; returns the norm of the gradient before it was clipped.

    Refusal for a loss that is not finite.
    """
    if not loss.isfinite():
        raise Refusal(DIVERGED)
    loss.backward()
    size = nn.utils.clip_grad_norm_(net.parameters(), clip)
    optimiser.step()
    return size


def share_done(now: Progress, settings: Settings) -> float:
    """Share of the run that is done: of its steps if they are given, else of its minutes."""
    return now.step / settings.steps if settings.steps else now.seconds / (60 * settings.minutes)


def schedule(done: float, settings: Settings) -> float:
    """Factor on the learning rate: linear warm-up, then a cosine down to the floor."""
    if done < settings.warmup:
        return max(done, 0.002) / settings.warmup
    rest = min(1.0, (done - settings.warmup) / (1 - settings.warmup))
    return settings.floor + (1 - settings.floor) * 0.5 * (1 + math.cos(math.pi * rest))


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> float:
    """Sets the learning rate and returns it."""
    for group in optimiser.param_groups:
        group["lr"] = rate
    return rate


def save_state(folder: Path, drafter: Trainable, optimiser: torch.optim.Optimizer, settings: Settings,
               now: Progress) -> None:
    """Writes weights, optimiser state and progress into one file, whole or not at all; Refusal if they diverged."""
    if not all(parameter.isfinite().all() for parameter in drafter.parameters()):
        raise Refusal(DIVERGED)
    tensors = {}
    for name, parameter in drafter.named_parameters():
        tensors[f"weight.{name}"] = parameter.detach().cpu().contiguous()
        for kind, value in optimiser.state.get(parameter, {}).items():
            tensors[f"{kind}.{name}"] = value.detach().cpu().contiguous()
    about = {"now": json.dumps(asdict(now)), "settings": fixed_settings(settings)}
    write_tensors(folder / STATE, tensors, about)


def resume(folder: Path, drafter: Trainable, optimiser: torch.optim.Optimizer, settings: Settings) -> Progress:
    """Restores what `save_state` wrote into the net and the optimiser; a new Progress where there is no file.

    Raises Refusal for a damaged file, another shape, other settings, and more steps than are asked for.
    """
    path = folder / STATE
    if not path.is_file():
        return Progress()
    kept = read_tensors(path)
    if kept is None:
        raise Refusal(f"{path} is damaged or cut short: delete it, and the fit starts again")
    tensors, about = kept
    parameters = dict(drafter.named_parameters())
    same = {name: tensor.shape for name, tensor in parameters.items()}
    if {name[7:]: tensor.shape for name, tensor in tensors.items() if name.startswith("weight.")} != same:
        raise Refusal(f"{path} belongs to a drafter of another shape: give another --out, or delete it")
    if {"optimiser": "adamw"} | json.loads(about["settings"]) != json.loads(fixed_settings(settings)):
        raise Refusal(f"{path} was begun with other settings ({about['settings']}): repeat them, or delete it")
    now = Progress(**json.loads(about["now"]))
    if settings.steps is not None and now.step > settings.steps:
        raise Refusal(f"{path} has {now.step} steps, more than the {settings.steps} asked for: give --steps"
                      f" {now.step} or more, or another --out")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[f"weight.{name}"])
            state = {kind: tensors[f"{kind}.{name}"] for kind in ("step", "exp_avg", "exp_avg_sq")
                     if f"{kind}.{name}" in tensors}
            optimiser.state[parameter] = {kind: value if kind == "step" else value.to(parameter.device)
                                          for kind, value in state.items()}
    return now


def fixed_settings(settings: Settings) -> str:
    """The settings that a resumed fit must repeat, as JSON; it may be given more steps or minutes."""
    plain = asdict(settings)
    return json.dumps({name: plain[name] for name in ("rate", "optimiser", "warmup", "floor", "clip", "seed")})


def keep_log(checkpoint: Path, *folders: Path) -> None:
    """Stores the logs of these fits beside their checkpoint, compressed; the same logs give the same bytes."""
    lines = [line + "\n" for folder in folders for line in whole_lines(folder / LOG)]
    packed = gzip.compress("".join(lines).encode(), mtime=0)
    write_atomically(checkpoint / KEPT_LOG, lambda partial: partial.write_bytes(packed))


def read_log(path: Path) -> list[dict]:
    """The records of a log: of a running fit, or compressed beside a finished checkpoint."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return [json.loads(line) for line in text.splitlines()]


def whole_lines(path: Path) -> list[str]:
    """The lines of a log up to the first one that a kill cut off or that is damaged; none where there is no log."""
    kept = []
    with suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            json.loads(line)["step"]
            kept.append(line)
    return kept


@contextmanager
def open_log(path: Path, now: Progress) -> Iterator[TextIO]:
    """The log opened for appending, without the lines written after the last save; DiskFull where it cannot grow."""
    kept = [line for line in whole_lines(path) if now.step and json.loads(line)["step"] <= now.step]
    write_text(path, "".join(line + "\n" for line in kept))
    with writing(path), path.open("a") as log:
        yield log


def log_line(log: TextIO, line: dict) -> None:
    """Appends one record and flushes it."""
    log.write(json.dumps(line) + "\n")
    log.flush()
