"""What a decoder keeps of one output between forwards: of a sequence alone, and of one whose forwards are shared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_lib.seq2seq.network import KeysValues


def common(known: tuple[int, ...], tokens: tuple[int, ...]) -> int:
    """How many first tokens of `tokens` are known; less than all, since the last row is computed again."""
    most = min(len(known), len(tokens) - 1)
    return next((n for n in range(most) if known[n] != tokens[n]), max(most, 0))


@dataclass
class DecoderCache:
    """Tokens whose keys and values are known, and those of each layer."""

    tokens: tuple[int, ...] = ()
    layers: tuple[KeysValues, ...] = ()

    def common(self, tokens: tuple[int, ...]) -> int:
        return common(self.tokens, tokens)


@dataclass
class SharedCache:
    """The same with keys and values of all layers in one row per token, so that sequences are padded in one call."""

    tokens: tuple[int, ...] = ()
    values: Tensor | None = None                   # [tokens, 2 * layers * d]
    source: Tensor | None = None                   # the same of the source's letters, [S, 2 * layers * d]

    def common(self, tokens: tuple[int, ...]) -> int:
        return common(self.tokens, tokens)

    def keep(self, kept: int, tokens: tuple[int, ...], rows: Tensor) -> None:
        """The first `kept` rows stay; `rows` are those of the tokens behind them."""
        self.values = rows if self.values is None or not kept else torch.cat((self.values[:kept], rows))
        self.tokens = tokens


def as_rows(layers: Sequence[KeysValues], start: int = 0) -> Tensor:
    """Keys and values from position `start` on, one row per position [B, m - start, 2 * layers * d]."""
    return torch.cat([kept[:, :, start:].transpose(1, 2).flatten(2) for one in layers for kept in one], -1)


def as_layers(rows: Tensor, layers: int, heads: int) -> tuple[KeysValues, ...]:
    """The inverse of `as_rows`: [B, m, 2 * layers * d] as keys and values of each layer."""
    parts = rows.view(*rows.shape[:2], layers, 2, heads, -1).permute(2, 3, 0, 4, 1, 5)
    return tuple(KeysValues(*one) for one in parts)
