"""What a length predictor foresees along recorded texts, and a toy to train some on the spot.

The numbers of all places of a text come from one forward of the target, which is what decoding would have asked it
place by place. With them a recording can be walked under the policy without any model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from specdec_lib import catalog
from specdec_lib.bench.record import record
from specdec_lib.models.heads.length import LengthWeights, predicted
from specdec_lib.models.replay import Recording
from specdec_lib.models.shelf import Checkpoint
from specdec_lib.models.transformer import Transformer
from specdec_lib.training.course import course
from specdec_lib.training.features import Features
from specdec_lib.training.length import Length
from specdec_lib.training.length_fit import Lengths, fit_length, looks
from specdec_lib.training.length_labels import DRAFTERS, Places, joined, places, ready
from specdec_lib.training.toy import NAME, ROWS, ToyText, bare, fitted, toy_answers, toy_target
from specdec_lib.types import Kit

DRAFTER = "eagle"
WHO = {"eagle2": "eagle", **DRAFTERS}              # whose chains a recording calls so
Numbers = Mapping[tuple[int, ...], float]          # by the tokens known so far: what the predictor says


@dataclass(frozen=True)
class Toy:
    """A small random target, its trained drafter, places to learn lengths from and to measure with, and recordings."""

    target: Transformer
    drafter: Checkpoint
    train: Places
    held: Places
    tapes: Mapping[str, Recording]


@dataclass(frozen=True)
class Fitted:
    """A predictor that was fitted on the spot: its tensors as a checkpoint keeps them, and a line for each epoch."""

    state: Mapping[str, torch.Tensor]
    lines: tuple[dict, ...]


def foreseen(target: Transformer, state: Mapping[str, torch.Tensor], tape: Recording,
             drafter: str = DRAFTER) -> Numbers:
    """The number at every place of a recorded text of this target. Refusal where the tensors do not fit it."""
    weights, lm = LengthWeights.pack(state, drafter, target), target.fresh()
    lm.tap((target.layers,))
    lm.prefill(tape.tokens)
    with torch.inference_mode():
        states = lm.features(tape.tokens)[:-1, -1]
        embedded = target.weights.embedding[torch.tensor(tape.tokens[1:], device=target.device)]
        numbers = predicted(embedded, states, weights.matrices, weights.biases, target.shape.eps).tolist()
    return {tape.tokens[:length]: numbers[length - 2] for length in range(max(2, tape.prompt), len(tape.tokens))}


def toy(longest: int = 6, steps: int = 60, answers: int = 280, texts: int = 6, tokens: int = 40) -> Toy:
    """The toy, a head trained for so many steps, places of its greedy answers, and other answers with its chains."""
    target = toy_target()
    with TemporaryDirectory() as folder:
        lessons = course(target, ToyText(), toy_answers(target, answers), Path(folder) / "features", rows=ROWS,
                         batch=1024)
        drafter = bare(DRAFTER, fitted(DRAFTER, target, lessons, Path(folder), steps)[1])
    module = {DRAFTER: ready(DRAFTER, drafter, target)}
    levels = sorted({target.layers, *module[DRAFTER].levels})
    features = Features(target, lessons.data, levels, None)
    greedy = [[i for i in group if lessons.data[i].temperature == 0] for group in lessons.train]
    train, held = (joined([places(target, features(group, levels), module, longest) for group in groups if group])
                   for groups in (greedy, lessons.held))
    return Toy(target, drafter, train, held, {f"{NAME} {place}": taped(target, drafter, one["prompt"], tokens, longest)
                                              for place, one in enumerate(toy_answers(target, texts, seed=1), 1)})


def taped(target: Transformer, drafter: Checkpoint, prompt: str, tokens: int, longest: int) -> Recording:
    """The toy's greedy answer to a prompt, with the head's chain from every place."""
    text = ToyText()
    about = {"family": NAME, "end": [], "vocab": target.vocab, "target": {"name": NAME},
             "pieces": {str(token): f" {token}" for token in range(target.vocab)}}
    kit = Kit(target.fresh(), text.facts, checkpoints={DRAFTER: drafter}, parts=catalog.make_part)
    return record(text.encode_chat([prompt]), kit, (DRAFTER,), tokens, (longest,), about)


def fitted_toy(world: Toy, weight: float = 3.0, longest: int = 6, epochs: int = 6, seed: int = 0) -> Fitted:
    """A predictor of the toy's lengths, trained in a second with this weight of a draft that is too short."""
    asked = Lengths((DRAFTER,), longest, weight, epochs=epochs, batch=64, rate=3e-3, hidden=32, seed=seed)
    model = Length(world.target.weights.embedding, world.target.shape.eps, asked.hidden, seed)
    with TemporaryDirectory() as folder:
        fit_length(model, DRAFTER, world.train, world.held, asked, Path(folder))
        return Fitted(model.state(DRAFTER), tuple(looks(Path(folder))))
