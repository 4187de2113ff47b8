"""Opening the world of a run: names and flags become models, a tokenizer, facts and peers, or one clear refusal."""

from __future__ import annotations

from collections.abc import Callable

import torch

from specdec_lib.bench import peers
from specdec_lib.bench.contenders import World
from specdec_lib.models import checkpoints
from specdec_lib.models.load import default_dtype, load_lm
from specdec_lib.models.text import Text
from specdec_lib.types import LM, Refusal

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16,
          "fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
DRAFT_LAYERS = 1 / 5                               # of the target's layers, where no draft model is given
Say = Callable[[str], None]


def device_of(name: str) -> str:
    """`auto` is the GPU where there is one; Refusal for a device this machine does not have."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(name).type
    except RuntimeError:
        raise Refusal(f"there is no device named {name!r}: take auto, cpu or cuda") from None
    if kind not in ("cpu", "cuda"):
        raise Refusal(f"the device {name} is not supported: take auto, cpu or cuda")
    if kind == "cuda" and not torch.cuda.is_available():
        raise Refusal("this machine has no CUDA device: take --device cpu")
    return name


def dtype_of(name: str, device: str) -> torch.dtype:
    """`auto` is bf16 where the processor has kernels for it, else fp32."""
    if name == "auto":
        return default_dtype(device)
    if name not in DTYPES:
        raise Refusal(f"there is no dtype named {name!r}: take auto, {', '.join(DTYPES)}")
    return DTYPES[name]


def word(dtype: torch.dtype) -> str:
    """`bfloat16` and the like."""
    return str(dtype).removeprefix("torch.")


def open_world(target: str, device: str, dtype: str, threads: int | None = None, draft: str | None = None,
               peer_names: tuple[str, ...] = (), temperature: float = 0.0,
               say: Say = lambda line: None) -> World:
    """Loads everything; device and dtype are resolved words. Raises Refusal where a part is missing or does not fit."""
    torch_dtype = DTYPES[dtype]
    folder = checkpoints.locate(target, say)
    say(f"loading {target}")
    lm = load_lm(folder, torch_dtype, device, threads)
    text = Text(folder)
    about = {"name": target.rstrip("/").rsplit("/", 1)[-1] if "/" in target and folder.name in target else target,
             "device": device, "dtype": dtype, "threads": threads}
    drafter = first_layers(lm) if draft is None else draft_model(draft, text, torch_dtype, device, threads, say)
    others = peers.load(peer_names, str(folder), torch_dtype, device, text.facts.end, lm.context, temperature, draft)
    return World(lm, text.encode_chat, text.decode, text.stream, text.facts, drafter, {}, others, about)
