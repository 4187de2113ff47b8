"""From logits to a distribution: temperature, top-k and top-p; temperature 0 has a support of one token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specdec_lib.lazy import torch
from specdec_lib.scores import Categorical
from specdec_lib.types import Refusal

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Sampling:
    """Sampling settings. Filters apply in the order temperature, top-k, top-p."""

    temperature: float = 0.0
    top_k: int = 0                                 # 0 = all
    top_p: float = 1.0

    def __post_init__(self):
        if not (self.temperature == 0 or 1e-6 <= self.temperature <= 1e6):       # beyond, logits overflow or vanish
            raise Refusal(f"temperature must be 0 or more, from 0.000001 to 1000000 if above 0, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise Refusal(f"top_p must be above 0 and at most 1, got {self.top_p}")
        if self.top_k < 0:
            raise Refusal(f"top_k must be 0 (all) or more, got {self.top_k}")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    def distribution(self, logits: Tensor, ids: Tensor | None = None) -> Categorical:
        """The distribution of one row [V] of raw logits; `ids [V]` gives the tokens of its columns if they differ."""
        if self.greedy:
            best = int(logits.argmax())
            return Categorical.point_mass(best if ids is None else int(ids[best]))
        exact = logits.dtype == torch.float64
        scaled = (logits if exact else logits.float()) / self.temperature
        columns = None
        if 0 < self.top_k < len(scaled):
            scaled, columns = torch.topk(scaled, self.top_k)
        probs = torch.softmax(scaled, -1)
        if self.top_p < 1:
            probs, order = torch.sort(probs, descending=True)
            keep = max(1, int((torch.cumsum(probs, 0) - probs < self.top_p).sum()))       # with the token that crosses
            probs, order = probs[:keep] / probs[:keep].sum(), order[:keep]
            columns = order if columns is None else columns[order]
        if columns is None:
            columns = torch.arange(len(probs), device=probs.device)
        return Categorical(columns if ids is None else ids[columns], probs)
