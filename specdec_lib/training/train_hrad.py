"""`specdec train h-rad`: labels pending drafts of the small draft model by their fate, and fits a classifier to them.

The target and the draft model are frozen and read every answer once; what was read is kept on disk, so a killed run
resumes. The card compares the stored classifier on held-out drafts with the majority class and with the class that the
trained length predictor gives, where there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from specdec_lib.checkpoints.card import write_card
from specdec_lib.checkpoints.checkpoint_files import SHIPPED, Checkpoint, save_checkpoint
from specdec_lib.checkpoints.fingerprint import fingerprint
from specdec_lib.checkpoints.trainable import LENGTH, training_command
from specdec_lib.heads.base import Target
from specdec_lib.heads.hrad import CLASSES, DRAFTER, NAME, last_levels
from specdec_lib.hub.tokenizer import Tokenizer
from specdec_lib.schedules.cut import length_class
from specdec_lib.training.data.dataset import Dataset
from specdec_lib.training.data.features import Features, read_features, write_features
from specdec_lib.training.data.length_labels import DRAFTERS, LengthLabels, ready_drafter
from specdec_lib.training.data.pending_drafts import PendingDrafts, classes_of, join_drafts, pending_drafts
from specdec_lib.training.fit import keep_log
from specdec_lib.training.fit_hrad import HradSettings, fit_hrad
from specdec_lib.training.nets.base import TrainableDrafter
from specdec_lib.training.nets.hrad import HradNet, class_figures, class_weights, classify, paired_counts
from specdec_lib.training.nets.length import LengthNet, predict
from specdec_lib.training.pipeline import TrainingOrder, prepare_dataset
from specdec_lib.training.time_budget import TimeBudget
from specdec_lib.training.train_length import (
    batches_key,
    find_drafter,
    fit_alone,
    greedy_groups,
    read_once,
    read_texts,
    settings_name,
    sum_of,
)
from specdec_lib.types import Refusal

HELD_DRAFTS = 0.25                                 # share of drafts to measure with, added to those to learn from


def train_hrad(asked: HradSettings, order: TrainingOrder, target: Target, text: Tokenizer, made: Mapping,
               say: Callable[[str], None] = lambda line: None,
               progress: Callable[[int, int, str], None] = lambda done, total, what: None,
               prepare: Callable[..., Dataset] | None = None, shipped: Path = SHIPPED) -> Checkpoint:
    """Trains, measures and stores the classifier of the draft model in `order.out`, else of the shipped one.

    `prepare` is as for `train_drafter`.
    """
    deadline = TimeBudget(order.minutes)
    stored = find_drafter(DRAFTER, order, target, text, say, shipped)
    if stored is None:
        raise Refusal(f"{NAME} predicts the fate of the draft model's tokens, and there is no {DRAFTER} in {order.out}:"
                      f" {training_command(DRAFTER, order.given, order.out)} makes it")
    lessons = (prepare or prepare_dataset)(order, target, text, deadline, say, progress)
    folder, levels = order.out / "work" / NAME, last_levels(target.layers, asked.layers)
    reader = PendingReader(asked, lessons, ready_drafter(DRAFTER, stored, target), stored.card["sha256"], target,
                           text.facts.end, folder / "places")
    groups, sums = greedy_groups(lessons, asked.seed), {DRAFTER: stored.card["sha256"], "levels": levels}
    path = folder / f"read-{batches_key(asked, lessons, sums, groups)}.json"
    parts = read_once(path, reader, groups, lessons.held, asked.positions, deadline, progress, HELD_DRAFTS)
    (train, held), texts = map(join_drafts, parts), read_texts(groups, parts[0], lessons.held, parts[1])
    say(f"{len(train):,} pending drafts of {texts[0]} answers to train on, {len(held):,} of {texts[1]} to measure with")
    model = new_net(asked, target, asked.dropout)
    place = folder / settings_name([*asdict(asked).values(), str(target.dtype), stored.card["sha256"],
                                    sum_of(train, held)])
    seconds = fit_alone(fit_hrad, (model, train, held, asked), place, deadline, lambda step, steps, line: progress(
        step, steps, f"{line['held_out']['accuracy']:.1%} right"))
    about = {"target": order.target, "limits": card_limits(asked),
             "made": {**made, "minutes": round(deadline.used / 60, 1),
                      "minutes of the fit": round(seconds / 60, 2), "pending drafts": len(train),
                      "answers": texts[0], "tokens_seen": len(train) * asked.epochs, "device": str(target.device),
                      "data": lessons.sources},
             "settings": {**asdict(asked), "drafter": stored.card["sha256"]} | class_shares(train, asked),
             "measured": {}}
    meta = {"longest": asked.longest, "levels": list(levels), "drafter": stored.card["sha256"]}
    done = save_checkpoint(order.out, NAME, model.state(), meta, about, {}, None, fingerprint(target, text))
    rival = length_predictor_for(stored, order, target, text, say, shipped)
    card = {**done.card, "measured": {"held-out": stored_figures(done, train, held, asked, target, rival)}}
    write_card(order.out, NAME, card)
    keep_log(order.out / NAME, place)
    return Checkpoint(done.name, done.state, done.meta, card)


def length_predictor_for(drafter: Checkpoint, order: TrainingOrder, target: Target, text: Tokenizer,
                         say: Callable[[str], None], shipped: Path) -> Checkpoint | None:
    """The length predictor of this very draft model, to compare with; None where there is none, or another's."""
    try:
        found = find_drafter(LENGTH, order, target, text, say, shipped)
    except Refusal:                                # the shipped one is of another target
        return None
    whose = {} if found is None else found.meta.get("drafters", {})
    return found if whose.get(DRAFTERS[DRAFTER]) == drafter.card["sha256"] else None


class PendingReader:
    """The pending drafts of a batch: from disk if they are there, else from the target and the draft model."""

    def __init__(self, asked: HradSettings, lessons: Dataset, drafter: TrainableDrafter, sha256: str, target: Target,
                 end: frozenset[int], folder: Path):
        self.asked, self.lessons, self.drafter, self.sha256 = asked, lessons, drafter, sha256
        self.target, self.end, self.folder = target, end, folder
        self.levels = last_levels(target.layers, asked.layers)
        self.features = Features(target, lessons.data, sorted({*self.levels, *drafter.levels}), None)

    def __call__(self, group: Sequence[int]) -> PendingDrafts:
        tokens = [self.lessons.data[i].tokens for i in group]
        name = settings_name([self.asked.longest, str(self.target.dtype), self.levels, self.sha256, tokens])
        kept = read_features(self.folder / f"{name}.safetensors")
        if kept is not None:
            return PendingDrafts(kept["tokens"], kept["states"], kept["accepted"])
        batch = self.features(group, self.features.levels).to(self.target.device)
        made = pending_drafts(batch, self.drafter, self.levels, self.asked.longest, self.end)
        write_features(self.folder / f"{name}.safetensors",
                       {"tokens": made.tokens, "states": made.states, "accepted": made.accepted})
        return made


def new_net(asked: HradSettings, target: Target, dropout: float = 0.0) -> HradNet:
    """The network of these settings before its first step, on the target's device."""
    return HradNet(target.weights.embedding, target.shape.eps, len(last_levels(target.layers, asked.layers)),
                   asked.hidden, asked.narrow, dropout, asked.seed).to(target.device)


def class_shares(train: PendingDrafts, asked: HradSettings) -> dict:
    """How often each class is among the drafts to learn from, and its weight in the loss."""
    labels = classes_of(train.accepted, asked.longest)
    counts, weights = torch.bincount(labels, minlength=len(CLASSES)), class_weights(labels, asked.balance)
    return {"share of each class": {name: round(float(n) / len(labels), 4)
                                    for name, n in zip(CLASSES, counts, strict=True)},
            "weight of each class": {name: round(float(w), 3) for name, w in zip(CLASSES, weights, strict=True)}}


def stored_figures(stored: Checkpoint, train: PendingDrafts, held: PendingDrafts, asked: HradSettings, target: Target,
                   lengths: Checkpoint | None) -> dict:
    """Held-out figures of the stored network, of the training drafts' majority class, and of the length predictor."""
    model = new_net(asked, target)
    model.take(stored.state)
    found, labels = classify(model, held), classes_of(held.accepted, asked.longest)
    usual = int(classes_of(train.accepted, asked.longest).bincount().argmax())
    out = {NAME: class_figures(found, labels),
           "majority": {"class": CLASSES[usual], "accuracy": round(float((labels == usual).float().mean()), 4)}
           | paired_counts(found, torch.full_like(labels, usual), labels)}
    other = None if lengths is None else classes_by_length(lengths, held, asked.longest, target)
    return out if other is None else out | {LENGTH: class_figures(other, labels) | paired_counts(found, other, labels)}


def classes_by_length(stored: Checkpoint, held: PendingDrafts, longest: int, target: Target) -> Tensor | None:
    """The classes [n] by the length predictor's numbers for the draft model; None where it has none for it."""
    who = DRAFTERS[DRAFTER]
    if f"{who}.out.weight" not in stored.state:
        return None
    model = LengthNet(target.weights.embedding, target.shape.eps, len(stored.state[f"{who}.first.bias"]))
    model.take(stored.state, who)
    places = LengthLabels(held.tokens, held.states[:, -1], {})
    numbers = predict(model.to(target.device), places, torch.arange(len(held)))
    return torch.tensor([length_class(number, longest) for number in numbers.tolist()])


def card_limits(asked: HradSettings) -> list[str]:
    """The limits on the card."""
    return [f"It belongs to the very {DRAFTER} that settings name by its checksum; with another drafter it is a guess, "
            "lossless all the same.",
            f"`all` means {asked.longest} accepted tokens, greedily: what stays of a draft of {asked.longest + 1} of "
            "which the first is accepted. For another length of drafts, and when sampling, its classes are shifted.",
            "Trained where the draft model's likeliest token was right: behind a second branch it has seen nothing.",
            "Drafts that ran into the end of an answer that was cut have no class and were left out."]
