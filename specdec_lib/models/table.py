"""Table: a language model given by an exact n-gram distribution, for enumeration and toy examples."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from specdec_lib.scores import Categorical, RowStats, Scores, TokenStats
from specdec_lib.types import Draft, Refusal


class RememberedScores(Scores):
    """Scores that compute what is asked of them once: an enumeration asks the same few rows thousands of times."""

    def __init__(self, logits: Tensor):
        super().__init__(logits)
        self.answers: dict[Hashable, Any] = {}

    def once(self, make: Callable[..., Any], *asked: Hashable) -> Any:
        key = (make.__name__, *asked)
        if key not in self.answers:
            self.answers[key] = make(*asked)
        return self.answers[key]

    def distribution(self, row: int, sampling=None) -> Categorical:
        return self.once(super().distribution, row, sampling)

    def stats(self, row: int, token: int) -> TokenStats:
        return self.once(super().stats, row, token)

    def row_stats(self, rows: tuple[int, ...] = (), k: int = 8) -> RowStats:
        return self.once(super().row_stats, rows, k)

    def logit(self, row: int, token: int) -> float:
        return self.once(super().logit, row, token)


@dataclass(frozen=True)
class Table:
    """`rows[last tokens]` is the next token's distribution [V]; the longest known suffix counts, `()` must be there."""

    rows: Mapping[tuple[int, ...], Sequence[float]]
    context: int | None = None
    seen: dict[tuple, RememberedScores] = field(default_factory=dict, compare=False, repr=False)

    @property
    def vocab(self) -> int:
        return len(self.rows[()])

    def __call__(self, tokens: tuple[int, ...], draft: Draft) -> Scores:
        key = tokens[-max(map(len, self.rows)):], draft.tokens, draft.parents
        if key not in self.seen:
            paths = [()] + [tuple(draft.tokens[i] for i in draft.path(node)) for node in range(len(draft))]
            self.seen[key] = RememberedScores(torch.stack([self.logits(key[0] + path) for path in paths]))
        return self.seen[key]

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
