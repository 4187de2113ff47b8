"""The logits of a model's last call, so that a draft that continues the last one is not scored twice.

Scores that were returned stay valid: a row, once written, is never overwritten.
"""

from __future__ import annotations

from torch import Tensor

from specdec_lib.models.llama.cache_rows import common_nodes
from specdec_lib.scores import ListedRowStats
from specdec_lib.types import Draft

AHEAD = 8                                          # spare rows for a draft that grows node by node


class LogitsCache:
    """Logits after `tokens` and after the nodes of `draft`, in a buffer with spare rows; their statistics, if given.

    `copies`: the model's next call overwrites what it gave, as captured steps do.
    """

    def __init__(self, copies: bool = False):
        self.copies = copies
        self.tokens: tuple[int, ...] = ()
        self.draft = Draft()
        self.logits: Tensor | None = None          # [rows and spare rows, V]
        self.row_stats: ListedRowStats | None = None     # of all rows, on the host

    def known(self, tokens: tuple[int, ...], draft: Draft) -> int:
        """How many leading rows of these scores the last call computed."""
        if self.logits is None or self.tokens != tokens:
            return 0
        return 1 + common_nodes(self.draft, draft)

    def keep(self, tokens: tuple[int, ...], draft: Draft, known: int, new: Tensor,
             row_stats: ListedRowStats | None = None) -> None:
        """Stores the first `known` rows of the last call followed by `new`."""
        rows, logits = 1 + len(draft), self.logits
        if not known and not self.copies:
            self.logits = new
        else:
            if logits is None or not (known and known == 1 + len(self.draft) and rows <= len(logits)):
                logits = new.new_empty(rows + (AHEAD if known else 0), new.shape[1])
                if known:
                    logits[:known] = self.rows(self.draft)[:known]
                self.logits = logits
            logits[known:rows] = new
        if row_stats is not None and known:
            assert self.row_stats is not None      # a model gives them always or never
            row_stats = self.row_stats.part(slice(known)).followed(row_stats)
        self.tokens, self.draft, self.row_stats = tokens, draft, row_stats

    def rows(self, draft: Draft) -> Tensor:
        """The logits [1 + n, V] of this draft, which is the last one or a beginning of it."""
        assert self.logits is not None             # `keep` came before
        return self.logits[:1 + len(draft)]

    def stats(self, draft: Draft) -> ListedRowStats | None:
        """The statistics of the same rows, where the model gave them."""
        have, rows = self.row_stats, 1 + len(draft)
        return have if have is None or rows == len(have.rows) else have.part(slice(rows))
