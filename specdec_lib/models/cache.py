"""The key-value cache that aligns itself: it knows which tokens its rows hold, and how deep each was computed.

Its rows are the flat sequence of a call: the context's tokens, then the draft's nodes. The next call is compared with
what is held: the common prefix stays, rows on the accepted path of the last draft are gathered behind it (one gather
for all layers), the rest is forgotten. Nobody calls rollback. Knows nothing about layers or weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specdec_lib.models.shape import Shape
from specdec_lib.types import ROOT, Draft


class Cache:
    """Keys and values [layers, 2, kv_heads, capacity, head_dim] of `tokens` and `draft`, as far as `depth` reaches.

    `depth[i]` is the number of layers that row i has been through; it never rises along the rows. Where that is less
    than the whole model, `hidden[i]` is the residual stream at that point. `taps` are the residual streams that
    `features` keeps [capacity, taps, hidden].
    """

    def __init__(self, shape: Shape, layers: int, dtype: torch.dtype, device, taps: tuple[int, ...] = (),
                 capacity: int = 512):
        self.kv = torch.zeros(layers, 2, shape.kv_heads, capacity, shape.head_dim, dtype=dtype, device=device)
        self.size, self.taps = shape.hidden, tuple(taps)
        self.features = self.stream(len(taps)) if taps else None
        self.hidden: Tensor | None = None
        self.tokens: tuple[int, ...] = ()          # what the rows are meant to hold, and do as far as depth reaches
        self.draft = Draft()
        self.depth: list[int] = []

    @property
    def capacity(self) -> int:
        return self.kv.shape[3]

    def stream(self, *inner: int) -> Tensor:
        return torch.zeros(self.capacity, *inner, self.size, dtype=self.kv.dtype, device=self.kv.device)

    def reserve(self, rows: int, half_way: bool = False) -> None:
        """Room for this many rows, by doubling; for their residual streams too, if some stop half way."""
        while self.capacity < rows:
            self.kv = torch.cat((self.kv, torch.zeros_like(self.kv)), 3)
            self.hidden = None if self.hidden is None else torch.cat((self.hidden, torch.zeros_like(self.hidden)))
            self.features = None if self.features is None else torch.cat(
                (self.features, torch.zeros_like(self.features)))
        if half_way and self.hidden is None:
            self.hidden = self.stream()

    def align(self, tokens: tuple[int, ...], draft: Draft) -> None:
        """Keeps the leading rows of tokens + draft that are held, and forgets all others."""
        held = len(self.depth)
        same = common(self.tokens[:held], tokens)
        if same == len(self.tokens):
            nodes = held - same
            if same == len(tokens):
                same += min(nodes, common_nodes(self.draft, draft))
            else:
                same += self.accept(accepted_path(self.draft, nodes, tokens[same:]))
        del self.depth[same:]
        self.tokens, self.draft = tokens, draft

    def accept(self, path: Sequence[int]) -> int:
        """Gathers the rows of these nodes of the last draft behind the context; how many they are."""
        base = len(self.tokens)
        depth = [self.depth[base + node] for node in path]
        del self.depth[base:]
        moved = next((i for i, node in enumerate(path) if i != node), len(path))    # those before lie in place
        if moved < len(path):
            rows = torch.tensor([base + node for node in path[moved:]], device=self.kv.device)
            to = slice(base + moved, base + len(path))
            self.kv[:, :, :, to] = self.kv[:, :, :, rows]
            for stream in (self.hidden, self.features):
                if stream is not None:
                    stream[to] = stream[rows]
        self.depth += depth
        return len(path)

    def fed(self, tokens: tuple[int, ...], depth: int) -> int:
        """How many leading tokens are held, at least `depth` layers deep; accepted nodes count as tokens."""
        same = common(self.tokens[:len(self.depth)], tokens)
        if same == len(self.tokens) < len(tokens):
            self.align(tokens, Draft())
            same = len(self.depth)
        while same and self.depth[same - 1] < depth:
            same -= 1
        return same

    def shallow(self, depth: int) -> int:
        """The first row that has not been through this many layers."""
        row = len(self.depth)
        while row and self.depth[row - 1] < depth:
            row -= 1
        return row

    def reset(self, taps: tuple[int, ...]) -> None:
        """Forgets every row, and keeps these taps from now on."""
        self.taps, self.depth, self.tokens, self.draft = tuple(taps), [], (), Draft()
        self.features = self.stream(len(taps)) if taps else None


def common(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """Length of the common prefix, by comparing slices: microseconds for thousands of tokens."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while high - low > 1:                          # a[:low] agrees, a[:high] does not
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def common_nodes(a: Draft, b: Draft) -> int:
    """How many leading nodes two drafts share, parents included."""
    return min(common(a.tokens, b.tokens), common(a.parents, b.parents))


def accepted_path(draft: Draft, nodes: int, following: tuple[int, ...]) -> list[int]:
    """The path through the first `nodes` nodes that these tokens took."""
    node, path = ROOT, []
    if not nodes:
        return path
    for token in following:
        node = next((child for child in draft.children.get(node, ())
                     if child < nodes and draft.tokens[child] == token), None)
        if node is None:
            break
        path.append(node)
    return path
