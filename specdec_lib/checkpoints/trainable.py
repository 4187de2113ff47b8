"""Which drafters can be trained for a target, and the command that does it: what a refusal may advise."""

from __future__ import annotations

import shlex
from pathlib import Path

from specdec_lib.types import LM, Refusal

NGRAM, LENGTH, HRAD = "ngram", "length-predictor", "h-rad"
DIGITS = "digits"                                  # models of images: they draft for no language model
CANVAS = "canvas-sudoku"                           # for no target: it is one itself
PRONOUNCING = ("g2p", "g2p-drafter")               # an encoder-decoder and its drafter
ANY_TARGET = ("eagle", NGRAM, LENGTH)              # the others start from the target's own layers


def why_untrainable(name: str, target: LM) -> str | None:
    """Why no drafter of this name can be trained for the target; None where one can be."""
    from specdec_lib.models.huggingface import HuggingFace  # heavy, and most who ask for a command need none
    from specdec_lib.models.llama.weights import LlamaWeights

    reads_a_source = hasattr(target, "bound")
    if name in PRONOUNCING and not reads_a_source:
        return (f"{name} reads letters and writes sounds, and works with the target {PRONOUNCING[0]} alone: give it, or"
                " take another method")
    if reads_a_source and name not in PRONOUNCING:
        return (f"{name} is for language models of text, and this target is an encoder-decoder; methods without"
                " training, such as sam, run on it, and specdec")
    if not isinstance(target, HuggingFace) or isinstance(target.shared, LlamaWeights):
        return None                                # inside transformers' generate, of a model that our decoder runs
    if name not in ANY_TARGET:
        return (f"{name} starts from the layers of a target that our own decoder runs, and transformers runs this one;"
                f" {', '.join(ANY_TARGET[:-1])} and {ANY_TARGET[-1]} can be trained for it")
    try:
        whole = target.head_gives_logits()
    except Refusal as why:
        return str(why)
    return None if whole else ("drafters learn from the product of the output matrix with the last hidden state, and"
                               f" the logits of {type(target.model).__name__} are another: it scales or caps them;"
                               " methods without training, such as sam, run on it")


def refuse_untrainable(name: str, target: LM, called: str) -> None:
    """Raises Refusal for a drafter that cannot be trained for the target, which a person calls `called`."""
    why = why_untrainable(name, target)
    if why is not None:
        raise Refusal(f"{name} cannot be trained for {called}: {why}")


def training_advice(name: str, target: LM, called: str) -> str:
    """The command that makes a checkpoint which fits the target, or the reason why there is none."""
    why = why_untrainable(name, target)
    return (f"{training_command(name, called)} makes one that fits" if why is None else
            f"none can be trained for this target: {why}")


def training_command(name: str, target: str = "", out: Path | None = None) -> str:
    """The command as it can be typed, in backticks; the target as a person calls it, "" for the default one."""
    words = ["specdec", "train", name, *(["--target", target] if target else []),
             *(["--out", str(out)] if out is not None else [])]
    return f"`{shlex.join(words)}`"
