"""Fitting: steps until the minutes are used up, saved as it goes, the same steps again after a kill.

What a step sees follows from the seed and its number alone, and a checkpoint holds weights, the optimiser's state and
the time used, written whole or not at all. So a killed run loses the steps since its last save and nothing else.
"""

from __future__ import annotations

import gzip
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter

import torch
from torch import nn

from specdec_lib.training.data.batches import Batch, order
from specdec_lib.training.losses.objective import Objective
from specdec_lib.training.muon import Muon
from specdec_lib.types import Refusal

LOG, STATE = "log.jsonl", "fit.safetensors"
KEPT_LOG = LOG + ".gz"                             # as it lies beside a finished checkpoint


@dataclass(frozen=True)
class Settings:
    """How long and how fast; `steps` instead of `minutes` makes runs repeat exactly on any machine."""

    minutes: float = 25.0
    steps: int | None = None
    rate: float = 1e-3
    optimiser: str = "adamw"                       # or muon
    warmup: float = 0.04                           # share of the run
    floor: float = 0.05                            # of the rate, at the end of the cosine
    clip: float = 1.0
    seed: int = 0
    save_every: float = 30.0                       # seconds
    judge_every: float = 180.0                     # seconds between looks at the held-out prompts, at least
    looking: float = 0.05                          # share of the time that looks may take

    def __post_init__(self):
        if self.minutes <= 0 or self.rate <= 0 or self.steps is not None and self.steps < 1:
            raise ValueError(f"minutes, steps and the rate are above 0, got {self.minutes}, {self.steps}, {self.rate}")
        if self.optimiser not in ("adamw", "muon"):
            raise ValueError(f"there is no optimiser {self.optimiser!r}: take adamw or muon")


@dataclass
class Progress:
    """How far a fit has come."""

    step: int = 0
    seconds: float = 0.0
    tokens: int = 0


def fit(drafter: nn.Module, groups: Sequence[Sequence[int]], batch_of: Callable[[Sequence[int]], Batch],
        objective: Objective, settings: Settings, folder: Path, judge: Callable[[], dict] | None = None,
        progress: Callable[[Progress, float, dict], None] = lambda now, done, line: None,
        clock: Callable[[], float] = perf_counter) -> Progress:
    """Trains in place and returns how far it went; a folder with a fit in it is gone on with.

    `judge()` measures on held-out prompts, at the start, every few minutes and at the end; its words go into the log.
    Raises Refusal where the folder holds another fit or a damaged one.
    """
    if not groups:
        raise Refusal("there is nothing to train on: every example was held out, forbidden or empty")
    folder.mkdir(parents=True, exist_ok=True)
    optimiser = optimiser_of(drafter, settings)
    now = resume(folder, drafter, optimiser, settings)
    if share_done(now, settings) >= 1:
        return now                                 # finished before, and its last look is in the log
    log = open_log(folder / LOG, now)
    device = next(drafter.parameters()).device
    began, saved = clock() - now.seconds, now.seconds
    judged, pause = (now.seconds, settings.judge_every) if now.step else (0.0, 0.0)
    with log:
        while (done := share_done(now, settings)) < 1:
            if judge and now.seconds - judged >= pause:
                stopped = clock()
                held = {"step": now.step, "seconds": now.seconds, "tokens": now.tokens, "held_out": judge()}
                log_line(log, held)
                pause = max(settings.judge_every, (clock() - stopped) / settings.looking)
                began = clock() - now.seconds      # looking is not training
                judged = now.seconds
            rate = rate_at(optimiser, settings.rate * schedule(done, settings))
            batch = batch_of(groups[order(len(groups), now.step // len(groups), settings.seed)[now.step % len(groups)]])
            batch = replace(batch, seed=settings.seed * 1_000_003 + now.step, step=now.step)
            line = step(drafter, optimiser, batch.to(device), objective, settings.clip)
            now = Progress(now.step + 1, clock() - began, now.tokens + int(batch.stop.sum()))
            line = {"step": now.step, "seconds": round(now.seconds, 2), "tokens": now.tokens, "rate": rate} | line
            log_line(log, line)
            progress(now, share_done(now, settings), line)
            if now.seconds - saved >= settings.save_every:
                save_state(folder, drafter, optimiser, settings, now)
                saved = now.seconds
        if judge:
            log_line(log, {"step": now.step, "seconds": now.seconds, "tokens": now.tokens, "held_out": judge()})
        save_state(folder, drafter, optimiser, settings, now)
    return now


def optimiser_of(drafter: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """The optimiser of these settings over all of the drafter's parameters."""
    if settings.optimiser == "muon":
        return Muon(drafter.parameters(), lr=settings.rate)
    return torch.optim.AdamW(drafter.parameters(), lr=settings.rate, betas=(0.9, 0.95), weight_decay=0.0)


def step(drafter: nn.Module, optimiser: torch.optim.Optimizer, batch: Batch, objective: Objective,
         clip: float) -> dict:
    """One step on one batch; what it showed."""
    optimiser.zero_grad(set_to_none=True)
    with torch.autocast(batch.tokens.device.type, torch.bfloat16, enabled=drafter.frozen.rows.dtype != torch.float32):
        loss, told = objective(drafter, batch)
    loss.backward()
    size = nn.utils.clip_grad_norm_(drafter.parameters(), clip)
    optimiser.step()
    return {"loss": round(float(loss.detach()), 4), "gradient": round(float(size), 3),
            "right": [round(value, 4) for value in told["right"]]}


def share_done(now: Progress, settings: Settings) -> float:
    """How much of the run is over: of its steps if they are given, else of its minutes."""
    return now.step / settings.steps if settings.steps else now.seconds / (60 * settings.minutes)


def schedule(done: float, settings: Settings) -> float:
    """Linear warm-up, then a cosine down to the floor."""
    if done < settings.warmup:
        return max(done, 0.002) / settings.warmup
    rest = min(1.0, (done - settings.warmup) / (1 - settings.warmup))
    return settings.floor + (1 - settings.floor) * 0.5 * (1 + math.cos(math.pi * rest))


def rate_at(optimiser: torch.optim.Optimizer, rate: float) -> float:
    for group in optimiser.param_groups:
        group["lr"] = rate
    return rate


def save_state(folder: Path, drafter: nn.Module, optimiser: torch.optim.Optimizer, settings: Settings,
               now: Progress) -> None:
    """Weights and optimiser in one file, renamed into place."""
    from safetensors.torch import save_file

    tensors = {}
    for name, parameter in drafter.named_parameters():
        tensors[f"weight.{name}"] = parameter.detach().cpu().contiguous()
        for kind, value in optimiser.state.get(parameter, {}).items():
            tensors[f"{kind}.{name}"] = value.detach().cpu().contiguous()
    partial = folder / f"{STATE}.partial-{os.getpid()}"
    save_file(tensors, partial, {"now": json.dumps(asdict(now)), "settings": fixed_settings(settings)})
    os.replace(partial, folder / STATE)


def resume(folder: Path, drafter: nn.Module, optimiser: torch.optim.Optimizer, settings: Settings) -> Progress:
    """Takes up what `save` left; the start of a new fit where there is nothing."""
    from safetensors import SafetensorError, safe_open

    path = folder / STATE
    if not path.is_file():
        return Progress()
    try:
        with safe_open(str(path), "pt") as file:
            about = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}        # noqa: SIM118
    except (SafetensorError, OSError):
        raise Refusal(f"{path} is damaged or cut short: delete it and the fit starts again") from None
    parameters = dict(drafter.named_parameters())
    same = {name: tensor.shape for name, tensor in parameters.items()}
    if {name[7:]: tensor.shape for name, tensor in tensors.items() if name.startswith("weight.")} != same:
        raise Refusal(f"{path} belongs to a drafter of another shape: give another --out, or delete it")
    if {"optimiser": "adamw"} | json.loads(about["settings"]) != json.loads(fixed_settings(settings)):
        raise Refusal(f"{path} was begun with other settings ({about['settings']}): repeat them, or delete it")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[f"weight.{name}"])
            state = {kind: tensors[f"{kind}.{name}"] for kind in ("step", "exp_avg", "exp_avg_sq")
                     if f"{kind}.{name}" in tensors}
            optimiser.state[parameter] = {kind: value if kind == "step" else value.to(parameter.device)
                                          for kind, value in state.items()}
    return Progress(**json.loads(about["now"]))


def fixed_settings(settings: Settings) -> str:
    """The settings that a fit may not change on the way; more minutes may be given to it."""
    plain = asdict(settings)
    return json.dumps({name: plain[name] for name in ("rate", "optimiser", "warmup", "floor", "clip", "seed")})


def keep_log(folder: Path, checkpoint: Path) -> None:
    """Puts the log of a fit beside its checkpoint, packed."""
    (checkpoint / KEPT_LOG).write_bytes(packed_log((folder / LOG).read_text()))


def packed_log(log: str) -> bytes:
    """A log as it is kept; the same log gives the same bytes."""
    return gzip.compress(log.encode(), mtime=0)


def read_log(path: Path) -> list[dict]:
    """The lines of a log, of a fit that is under way or of a finished checkpoint."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return [json.loads(line) for line in text.splitlines()]


def open_log(path: Path, now: Progress):
    """The log, without what was written after the last save."""
    kept = []
    if path.is_file():
        for line in path.read_text().splitlines():
            try:
                if json.loads(line)["step"] <= now.step and now.step:
                    kept.append(line)
            except (ValueError, KeyError):
                break                              # a line cut by the kill
    path.write_text("".join(line + "\n" for line in kept))
    return path.open("a")


def log_line(log, line: dict) -> None:
    log.write(json.dumps(line) + "\n")
    log.flush()
