"""What a forward costs on this device: the floor of its memory, curves by width, and the shapes of larger models."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from specdec_lib.bench.gpu_cells import GIB, CellFile, bandwidth, bytes_read, forward_cell, prefill_cell
from specdec_lib.by_name import ByName
from specdec_lib.models.llama.config import LlamaConfig, Rope
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.weights import random_weights

WIDTHS, CONTEXTS = (1, 2, 4, 8, 16, 32, 64, 128), (256, 2048)
MODES = ("captured, attention by products", "captured, fused attention", "eager")       # the first one is what decodes
COPY = GIB                                         # bytes of the copy that measures bandwidth
SHAPES = ByName({
    "llama-3-8b": LlamaConfig(layers=32, hidden=4096, heads=32, kv_heads=8, head_dim=128, mlp=14336, vocab=128256,
                              context=8192, rope=Rope(500000.0)),
    "qwen2.5-7b": LlamaConfig(layers=28, hidden=3584, heads=28, kv_heads=4, head_dim=128, mlp=18944, vocab=152064,
                              context=32768, rope=Rope(1e6), qkv_bias=True),
    "tiny": LlamaConfig(layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, mlp=128, vocab=512, context=4096)},
                "shape")
MEASURED = ("respec", "diffuspec", "report")       # runs in data/results whose acceptances predict
LANGUAGE_MODELS = ("diffuspec", "diffusion-draft", "ddtree(drafter='diffusion-lm'")
Check = Callable[[], None]                         # raises OutOfTime


def measure_floor(file: CellFile, lm: Transformer, contexts: Sequence[int] = CONTEXTS, size: int = COPY) -> None:
    """The bandwidth, and the seconds that it leaves a forward at least, at each context."""
    speed = bandwidth(lm.device, size)
    for context in contexts:
        read = bytes_read(lm.shape, lm.dtype, context)
        file.once({"context": context}, lambda read=read: {"bytes": read, "seconds": read / speed})
    file.finish(bandwidth=speed)


def measure_costs(file: CellFile, lm: Transformer, check: Check, widths: Sequence[int] = WIDTHS,
                  contexts: Sequence[int] = CONTEXTS, modes: Sequence[str] = MODES) -> None:
    """A cell for every mode, context and width, narrow ones first."""
    measure_modes(file, lm, check, widths, contexts, modes, {})
    file.finish()


def measure_modes(file: CellFile, lm: Transformer, check: Check, widths: Sequence[int], contexts: Sequence[int],
                  modes: Sequence[str], more: dict) -> None:
    for mode in modes:
        own = Transformer(lm.weights, static=mode != "eager")
        own.products = mode == MODES[0]
        for context, width in ((context, width) for context in contexts for width in widths):
            if context + width >= lm.context:
                continue
            check()
            file.once({**more, "mode": mode, "context": context, "width": width},
                      lambda own=own, context=context, width=width: forward_cell(own, context, width))


def measure_shapes(file: CellFile, names: Sequence[str], device: torch.device, dtype: torch.dtype, check: Check,
                   results: Path, widths: Sequence[int] = WIDTHS, contexts: Sequence[int] = CONTEXTS) -> None:
    """Random weights in these shapes, made on the device: the same cells captured, and speeds predicted from them."""
    for name in names:
        check()
        if done(file, name, widths, contexts):
            continue
        lm = Transformer(random_weights(SHAPES[name], dtype=dtype, device=device))
        for context in contexts:
            check()
            file.once({"shape": name, "mode": "prefill", "context": context},
                      lambda lm=lm, context=context: prefill_cell(lm, context))
        measure_modes(file, lm, check, widths, contexts, MODES[:2], {"shape": name})
        del lm
        gc.collect()                               # steps and weights hold each other
        if device.type == "cuda":
            torch.cuda.empty_cache()
    file.finish(predicted=[*predictions(file.cells, names, results, contexts)])


def done(file: CellFile, name: str, widths: Sequence[int], contexts: Sequence[int]) -> bool:
    """Whether all cells of this shape are there."""
    return sum(cell["shape"] == name for cell in file.cells) >= len(contexts) * (1 + 2 * len(widths))


def predictions(cells: Sequence[dict], names: Sequence[str], results: Path,
                contexts: Sequence[int] = CONTEXTS) -> Iterator[dict]:
    """Speed over plain decoding at these shapes, from measured costs and the acceptances of our small target.

    Predicted, not measured: the acceptances are those of another model, and drafting is free in `speedup`. In
    `speedup_diffusion` each draft costs one forward over the whole context, as a diffusion language model of that size
    pays; a head that drafts a block has no such row.
    """
    for name, context in ((name, context) for name in names for context in contexts):
        curve = {cell["width"]: cell["seconds"] for cell in cells if cell["shape"] == name and "seconds" in cell
                 and cell["context"] == context and cell["mode"] == MODES[0]}
        whole = [cell["seconds"] for cell in cells if cell["shape"] == name and cell["mode"] == "prefill"
                 and cell["context"] == context and "seconds" in cell]
        if 1 not in curve:
            continue
        for run, method, tokens, width in acceptances(results):
            pass_ = step_seconds(curve, width)
            out = {"predicted": True, "shape": name, "context": context, "run": run, "method": method,
                   "tokens_per_target_forward": tokens, "width": width, "speedup": tokens * curve[1] / pass_}
            if is_language_model(method) and whole:
                out["speedup_diffusion"] = tokens * curve[1] / (pass_ + whole[0])
            yield out


def is_language_model(method: str) -> bool:
    """Whether each draft is one forward of a diffusion language model, and not of a head on the target's layers."""
    return method.startswith(LANGUAGE_MODELS) and "block-diffusion" not in method


def step_seconds(curve: dict[int, float], width: float) -> float:
    """Seconds of the narrowest measured step that holds so many rows: a captured step is padded to its width."""
    return curve[min((have for have in curve if have >= width), default=max(curve))]


def acceptances(results: Path) -> Iterator[tuple[str, str, float, float]]:
    """(run, method, tokens per target forward, mean rows of a forward) of the kept runs."""
    for run in MEASURED:
        path = results / run / "summary.json"
        if path.is_file():
            for method, told in json.loads(path.read_text(encoding="utf-8"))["methods"].items():
                yield run, method, told["tokens_per_target_forward"], told["width"]
