"""The masks of a tree for a model that transformers runs: one, or one for each kind of layer.

A node sees its ancestors and the text before them. In a layer with a window it sees those alone that lie in the window,
counted along its own path.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from specdec_lib.models.attention_span import EVERY, window_sizes
from specdec_lib.models.llama.attention import visible
from specdec_lib.models.llama.cache_rows import CacheRows

CHUNKS = "attention_chunk_size"


def tree_masks(config: Any, rows: CacheRows, start: int, dtype: torch.dtype) -> Tensor | dict[str, Tensor]:
    """The mask [1, 1, rows, columns] of the rows from `start` on: the dtype's minimum where a column is hidden, else 0.

    Kind of layer -> mask, as transformers takes them, where the config tells its layers apart.
    """
    ahead, nodes = len(rows.tokens), len(rows.draft)
    first = min(start, ahead)
    seen = torch.ones(ahead + nodes - start, ahead + nodes, dtype=torch.bool)
    seen[:, first:] = visible(rows.draft.parents, ahead - first)[start - first:]
    sizes = window_sizes(config)
    at = positions(rows) if any(sizes.values()) else None
    masks = {kind: additive(seen if name is None or at is None else seen & near(at, start, name, getattr(config, name)),
                            dtype) for kind, name in sizes.items()}
    return masks.get(EVERY, masks)


def positions(rows: CacheRows) -> Tensor:
    """The position of every row in its own path, from 0."""
    ahead = len(rows.tokens)
    nodes = torch.tensor([ahead - 1 + depth for depth in rows.draft.depths], dtype=torch.long)
    return torch.cat((torch.arange(ahead), nodes))


def near(at: Tensor, start: int, name: str, size: int) -> Tensor:
    """Boolean [rows, columns]: whether a column is in the window, or in the chunk, of a row from `start` on."""
    rows, columns = at[start:, None], at[None]
    return rows // size == columns // size if name == CHUNKS else columns > rows - size


def additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    mask = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min)
    return mask[None, None]
