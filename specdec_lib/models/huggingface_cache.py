"""The cache of a model that transformers runs, which aligns itself, and the tapped hidden states of its rows.

Knows nothing about the model: it is given the hidden states of each forward.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specdec_lib.models.llama.cache import doubled
from specdec_lib.models.llama.cache_rows import CacheRows
from specdec_lib.models.shared_weights import SharedWeights
from specdec_lib.types import Draft


class PastRows:
    """transformers' cache of keys and values, a record of its rows, and their tapped hidden states.

    `taps` are the levels that `features` keeps [capacity, taps, hidden].
    """

    def __init__(self):
        self.taps: tuple[int, ...] = ()
        self.features: Tensor | None = None
        self.clear()

    def clear(self) -> None:
        self.past, self.rows = new_past(), CacheRows()

    def tap(self, taps: tuple[int, ...], weights: SharedWeights) -> None:
        """Keeps the hidden states of these levels from now on; drops every row, since it lacks them."""
        self.taps = tuple(taps)
        self.features = torch.zeros(512, len(taps), weights.shape.hidden, dtype=weights.dtype,
                                    device=weights.device) if taps else None
        self.clear()

    def keep(self, states: tuple[Tensor, ...], start: int) -> None:
        """Stores the tapped levels of the hidden states [1, rows, hidden] as the rows from `start` on."""
        if self.features is None:
            return
        stop = start + states[0].shape[1]
        while len(self.features) < stop:
            self.features = doubled(self.features, 0)
        for place, level in enumerate(self.taps):
            self.features[start:stop, place] = states[level][0]

    def align(self, tokens: tuple[int, ...], draft: Draft, first: int | None = None) -> None:
        """Moves accepted rows behind the context and crops the others away, from row `first` on in any case."""
        to, sources = self.rows.align(tokens, draft)
        del self.rows.depth[len(tokens) + len(draft) if first is None else first:]
        for layer in self.past.layers if sources else ():
            for name in ("keys", "values"):
                rows = getattr(layer, name).clone()
                rows[..., to:to + len(sources), :] = rows[..., sources, :]
                setattr(layer, name, rows)
        if sources and self.features is not None:
            self.features[to:to + len(sources)] = self.features[sources]
        extra = self.past.get_seq_length() - len(self.rows)
        if extra and not len(self.rows):
            self.past = new_past()
        elif extra:
            self.past.crop(-extra)                 # a positive count is refused since transformers 5.20

    def fed(self, tokens: tuple[int, ...]) -> int:
        """How many leading tokens are cached as context; accepted nodes of the last draft count."""
        if self.rows.follows(tokens):
            self.align(tokens, Draft())
        return self.rows.fed(tokens, 1)


def new_past():
    from transformers.cache_utils import DynamicCache

    return DynamicCache()
