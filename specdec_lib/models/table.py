"""Table: a language model given by an exact n-gram distribution, for enumeration and toy examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_lib.scores import Scores
from specdec_lib.types import Draft, Refusal


@dataclass(frozen=True)
class Table:
    """`rows[last tokens]` is the next token's distribution [V]; the longest known suffix counts, `()` must be there."""

    rows: Mapping[tuple[int, ...], Sequence[float]]
    context: int | None = None

    @property
    def vocab(self) -> int:
        return len(self.rows[()])

    def __call__(self, tokens: tuple[int, ...], draft: Draft) -> Scores:
        contexts = [tokens] + [tokens + tuple(draft.tokens[i] for i in draft.path(node)) for node in range(len(draft))]
        return Scores(torch.stack([self.logits(context) for context in contexts]))

    def logits(self, context: tuple[int, ...]) -> Tensor:
        """Log-probabilities [V] in float64 after this context."""
        longest = max(map(len, self.rows))
        for n in range(min(longest, len(context)), -1, -1):
            row = self.rows.get(context[len(context) - n:])
            if row is not None:
                return torch.tensor(row, dtype=torch.float64).log()
        raise Refusal("a table needs a row for the empty context")

    def prefill(self, tokens: tuple[int, ...]) -> None:
        """Nothing to do: a table holds no cache."""

    def fresh(self) -> Table:
        return self

    def features(self, tokens: tuple[int, ...]) -> Tensor:
        raise Refusal("a table has no hidden states: features need a network")

    def exit(self, layer: int) -> Table:
        raise Refusal("a table has no layers to leave early")
