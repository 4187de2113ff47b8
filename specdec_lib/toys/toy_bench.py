"""A bench run on the toy: a small random target and a diffusion drafter trained for it in seconds.

It replaces a measured run where there is none. Speeds on the toy say nothing about real models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from specdec_lib import catalog
from specdec_lib.analysis.bench_report import Report, load_report
from specdec_lib.bench import run
from specdec_lib.bench.environment import Environment
from specdec_lib.bench.plan import Plan
from specdec_lib.bench.prompts import Prompt
from specdec_lib.hub.tokenizer import TextStream
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.ngram import Ngram
from specdec_lib.toys.tiny_target import ROWS, SHAPE, ToyText, fit_toy, toy_answers, toy_target, unsaved_checkpoint
from specdec_lib.training.data.dataset import make_dataset
from specdec_lib.training.data.ngram_counts import count_ngrams

TRAINED = ("diffusion-lm", "ngram")                # the checkpoints of the toy


def toy_environment(steps: int = 30, answers: int = 100) -> Environment:
    """The toy, its drafter after so many steps on so many of the toy's answers, and a trigram of them."""
    lm = toy_target()
    said = toy_answers(lm, answers)
    with TemporaryDirectory() as folder:
        lessons = make_dataset(lm, ToyText(), said, Path(folder) / "features", rows=ROWS, batch=1024)
        drafter = fit_toy("diffusion-lm", lm, lessons, Path(folder), steps)[1]
    return replace(untrained_environment(), checkpoints={
        "diffusion-lm": unsaved_checkpoint("diffusion-lm", drafter),
        "ngram": Ngram(count_ngrams([one["output"] for one in said], SHAPE.vocab))})


def untrained_environment(layers: int = 0) -> Environment:
    """The toy without checkpoints; its first `layers` are the draft model: all six draft without error."""
    lm, text = toy_target(), ToyText()
    return Environment(lm, lambda messages: numbered(messages[-1][1]), text.decode, lambda: TextStream(text.decode),
                       text.facts, draft=lm.first_layers(layers) if layers else None,
                       about={"name": "toy", "device": "cpu", "dtype": "float32"}, name=text.name)


def numbered(words: str) -> tuple[int, ...]:
    """The toy's tokens of a text: a number is itself, other words sum their letters' codes modulo the vocabulary."""
    return tuple(int(word) if word.isdecimal() else sum(map(ord, word)) % SHAPE.vocab for word in words.split())


def toy_methods(specs: Sequence[str]) -> tuple[str, ...]:
    """The methods among these that need only what the toy has."""
    def asked(spec: str) -> set[str]:
        return {*catalog.needs(catalog.cards_of(spec)), *catalog.needed_checkpoints(spec)}
    return tuple(spec for spec in specs if asked(spec) <= {*TRAINED})


def toy_bench(specs: Sequence[str], prompts: int = 6, tokens: int = 16, steps: int = 30) -> Report:
    """A finished run of the methods among these that the toy can run, on so many of its prompts."""
    return toy_report(toy_environment(steps), toy_methods(specs), prompts, tokens)


def toy_report(environment: Environment, specs: Sequence[str], prompts: int = 6, tokens: int = 16,
               temperature: float = 0.0) -> Report:
    """A finished run of these methods in an environment of the toy; its prompts belong to three families in turn."""
    asked = [Prompt(place, f"toy {'abc'[place % 3]}", f"toy {'abc'[place % 3]}", (one["prompt"],), None)
             for place, one in enumerate(toy_answers(cast(Transformer, environment.target), prompts, seed=1))]
    plan = Plan(tuple(map(catalog.method_spec, specs)), prompts="toy", sha256="0" * 64, target="toy",
                max_new_tokens=tokens, temperature=temperature)
    with TemporaryDirectory() as folder:
        run.run_bench(plan, environment, asked, Path(folder))
        return load_report(folder)
