"""The logits a model gave last, so that a draft that continues the last one is not scored twice.

Scores that were handed out stay valid: a row, once written, is never written again.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specdec_lib.models.llama.cache_rows import common_nodes
from specdec_lib.types import Draft

AHEAD = 8                                          # rows of room for a draft that grows node by node


class LogitsCache:
    """Rows after `tokens` and after the nodes of `draft`, in a buffer with room behind them."""

    def __init__(self):
        self.tokens: tuple[int, ...] = ()
        self.draft = Draft()
        self.logits: Tensor | None = None          # [rows and room, V]

    def known(self, tokens: tuple[int, ...], draft: Draft) -> int:
        """How many leading rows of the scores asked for were answered last time."""
        if self.logits is None or self.tokens != tokens:
            return 0
        return 1 + common_nodes(self.draft, draft)

    def keep(self, tokens: tuple[int, ...], draft: Draft, known: int, new: Tensor) -> None:
        """The first `known` rows of the last answer and then these; half precision becomes single."""
        rows = 1 + len(draft)
        if not (known and known == 1 + len(self.draft) and rows <= len(self.logits)):
            dtype = torch.float64 if new.dtype == torch.float64 else torch.float32
            logits = torch.empty(rows + (AHEAD if known else 0), new.shape[1], dtype=dtype, device=new.device)
            if known:
                logits[:known] = self.logits[:known]
            self.logits = logits
        self.logits[known:rows] = new
        self.tokens, self.draft = tokens, draft

    def rows(self, draft: Draft) -> Tensor:
        """The answer [1 + n, V] to this draft, which is the last one or one that it continues."""
        return self.logits[:1 + len(draft)]
