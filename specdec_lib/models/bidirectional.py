"""A decoder with bidirectional attention: every row sees every row, so no row is cached and all are fed again.

How masked diffusion models are trained (LLaDA, Nie et al. 2025; Dream, Ye et al. 2025): the text before the masks
attends to the masks, too, so a new token or another number of masks changes every row. Keys and values of one layer
are held at a time.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.models.device import to_device
from specdec_lib.models.llama.cache import KVCache
from specdec_lib.models.llama.config import rope_table
from specdec_lib.models.llama.forward import columns, decoder_layer, view_of
from specdec_lib.models.llama.weights import LlamaWeights
from specdec_lib.scores import Scores
from specdec_lib.types import ROOT, Draft


class Bidirectional:
    """Scores (tokens, draft) as a language model does. `forwards` counts passes, `fed` tokens."""

    tells = False                                  # it never moves statistics to the host

    def __init__(self, weights: LlamaWeights):
        self.weights, self.shape = weights, weights.shape
        self.cache = KVCache(self.shape, 1, weights.dtype, weights.device)
        self.rope = rope_table(self.shape, self.cache.capacity, weights.dtype, weights.device)
        self.forwards = self.fed = 0

    @property
    def dtype(self) -> torch.dtype:
        return self.weights.dtype

    def __call__(self, tokens: tuple[int, ...], draft: Draft) -> Scores:
        """Row 0 is the last token's, row i + 1 node i's; every row sees all. ValueError for no token, or a tree."""
        if not tokens:
            raise ValueError("a model needs at least one token of context")
        if draft.parents != tuple(range(ROOT, len(draft) - 1)):
            raise ValueError("a bidirectional decoder takes chains only, not trees")
        x = self.run(tokens + draft.tokens)[len(tokens) - 1:]
        with torch.inference_mode():
            x = F.rms_norm(x, (self.shape.hidden,), self.weights.norm, self.shape.eps)
            logits = self.weights.head(x)
        return Scores(logits.to(torch.promote_types(logits.dtype, torch.float32)), self.weights.ids)

    def run(self, tokens: tuple[int, ...]) -> Tensor:
        """Takes all tokens through all layers; returns their hidden states [tokens, hidden]."""
        rows = len(tokens)
        self.cache.reserve(rows)
        if len(self.rope[0]) < self.cache.capacity:
            self.rope = rope_table(self.shape, self.cache.capacity, self.weights.dtype, self.weights.device)
        cos, sin = (table[:rows] for table in self.rope)
        view = view_of(slice(0, rows), cos, sin, None, self.shape.group, self.cache.capacity)
        (kv,) = columns(self.cache.kv, view)
        with torch.inference_mode():
            x = F.embedding(to_device(tokens, self.weights.device), self.weights.embedding)
            for layer in self.weights.layers:
                x = decoder_layer(x, layer, self.shape, kv, view)
        self.forwards, self.fed = self.forwards + 1, self.fed + rows
        return x
