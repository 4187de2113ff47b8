"""A toy target to train drafters for in seconds: a small random decoder, its answers, and a text made of numbers.

The decoder is untrained, but its next token depends on its last few, so a drafter can learn to predict it. The toy
shows how training works; only a real model shows how well a drafter does for a real model.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from specdec_lib.cards import TokenizerFacts
from specdec_lib.checkpoints.checkpoint_files import Checkpoint
from specdec_lib.hub.chat_template import History
from specdec_lib.models.llama.batched import BatchedLlama
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.weights import random_weights
from specdec_lib.training.data.batched_sampling import Request, sample_batched
from specdec_lib.training.data.dataset import Dataset, make_dataset
from specdec_lib.training.data.shards import Record
from specdec_lib.training.eval.decoding import decode_live, evenly
from specdec_lib.training.eval.teacher_forced import Tally, sum_tallies, tallies
from specdec_lib.training.fit import Settings, fit
from specdec_lib.training.nets.base import TrainableDrafter
from specdec_lib.training.recipes import DEPTH, Recipe, checkpoints_for, recipe, spec_of, start

NAME = "toy"
SHAPE = LlamaConfig(layers=6, hidden=64, heads=4, kv_heads=2, head_dim=16, mlp=128, vocab=96, context=256)
SPREAD = 0.08                                      # of the weights: small ones make the last token matter most
SHARPNESS = 3.0                                    # of its distributions, by the last norm
RATE = 3e-3                                        # of learning
PROMPTS = 8                                        # held-out prompts decoded for real
ROWS = 64                                          # size of the drafters' vocabulary; some tokens lie outside


class ToyText:
    """Stands in for a tokenizer: a token is written as its number."""

    facts = TokenizerFacts(vocab=SHAPE.vocab)

    def encode_chat(self, history: History) -> tuple[int, ...]:
        last = history[-1]
        return tuple(map(int, (last if isinstance(last, str) else last[1]).split()))

    def decode(self, ids: Iterable[int]) -> str:
        return " ".join(map(str, ids))

    def name(self, token: int) -> str:
        return str(token)


def toy_target(seed: int = 0) -> Transformer:
    """Six random layers over 96 tokens, in float32."""
    weights = random_weights(SHAPE, seed, scale=SPREAD)
    return Transformer(replace(weights, norm=weights.norm * SHARPNESS))


def toy_answers(target: Transformer, count: int = 400, length: int = 48, seed: int = 0) -> list[Record]:
    """Its answers to `count` prompts of eight random tokens, `length` tokens each, every other one greedy."""
    dice = random.Random(seed)
    asked = iter([Request(tuple(dice.randrange(target.vocab) for _ in range(8)), length, float(i % 2), i)
                  for i in range(count)])
    return [{"source": NAME, "temperature": reply.request.temperature, "output": list(reply.output),
             "prompt": ToyText().decode(reply.request.prompt)}
            for reply in sample_batched(BatchedLlama(target.weights), lambda: next(asked, None), (), length, rows=64)]


def toy_checkpoint(name: str, target: Transformer, steps: int = 80, base: Checkpoint | None = None) -> Checkpoint:
    """The drafter of any recipe but draft-lm after so many steps on the toy's answers, measured like shipped ones.

    A recipe that starts from another checkpoint uses `base`, or trains one first for as many steps.
    """
    with TemporaryDirectory() as folder:
        said = toy_answers(target, answers_for(steps))
        lessons = make_dataset(target, ToyText(), said, Path(folder) / "features", rows=ROWS, batch=256)
        which, drafter = fit_toy(name, target, lessons, Path(folder), steps, base)
        made = unsaved_checkpoint(name, drafter)
        parts = which.parts(made.meta)
        models = {"teacher-forced": drafter, "as it starts": start(which, target, lessons),
                  "from random weights": start(which, target, lessons, random=True)}
        found = {when: tallies(model, lessons.held_out(model.levels), DEPTH) for when, model in models.items()}
        prompts = evenly(lessons.data, lessons.held, PROMPTS)
    found["live"] = [decode_live(spec_of(which, part), target, ToyText.facts, prompts,
                                 checkpoints_for(which, made)) for part in parts]
    measured = {when: toy_rates(name, parts, each) for when, each in found.items()}
    return replace(made, card={"name": name, "measured": measured})


def answers_for(steps: int) -> int:
    """How many answers a toy's drafter is taught with: fewer for a quick run, where most of the time makes them."""
    return max(120, min(400, 5 * steps))


def fit_toy(name: str, target: Transformer, lessons: Dataset, folder: Path, steps: int,
            base: Checkpoint | None = None) -> tuple[Recipe, TrainableDrafter]:
    """The recipe with its base, which is trained first unless it is given, and its drafter after so many steps."""
    which = recipe(name)
    if which.upon:
        base = base or unsaved_checkpoint(which.upon, fit_toy(which.upon, target, lessons, folder, steps)[1])
        which = replace(which, base=base)
    drafter = start(which, target, lessons)
    fit(drafter, lessons.train, lambda group: lessons.features(group, drafter.levels), which.objective,
        Settings(steps=steps, rate=RATE), folder / f"fit-{name}")
    return which, drafter


def unsaved_checkpoint(name: str, drafter: TrainableDrafter) -> Checkpoint:
    """A drafter as a checkpoint in memory."""
    return Checkpoint(name, {key: tensor.detach() for key, tensor in drafter.state().items()}, drafter.meta(), {})


def toy_rates(name: str, parts: Sequence[str], found: Sequence[dict[str, Tally]]) -> dict:
    """Rates of each part of the drafter, as cards keep them."""
    return {part or name: sum_tallies(one).told() for part, one in zip(parts, found, strict=True)}
