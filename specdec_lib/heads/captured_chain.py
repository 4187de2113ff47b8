"""The greedy chain of an EAGLE head as one launch (`captured_draft.py`): tokens go from row to row on the device."""

from __future__ import annotations

import torch
from torch import Tensor

from specdec_lib.heads.captured_draft import CapturedDraft, DraftTables, JoinedVocabulary, Place
from specdec_lib.heads.eagle_network import EagleNetwork
from specdec_lib.models.llama.cache import KVCache
from specdec_lib.models.llama.row_stats import packed_stats


class CapturedChain(CapturedDraft):
    """The chain of `count` tokens: their logits [count, trained + room] and packed statistics."""

    def __init__(self, count: int, place: Place, weights: EagleNetwork, cache: KVCache, rope: tuple[Tensor, Tensor]):
        super().__init__(count, count - 1, place, weights, cache, rope)

    def drafted(self, x: Tensor, vocabulary: JoinedVocabulary, tables: DraftTables, more: Tensor) -> tuple[Tensor, ...]:
        logits, stop = [], self.width + self.count
        for row in range(self.width, stop):
            logits.append(self.logits(x, vocabulary))
            if row + 1 < stop:                     # nothing follows the last token
                token = vocabulary.ids[logits[-1].argmax(-1)]
                x = self.layer(x, token, tables.view(slice(row, row + 1), self.group))
        whole = torch.cat(logits)
        return whole, packed_stats(whole, vocabulary.ids)
