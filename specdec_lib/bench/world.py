"""Opening the world of a run: names and flags become models, a tokenizer, facts and peers, or one clear refusal."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable
from pathlib import Path

import torch

from specdec_lib.bench import diffusion as diffuser
from specdec_lib.bench import drafter, peers
from specdec_lib.bench.contenders import World
from specdec_lib.bench.drafter import Drafter
from specdec_lib.bench.provenance import bare
from specdec_lib.models import checkpoints
from specdec_lib.models.load import default_dtype, load_lm
from specdec_lib.models.shelf import SHIPPED, Shelf
from specdec_lib.models.text import Text
from specdec_lib.types import Refusal

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
SHORT = {"fp64": "float64", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
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
               shelf: Path = SHIPPED, drafts: bool = True, diffusion: str | None = None) -> World:
    """Loads everything but checkpoints, which wait on the shelf; device and dtype are resolved names.

    Without `drafts` no draft model is looked for unless one is named. `diffusion` names a pretrained model that stands
    where the trained `diffusion-lm` would. Raises Refusal where a part is missing or does not fit.
    """
    folder = checkpoints.locate(target, say)
    text = Text(folder, say)
    beside, diffusing = drafter.folder(draft, text, say), diffuser.found(diffusion, text, say)
    say(f"loading {bare(target)}")
    lm = load_lm(folder, DTYPES[dtype], device, threads)
    trained = Shelf(shelf, lm, text, target, say, {"ngram": read_ngram})
    small = Drafter()
    if beside is not None:
        small = Drafter(load_lm(beside, DTYPES[dtype], device, threads), bare(draft))
    elif drafts or draft is not None:
        small = drafter.choose(draft, lm, trained, say)
    given = {}
    if diffusing is not None:
        given[diffuser.STANDS_FOR] = diffuser.load(diffusion, diffusing, text, lm, DTYPES[dtype], device, say)
    others = peers.load(peer_names, str(folder), DTYPES[dtype], device, text.facts.end, lm.context, temperature,
                        beside and str(beside))
    about = {"name": bare(target), "device": device, "dtype": dtype, "threads": threads}
    return World(lm, text.encode_chat, text.decode, text.stream, text.facts, small.lm,
                 ChainMap(given, trained) if given else trained, others, about, text.name, small)


def read_ngram(file: Path):
    """The n-gram table in a file."""
    from specdec_lib.models.ngram import Ngram

    return Ngram.load(file)
