"""The counted cost of a draft: how often each matrix is read, and with how many rows it is multiplied.

On a machine bound by memory the reads cost, on one bound by arithmetic the multiplications; with few rows a real
machine lies between the two. Numbers read stand in for bytes: those of a drafter's own matrices count by their `size`,
which is below 1 where it keeps them in fewer bits than the target. Norms, embedding look-ups and the choice of tokens
are left out.
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
    """A matrix (or keys and values) of `weights` numbers, read `reads` times, multiplied with `rows` rows in all.

    `size` is the size of one of its numbers over that of one of the target's.
    """

    weights: int
    reads: int
    rows: int
    size: float = 1.0


@dataclass(frozen=True)
class Work:
    """Numbers read and multiplications; divided by those of a plain forward, a cost in plain forwards."""

    read: float
    products: float

    def over(self, other: Work) -> Work:
        return Work(self.read / other.read, self.products / other.products)


def total_work(parts: Size) -> Work:
    """The sum over these matrices."""
    return Work(sum(part.weights * part.reads * part.size for part in parts),
                sum(part.weights * part.rows for part in parts))


def expected_work(state: Mapping[str, Tensor], meta: Mapping[str, Any], shape: LlamaConfig, depth: int, context: int,
                  new: int, layer: int | None = None, size: float = 1.0) -> tuple[Work, Work]:
    """Costs of drafting a chain of `depth` and of the forward that verifies it, in plain forwards at this context.

    `state` and `meta` are the drafter's checkpoint, empty for tables in memory; `new` tokens were committed since its
    last draft; `layer` is the exit layer of an early-exit drafter, whose rows the target resumes above it; `size` is
    that of a number of the drafter's own matrices over that of the target's.
    """
    verify = layer_matrices(shape, shape.layers, 1, depth + 1, context)
    if layer is not None:                          # the last node has passed no layer yet, the rows before it these
        verify = [*layer_matrices(shape, layer, 1, 1, context),
                  *layer_matrices(shape, shape.layers - layer, 1, depth + 1, context)]
    verify = [*verify, MatrixUse(shape.vocab * shape.hidden, 1, depth + 1)]
    plain = total_work([*layer_matrices(shape, shape.layers, 1, 1, context),
                        MatrixUse(shape.vocab * shape.hidden, 1, 1)])
    return total_work(draft_matrices(state, meta, shape, depth, context, new,
                                     layer, size)).over(plain), total_work(verify).over(plain)


def draft_matrices(state: Mapping[str, Tensor], meta: Mapping[str, Any], shape: LlamaConfig, depth: int, context: int,
                   new: int, layer: int | None = None, size: float = 1.0) -> list[MatrixUse]:
    """The matrices that one draft uses; the names of its tensors and its meta tell which kind of drafter it is."""
    if "ids" not in state:
        return []
    head, count = len(state["ids"]) * shape.hidden, sum(name.endswith("down") for name in state)
    if layer is not None:                          # the target has read the committed tokens; it stops after `layer`
        adapter = matrix_size(state, f"exit.{layer}.")
        return [*layer_matrices(shape, layer, depth, depth, context), MatrixUse(adapter + head, depth, depth, size)]
    layers = matrix_size(state, "layers.") + matrix_size(state, "", ("qkv", "out", "gate_up", "down"))
    seen = kv_numbers(shape, context)
    if "block" in meta:
        inject = (count + 1) * 2 * shape.kv_heads * shape.head_dim * shape.hidden        # the first layer reads pairs
        block = meta["block"]
        walked = matrix_size(state, "correction") + meta["candidates"] * shape.hidden
        return [MatrixUse(matrix_size(state, "fc") + inject, 1, new + 1, size), MatrixUse(layers, 1, block, size),
                MatrixUse(count * seen, 1, block * shape.group), MatrixUse(head, 1, depth, size),
                MatrixUse(walked, depth, depth, size)]
    reads, rows = 1 if "blocks" in meta else depth, new + depth - 1
    return [MatrixUse(matrix_size(state, "fc"), 1, new, size), MatrixUse(layers, reads, rows, size),
            MatrixUse(count * seen, reads, rows * shape.group),
            MatrixUse(head, reads, depth, size)]


def layer_matrices(shape: LlamaConfig, layers: int, reads: int, rows: int, context: int) -> list[MatrixUse]:
    """`rows` rows through `layers` layers of the target, with the keys and values of its context."""
    heads = (2 * shape.heads + 2 * shape.kv_heads) * shape.head_dim
    return [MatrixUse(layers * shape.hidden * (heads + 3 * shape.mlp), reads, rows),
            MatrixUse(layers * kv_numbers(shape, context), reads, rows * shape.group)]


def kv_numbers(shape: LlamaConfig, context: int) -> int:
    """Numbers in the keys and values of a layer; a row multiplies them once for each query head of a group."""
    return 2 * shape.kv_heads * shape.head_dim * context


def matrix_size(state: Mapping[str, Tensor], start: str, names: Sequence[str] | None = None) -> int:
    """Numbers in the matrices whose names begin with `start` and, if `names` are given, are among them."""
    return sum(tensor.numel() for name, tensor in state.items() if tensor.ndim == 2 and name.startswith(start)
               and (names is None or name in names))
