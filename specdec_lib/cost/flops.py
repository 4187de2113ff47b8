"""What a draft costs on paper: which numbers it reads, how often, and how many rows it multiplies them with.

A machine bound by its memory pays for what is read, one bound by its arithmetic for what is multiplied; with few rows
a real one lies between the two. Drafter and target have weights of one dtype, so numbers read stand for bytes. Norms,
embeddings looked up and the choice of tokens are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from specdec_lib.models.llama.config import LlamaConfig

Size = Sequence["MatrixUse"]


@dataclass(frozen=True)
class MatrixUse:
    """So many `weights`, or keys and values, `reads` times read and multiplied with so many `rows` in all."""

    weights: int
    reads: int
    rows: int


@dataclass(frozen=True)
class Work:
    """Numbers read and multiplications of something, or, divided by those of a plain forward, what it costs."""

    read: float
    products: float

    def over(self, other: Work) -> Work:
        return Work(self.read / other.read, self.products / other.products)


def work(parts: Size) -> Work:
    """All of it."""
    return Work(sum(part.weights * part.reads for part in parts), sum(part.weights * part.rows for part in parts))


def expected_work(state: Mapping[str, Tensor], meta: Mapping[str, Any], shape: LlamaConfig, depth: int, context: int,
                  new: int,
                  layer: int | None = None) -> tuple[Work, Work]:
    """Drafting a chain of `depth` and the forward that verifies it, in plain forwards at so many tokens of context.

    `state` and `meta` are the drafter's checkpoint, none for tables in memory; `new` tokens were committed since its
    last draft; `layer` is the exit of a drafter that stops half way up its target, whose rows the target resumes.
    """
    verify = through(shape, shape.layers, 1, depth + 1, context)
    if layer is not None:                          # the last node passed no layer yet, the rows before it these
        verify = [*through(shape, layer, 1, 1, context), *through(shape, shape.layers - layer, 1, depth + 1, context)]
    verify = [*verify, MatrixUse(shape.vocab * shape.hidden, 1, depth + 1)]
    plain = work([*through(shape, shape.layers, 1, 1, context), MatrixUse(shape.vocab * shape.hidden, 1, 1)])
    return work(drafting(state, meta, shape, depth, context, new, layer)).over(plain), work(verify).over(plain)


def drafting(state: Mapping[str, Tensor], meta: Mapping[str, Any], shape: LlamaConfig, depth: int, context: int,
             new: int,
             layer: int | None = None) -> list[MatrixUse]:
    """What one draft reads and multiplies; what kind of drafter it is shows in its tensors."""
    if "ids" not in state:
        return []
    head, count = len(state["ids"]) * shape.hidden, sum(name.endswith("down") for name in state)
    if layer is not None:                          # the target has read what was committed; it stops after `layer`
        adapter = matrix_size(state, f"exit.{layer}.")
        return [*through(shape, layer, depth, depth, context), MatrixUse(adapter + head, depth, depth)]
    layers, seen = matrix_size(state, "layers.") or matrix_size(state, "",
                                                                ("qkv", "out", "gate_up", "down")), keys(shape, context)
    if "block" in meta:
        inject, block = count * 2 * shape.kv_heads * shape.head_dim * shape.hidden, meta["block"]
        walked = matrix_size(state, "correction") + meta["candidates"] * shape.hidden
        return [MatrixUse(matrix_size(state, "fc") + inject, 1, new), MatrixUse(layers, 1, block),
                MatrixUse(count * seen, 1, block * shape.group), MatrixUse(head, 1, depth),
                MatrixUse(walked, depth, depth)]
    reads, rows = 1 if "blocks" in meta else depth, new + depth - 1
    return [MatrixUse(matrix_size(state, "fc"), 1, new), MatrixUse(layers, reads, rows),
            MatrixUse(count * seen, reads, rows * shape.group),
            MatrixUse(head, reads, depth)]


def through(shape: LlamaConfig, layers: int, reads: int, rows: int, context: int) -> list[MatrixUse]:
    """Rows through some of the target's layers, over the keys and values of its context."""
    heads = (2 * shape.heads + 2 * shape.kv_heads) * shape.head_dim
    return [MatrixUse(layers * shape.hidden * (heads + 3 * shape.mlp), reads, rows),
            MatrixUse(layers * keys(shape, context), reads, rows * shape.group)]


def keys(shape: LlamaConfig, context: int) -> int:
    """Keys and values of a layer over this context; every row multiplies them once for each query head of a group."""
    return 2 * shape.kv_heads * shape.head_dim * context


def matrix_size(state: Mapping[str, Tensor], start: str, names: Sequence[str] | None = None) -> int:
    """Numbers in the matrices whose names begin so, or that have one of these names."""
    return sum(tensor.numel() for name, tensor in state.items() if tensor.ndim == 2 and name.startswith(start)
               and (names is None or name in names))
