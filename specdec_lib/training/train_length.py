"""`specdec train length-predictor`: labels how many drafted tokens are accepted, and fits a network to predict it.

One predictor for each trained drafter, all in one checkpoint, named as the drafters are on the command line. The target
and the drafters are frozen and read every answer once; the labels are kept on disk, so a killed run resumes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import asdict
from pathlib import Path
from typing import Protocol, TypeVar

from torch import Tensor

from specdec_lib.checkpoints.card import write_card
from specdec_lib.checkpoints.checkpoint_files import SHIPPED, Checkpoint, CheckpointFolder, save_checkpoint
from specdec_lib.checkpoints.fingerprint import fingerprint
from specdec_lib.checkpoints.trainable import training_command
from specdec_lib.files import alone_in, write_text
from specdec_lib.heads.base import Target
from specdec_lib.hub.tokenizer import Tokenizer
from specdec_lib.training.data.batches import order as shuffled
from specdec_lib.training.data.dataset import BATCH, Dataset, batches_of
from specdec_lib.training.data.features import Features, read_features, write_features
from specdec_lib.training.data.length_labels import (
    DRAFTERS,
    UNKNOWN,
    LengthLabels,
    join_labels,
    labelled_positions,
    ready_drafter,
)
from specdec_lib.training.fit import Progress, keep_log
from specdec_lib.training.fit_length import LengthSettings, fit_length
from specdec_lib.training.nets.base import TrainableDrafter
from specdec_lib.training.nets.length import LengthNet, known_labels, length_figures, predict
from specdec_lib.training.pipeline import TrainingOrder, prepare_dataset
from specdec_lib.training.recipes import LENGTH
from specdec_lib.training.time_budget import TimeBudget
from specdec_lib.types import Refusal

READING = 0.75                                     # share of the remaining minutes for reading answers
HELD = 0.1                                         # share of positions to measure with, added to those to learn from
Part = TypeVar("Part", bound=Sized)                # the labelled positions of a batch


class Positions(Protocol):
    """The last tokens of positions, and the target's states there."""

    @property
    def tokens(self) -> Tensor: ...
    @property
    def states(self) -> Tensor: ...


class ReadingSettings(Protocol):
    """What decides which positions are read."""

    @property
    def longest(self) -> int: ...
    @property
    def positions(self) -> int: ...
    @property
    def seed(self) -> int: ...


def train_length(asked: LengthSettings, order: TrainingOrder, target: Target, text: Tokenizer, made: Mapping,
                 say: Callable[[str], None] = lambda line: None,
                 progress: Callable[[int, int, str], None] = lambda done, total, what: None,
                 prepare: Callable[..., Dataset] | None = None, shipped: Path = SHIPPED) -> Checkpoint:
    """Trains, measures and stores the predictors of these drafters, which are in `order.out`, else shipped.

    `prepare` is as for `train_drafter`.
    """
    deadline = TimeBudget(order.minutes)
    stored = find_drafters(asked.drafters, order, target, text, say, shipped)
    lessons = (prepare or prepare_dataset)(order, target, text, deadline, say, progress)
    folder = order.out / "work" / LENGTH
    drafters = {DRAFTERS[name]: ready_drafter(name, one, target) for name, one in stored.items()}
    sums = {DRAFTERS[name]: one.card["sha256"] for name, one in stored.items()}
    train, held, texts = read_positions(asked, lessons, drafters, sums, target, text.facts.end, folder, deadline,
                                        progress)
    say(f"{len(train):,} positions of {texts[0]} answers to train on, {len(held):,} of {texts[1]} to measure with")
    settings = {key: value for key, value in asdict(asked).items() if key != "drafters"}
    state, places, minutes = {}, [], 0.0

    def shown(step: int, steps: int, line: dict) -> None:
        progress(step, steps, f"{line['drafter']}, off by {line['held_out']['mae']:.2f}")

    for name in drafters:
        say(f"training the length predictor of {name}")
        model = LengthNet(target.weights.embedding, target.shape.eps, asked.hidden, asked.seed).to(target.device)
        key = [*settings.values(), str(target.dtype), sums[name], sum_of(train, held)]
        places.append(folder / f"{name}-{settings_name(key)}")
        minutes += fit_alone(fit_length, (model, name, train, held, asked), places[-1], deadline, shown) / 60
        state |= model.state(name)
    about = {"target": order.target, "limits": card_limits(asked, drafters),
             "made": {**made, "minutes": round(deadline.used / 60, 1),
                      "minutes of fits": round(minutes, 2), "positions": len(train), "answers": texts[0],
                      "tokens_seen": int(sum(len(known_labels(labels))
                                             for labels in train.labels.values())) * asked.epochs,
                      "device": str(target.device),
                      "data": lessons.sources},
             "settings": {**settings, "drafters": sums}, "measured": {}}
    meta = {"longest": asked.longest, "drafters": sums}
    done = save_checkpoint(order.out, LENGTH, state, meta, about, {}, None, fingerprint(target, text))
    card = {**done.card, "measured": {"held-out": stored_figures(done, held, asked, target)}}
    write_card(order.out, LENGTH, card)
    keep_log(order.out / LENGTH, *places)
    return Checkpoint(done.name, done.state, done.meta, card)


def fit_alone(fit: Callable[..., Progress], given: Sequence, folder: Path, deadline: TimeBudget,
              progress: Callable[[int, int, dict], None]) -> float:
    """The seconds of `fit(*given, folder, progress)`, counted once; Refusal while another process fits in the folder.
    """
    begun = deadline.used
    with alone_in(folder):
        seconds = fit(*given, folder, progress).seconds
    deadline.count(seconds, begun)
    return seconds


def find_drafters(names: Sequence[str], order: TrainingOrder, target: Target, text: Tokenizer, say: Callable,
                  shipped: Path) -> dict[str, Checkpoint]:
    """The drafters by name, from `order.out` or shipped. Refusal if a checkpoint is missing or incompatible."""
    out = {}
    for name in names:
        found = find_drafter(name, order, target, text, say, shipped)
        if found is None:
            raise Refusal(f"a length predictor needs its drafter, and there is no {name} in {order.out}: "
                          f"{training_command(name, order.given, order.out)} makes it, --drafters leaves it out")
        out[name] = found
    return out


def find_drafter(name: str, order: TrainingOrder, target: Target, text: Tokenizer, say: Callable,
                 shipped: Path) -> Checkpoint | None:
    """The drafter in `order.out`, else the shipped one; None if neither is there. Refusal if it is incompatible."""
    called = order.given or order.target
    shelves = (CheckpointFolder(place, target, text, called, say) for place in (order.out, shipped))
    return next((shelf[name] for shelf in shelves if name in shelf), None)


def read_positions(asked: LengthSettings, lessons: Dataset, drafters: Mapping[str, TrainableDrafter],
                   sums: Mapping[str, str], target: Target, end: frozenset[int], folder: Path,
                   deadline: TimeBudget, progress: Callable[[int, int, str], None]
                   ) -> tuple[LengthLabels, LengthLabels, tuple[int, int]]:
    """Labelled positions to learn from, those to measure with, and how many answers each comes from.

    The number of batches that were read in time is stored in `folder`, so that a resumed run learns from the same.
    Raises Refusal where there is no greedy answer.
    """
    groups = greedy_groups(lessons, asked.seed)
    path = folder / f"read-{batches_key(asked, lessons, sums, groups)}.json"
    reader = PositionReader(asked, lessons, drafters, sums, target, end, folder / "places")
    train, held = read_once(path, reader, groups, lessons.held, asked.positions, deadline, progress)
    return join_labels(train), join_labels(held), read_texts(groups, train, lessons.held, held)


def read_once(path: Path, reader: Callable[[Sequence[int]], Part], groups: Sequence, held_groups: Sequence,
              positions: int, deadline: TimeBudget, progress: Callable[[int, int, str], None], share: float = HELD
              ) -> tuple[list[Part], list[Part]]:
    """What is read in time, to learn from and to measure with; a second call reads as many batches as the first.

    Their numbers, and the seconds that reading took, are stored in the file `path`.
    """
    begun = deadline.used
    try:
        *counts, seconds = [*json.loads(path.read_text()), 0.0][:3]                # no seconds: an older file
    except (OSError, ValueError, TypeError, RecursionError):                       # none, or a damaged one
        counts, seconds = [], 0.0
    if len(counts) == 2:
        train, held = ([reader(group) for group in part[:count]] for part, count in
                       zip((groups, held_groups), counts, strict=True))
        deadline.count(seconds, begun)
        return train, held
    train, held = read_in_time(reader, groups, held_groups, positions, deadline, progress, share)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps([len(train), len(held), deadline.used - begun]))
    return train, held


def read_texts(groups: Sequence, train: Sequence, held_groups: Sequence, held: Sequence) -> tuple[int, int]:
    """How many answers the batches that were read hold: to learn from, and to measure with."""
    return sum(map(len, groups[:len(train)])), sum(map(len, held_groups[:len(held)]))


def greedy_groups(lessons: Dataset, seed: int) -> list[Sequence[int]]:
    """Batches of the greedy training answers in random order; Refusal where there is none."""
    greedy = [i for group in lessons.train for i in group if lessons.data[i].temperature == 0]
    groups = batches_of(lessons.data, greedy, BATCH["cpu"])
    if not groups:
        raise Refusal("lengths are learned from greedy answers, and there is none to train on: give other --data")
    return [groups[i] for i in shuffled(len(groups), 0, seed)]


def batches_key(asked: ReadingSettings, lessons: Dataset, sums: Mapping[str, str], groups: Sequence) -> str:
    """A name that changes with everything that decides which batches are read."""
    return settings_name([asked.longest, asked.positions, asked.seed, sums,
                          [[lessons.data[i].tokens for i in group] for group in (*groups, *lessons.held)], len(groups)])


def sum_of(*parts: Positions) -> str:
    """A checksum of what was read: a fit goes on with the same alone."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part.tokens.numpy().tobytes() + part.states.numpy().tobytes())
    return found.hexdigest()[:24]


class PositionReader:
    """The labelled positions of a batch: from disk if they are there, else from the target and the drafters."""

    def __init__(self, asked: LengthSettings, lessons: Dataset, drafters: Mapping[str, TrainableDrafter],
                 sums: Mapping[str, str], target: Target, end: frozenset[int], folder: Path):
        self.asked, self.lessons, self.drafters, self.sums = asked, lessons, drafters, sums
        self.target, self.end, self.folder = target, end, folder
        self.levels = sorted({target.layers, *(level for drafter in drafters.values() for level in drafter.levels)})
        self.features = Features(target, lessons.data, self.levels, None)

    def __call__(self, group: Sequence[int]) -> LengthLabels:
        tokens = [self.lessons.data[i].tokens for i in group]
        key = [self.asked.longest, str(self.target.dtype), self.levels, self.sums, tokens]
        path = self.folder / f"{settings_name(key)}.safetensors"
        kept = read_features(path)
        if kept is None:
            batch = self.features(group, self.levels).to(self.target.device)
            made = labelled_positions(self.target, batch, self.drafters, self.asked.longest, self.end)
            kept = {"tokens": made.tokens, "states": made.states, **{f"label.{k}": v for k, v in made.labels.items()}}
            write_features(path, kept)
        return LengthLabels(kept["tokens"], kept["states"], {who: kept[f"label.{who}"] for who in self.drafters})


def read_in_time(reader: Callable[[Sequence[int]], Part], groups: Sequence, held_groups: Sequence, positions: int,
                 deadline: TimeBudget, progress: Callable[[int, int, str], None], held_share: float = HELD
                 ) -> tuple[list[Part], list[Part]]:
    """Batches to learn from and to measure with, until `positions` are read or their share of the time is used.

    Those to measure with are `held_share` more.
    """
    def some(groups: Sequence, positions: float, share: float, before: int) -> list[Part]:
        out, size = [], 0
        for part in deadline.cut(map(reader, groups), share):
            out.append(part)
            size += len(part)
            progress(before + size, total, "positions read")
            if size >= positions:
                break
        return out

    total = round(positions * (1 + held_share))
    share = READING * held_share / (1 + held_share)
    held = some(held_groups, positions * held_share, share, 0)
    train = some(groups, positions, (READING - share) / (1 - share), sum(map(len, held)))
    return train, held


def stored_figures(stored: Checkpoint, held: LengthLabels, asked: LengthSettings, target: Target) -> dict:
    """Held-out figures of the stored predictors by drafter, and how many positions have no label."""
    out = {}
    for name in held.labels:
        model = LengthNet(target.weights.embedding, target.shape.eps, asked.hidden).to(target.device)
        model.take(stored.state, name)
        rows = known_labels(held.labels[name])
        out[name] = {**length_figures(predict(model, held, rows), held.labels[name][rows], asked.longest, asked.weight),
                     "positions_without_label": int((held.labels[name] == UNKNOWN).sum())}
    return out


def settings_name(words: Sequence) -> str:
    """A short name that changes with these values."""
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:24]


def card_limits(asked: LengthSettings, drafters: Mapping[str, TrainableDrafter]) -> list[str]:
    """The limits on the card."""
    return [f"Each predictor belongs to one drafter ({', '.join(drafters)}), the very checkpoint that settings name by "
            "its checksum; with another one it is a guess, lossless all the same.",
            f"Trained on greedy chains of at most {asked.longest} tokens; when sampling, fewer tokens are kept than it "
            "says, and it knows nothing of trees.",
            f"It leans to long drafts: one that is too short weighs {asked.weight:g} times as much in its loss.",
            "Places where a streak ran into the end of an answer that was cut tell no length and were left out."]
