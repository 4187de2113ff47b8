"""Opening the world of a run: names and flags become models, a tokenizer, facts and peers, or one clear refusal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from specdec_lib.bench import peers
from specdec_lib.bench.contenders import World
from specdec_lib.bench.provenance import bare
from specdec_lib.models import checkpoints
from specdec_lib.models.load import default_dtype, load_lm
from specdec_lib.models.shelf import SHIPPED, Shelf
from specdec_lib.models.text import Text
from specdec_lib.types import LM, Refusal

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
SHORT = {"fp64": "float64", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
DRAFT_LAYERS = 5                                   # every fifth layer of the target drafts where no model is given
Say = Callable[[str], None]


def device_of(name: str) -> str:
    """`auto` is the GPU where there is one; Refusal for a device this machine does not have."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name != "cpu" and name.partition(":")[0] != "cuda":
        raise Refusal(f"there is no device named {name!r}: take auto, cpu or cuda")
    if name != "cpu" and not torch.cuda.is_available():
        raise Refusal("this machine has no CUDA device: take --device cpu")
    return name


def dtype_of(name: str, device: str) -> str:
    """The dtype's full name; `auto` is bf16 where there are kernels for it, else fp32."""
    if name == "auto":
        return str(default_dtype(device)).removeprefix("torch.")
    if SHORT.get(name, name) not in DTYPES:
        raise Refusal(f"there is no dtype named {name!r}: take auto, {', '.join(DTYPES)}")
    return SHORT.get(name, name)


def open_world(target: str, device: str, dtype: str, threads: int | None = None, draft: str | None = None,
               peer_names: tuple[str, ...] = (), temperature: float = 0.0, say: Say = lambda line: None,
               shelf: Path = SHIPPED) -> World:
    """Loads everything but checkpoints, which wait on the shelf; device and dtype are resolved names.

    Raises Refusal where a part is missing or does not fit.
    """
    folder = checkpoints.locate(target, say)
    drafter = None if draft is None else checkpoints.locate(draft, say)
    text = Text(folder, say)
    if drafter is not None:
        same_vocabulary(text, Text(drafter), draft)
    say(f"loading {bare(target)}")
    lm = load_lm(folder, DTYPES[dtype], device, threads)
    small = first_layers(lm) if drafter is None else load_lm(drafter, DTYPES[dtype], device, threads)
    others = peers.load(peer_names, str(folder), DTYPES[dtype], device, text.facts.end, lm.context, temperature,
                        drafter and str(drafter))
    about = {"name": bare(target), "device": device, "dtype": dtype, "threads": threads}
    trained = Shelf(shelf, lm, text, target, say, {"ngram": read_ngram})
    return World(lm, text.encode_chat, text.decode, text.stream, text.facts, small, trained, others, about, text.name)


def read_ngram(file: Path):
    """The n-gram table in a file."""
    from specdec_lib.models.ngram import Ngram

    return Ngram.load(file)


def first_layers(lm: LM) -> LM | None:
    """The target's own first layers as an untrained draft model; None where the model cannot be cut."""
    cut = getattr(lm, "first_layers", None)
    return None if cut is None else cut(max(1, lm.layers // DRAFT_LAYERS))


def same_vocabulary(target: Text, draft: Text, name: str) -> None:
    """Refuses a draft model whose tokens are not the target's: its ids would mean something else."""
    if draft.tokenizer.get_vocab() != target.tokenizer.get_vocab():
        raise Refusal(f"the draft model {Path(name).name} has another vocabulary than the target: its token ids would"
                      " mean other words, take one of the same family")
