"""What stands behind `specdec train`: names and flags become a target, an order and a provenance, or one refusal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from specdec_lib.bench.provenance import bare, provenance
from specdec_lib.bench.world import DTYPES, device_of, dtype_of
from specdec_lib.models import checkpoints
from specdec_lib.models.card import card_text
from specdec_lib.models.heads.diffusion import ATTENTION, CAUSAL
from specdec_lib.models.load import load_lm
from specdec_lib.models.text import Text
from specdec_lib.models.transformer import Transformer
from specdec_lib.training.length_fit import Lengths
from specdec_lib.training.objective import Objective
from specdec_lib.training.recipes import LENGTH, NGRAM, Recipe, recipe
from specdec_lib.training.train import Order, train
from specdec_lib.training.train_length import train_length
from specdec_lib.training.train_ngram import train_ngram
from specdec_lib.types import Refusal

Say = Callable[[str], None]


def trained(name: str, target: str, device: str, dtype: str, threads: int | None, minutes: float,
            prompts: Sequence[Path], data: Sequence[Path], forbid: Sequence[Path], out: Path, loss: str | None,
            depths: str | None, cache: float, seed: int, say: Say, progress: Callable[[int, int, str], None],
            optimiser: str | None = None, rate: float | None = None, smooth: float | None = None,
            attention: str | None = None, lengths: Mapping[str, Any] | None = None) -> str:
    """Trains what has this name and gives its card as text. Refusal for whatever was asked for wrongly.

    `lengths` are fields of `length_fit.Lengths`, those that were given, for the length predictor alone.
    """
    name = attending(name, attention)
    which = None if name in (NGRAM, LENGTH) else recipe(name)
    asked = foreseeing(name, lengths or {}, rate, seed)
    order = Order(out, minutes, tuple(prompts), tuple(data), tuple(forbid), optimiser=optimiser, rate=rate, seed=seed,
                  objective=objective(which, loss, depths, smooth), cache=cache, target=bare(target))
    lm, text, device, dtype = opened(target, device, dtype, threads, say)
    made = told(provenance(), dtype)
    if asked is not None:
        return card_text(train_length(asked, order, lm, text, made, say, progress).card)
    done = train_ngram(order, lm, text, made, say, progress) if which is None else train(which, order, lm, text, made,
                                                                                        say, progress)
    return card_text(done.card)


def attending(name: str, attention: str | None) -> str:
    """The recipe of this name with this attention; Refusal where there is no such choice."""
    if attention is None:
        return name
    if name != "diffusion-lm" or attention not in ATTENTION:
        raise Refusal(f"--attention is {' or '.join(ATTENTION)} and of diffusion-lm alone, got {attention} for {name}")
    return name if attention == CAUSAL else f"{name}-{attention}"


def foreseeing(name: str, given: Mapping[str, Any], rate: float | None, seed: int) -> Lengths | None:
    """What is asked of a length predictor; None for another name, Refusal where one is given what is not its own."""
    if name != LENGTH and given:
        raise Refusal(f"--{next(iter(given))} is of {LENGTH} alone, got it for {name}")
    rated = {} if rate is None else {"rate": rate}
    return Lengths(**given, **rated, seed=seed) if name == LENGTH else None


def opened(target: str, device: str, dtype: str, threads: int | None,
           say: Say) -> tuple[Transformer, Text, str, str]:
    """The target and its tokenizer, and the device and type that were settled on.

    Refusal for one that does not run in our own decoder, since trained drafters need it.
    """
    device = device_of(device)
    dtype = dtype_of(dtype, device)
    folder = checkpoints.locate(target, say)
    lm, text = load_lm(folder, DTYPES[dtype], device, threads), Text(folder, say)
    if not isinstance(lm, Transformer):
        raise Refusal(f"{bare(target)} runs through transformers, and drafters are trained on models of the Llama "
                      "family alone")
    return lm, text, device, dtype


def objective(which: Recipe | None, loss: str | None, depths: str | None, smooth: float | None) -> Objective:
    """The recipe's objective but for what is given here; Refusal where there is none such."""
    usual = which.objective if which else Objective()
    if smooth is None and depths in (None, usual.depth):
        smooth = usual.smooth                      # that of other depths is their own
    try:
        return Objective(loss or usual.slot, depths or usual.depth, smooth)
    except ValueError as error:
        raise Refusal(str(error)) from None


def told(made: dict, dtype: str) -> dict:
    """The part of a provenance that a card keeps."""
    machine = made["machine"]
    return {"command": made["command"], "commit": made["commit"], "changed": made["changed"],
            "date": made["created"][:10], "machine": machine["gpu"] or machine["processor"],
            "threads": machine["threads"], "dtype": dtype, "torch": made["versions"].get("torch")}
