"""A toy for length predictors: a small random target, its trained drafter, and predictors fitted in a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from specdec_lib import catalog
from specdec_lib.cards import Kit
from specdec_lib.checkpoints.checkpoint_files import Checkpoint
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.replay import Recording
from specdec_lib.recordings.record import record
from specdec_lib.toys.tiny_target import NAME, ROWS, ToyText, fit_toy, toy_answers, toy_target, unsaved_checkpoint
from specdec_lib.training.data.dataset import make_dataset
from specdec_lib.training.data.features import Features
from specdec_lib.training.data.length_labels import LengthLabels, join_labels, labelled_positions, ready_drafter
from specdec_lib.training.fit_length import LengthSettings, epoch_log, fit_length
from specdec_lib.training.nets.length import LengthNet

DRAFTER = "eagle"


@dataclass(frozen=True)
class LengthToy:
    """A small random target, its trained drafter, labelled positions and recordings."""

    target: Transformer
    drafter: Checkpoint
    train: LengthLabels
    held: LengthLabels
    recordings: Mapping[str, Recording]


@dataclass(frozen=True)
class FittedPredictor:
    """A predictor's tensors as a checkpoint keeps them, and a log line for each epoch."""

    state: Mapping[str, torch.Tensor]
    lines: tuple[dict, ...]


def length_toy(longest: int = 6, steps: int = 60, answers: int = 280, texts: int = 6, tokens: int = 40) -> LengthToy:
    """A drafter of `steps` steps, labels from greedy answers, recordings of others."""
    target = toy_target()
    with TemporaryDirectory() as folder:
        lessons = make_dataset(target, ToyText(), toy_answers(target, answers), Path(folder) / "features", rows=ROWS,
                               batch=256)
        drafter = unsaved_checkpoint(DRAFTER, fit_toy(DRAFTER, target, lessons, Path(folder), steps)[1])
    module = {DRAFTER: ready_drafter(DRAFTER, drafter, target)}
    levels = sorted({target.layers, *module[DRAFTER].levels})
    features = Features(target, lessons.data, levels, None)
    greedy = [[i for i in group if lessons.data[i].temperature == 0] for group in lessons.train]
    train, held = (join_labels([labelled_positions(target, features(group, levels), module, longest)
                                for group in groups if group])
                   for groups in (greedy, lessons.held))
    recordings = {f"{NAME} {number}": toy_recording(target, drafter, one["prompt"], tokens, longest)
                  for number, one in enumerate(toy_answers(target, texts, seed=1), 1)}
    return LengthToy(target, drafter, train, held, recordings)


def toy_recording(target: Transformer, drafter: Checkpoint, prompt: str, tokens: int, longest: int) -> Recording:
    """The toy's greedy answer, with the drafter's chain from every position."""
    text = ToyText()
    about = {"family": NAME, "end": [], "vocab": target.vocab, "target": {"name": NAME},
             "pieces": {str(token): f" {token}" for token in range(target.vocab)}}
    kit = Kit(target.fresh(), text.facts, checkpoints={DRAFTER: drafter}, parts=catalog.make_part)
    return record(text.encode_chat([prompt]), kit, (DRAFTER,), tokens, (longest,), about)


def fit_toy_predictor(toy: LengthToy, weight: float = 3.0, longest: int = 6, epochs: int = 6,
                      seed: int = 0) -> FittedPredictor:
    """A predictor of the toy's lengths; `weight` is the loss weight of too short a draft."""
    asked = LengthSettings((DRAFTER,), longest, weight, epochs=epochs, batch=64, rate=3e-3, hidden=32, seed=seed)
    model = LengthNet(toy.target.weights.embedding, toy.target.shape.eps, asked.hidden, seed)
    with TemporaryDirectory() as folder:
        fit_length(model, DRAFTER, toy.train, toy.held, asked, Path(folder))
        return FittedPredictor(model.state(DRAFTER), tuple(epoch_log(Path(folder))))
