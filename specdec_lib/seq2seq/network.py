"""The networks: an encoder-decoder (the verifier) and a decoder that fills a masked block at once (the drafter).

Pre-norm transformer layers with learned positions and without biases. Each function takes all rows of a forward
together with a mask, so training, a cache, a draft tree and a masked block run through the same code. Shapes: B
sources, n rows, S letters, m keys, d = `Sizes.width`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lib.seq2seq.alphabet import PAD, SOURCE_VOCAB, VOCAB

EPS = 1e-5


@dataclass(frozen=True)
class Sizes:
    """The shape of a network; the decoder is shallow, since each of its forwards is serial and the encoder's is one."""

    width: int = 224
    heads: int = 7
    encoder_layers: int = 4
    decoder_layers: int = 2
    encoder_inner: int = 448
    decoder_inner: int = 448
    positions: int = 96                            # of a source and of an output
    block: int = 0                                 # slots of a drafter; 0 = a verifier

    def as_dict(self) -> dict:
        return asdict(self)


class KeysValues(NamedTuple):
    """Keys and values [B, heads, m, d / heads] of one attention."""

    keys: Tensor
    values: Tensor

    def then(self, more: KeysValues) -> KeysValues:
        return KeysValues(torch.cat((self.keys, more.keys), 2), torch.cat((self.values, more.values), 2))

    def first(self, count: int) -> KeysValues:
        return KeysValues(self.keys[:, :, :count], self.values[:, :, :count])


class Memory(NamedTuple):
    """What a decoder reads of a source: keys and values per layer, and which letters are there [B, 1, 1, S]."""

    layers: tuple[KeysValues, ...]
    mask: Tensor | None                            # None = all of them


def matrix(rows: int, columns: int, gain: float = 1.0) -> nn.Parameter:
    """A matrix for products from the right, with the variance of `columns` inputs."""
    return nn.Parameter(torch.randn(rows, columns) * gain * columns ** -0.5)


class TransformerLayer(nn.Module):
    """One layer: self-attention, attention to the source where `cross`, and a feed-forward part."""

    def __init__(self, width: int, inner: int, heads: int, cross: bool, layers: int):
        super().__init__()
        self.heads, small = heads, (2 * layers) ** -0.5          # so that the sum over layers starts at the same size
        self.norm, self.qkv, self.out = ones(width), matrix(3 * width, width), matrix(width, width, small)
        if cross:
            self.cross_norm, self.cross_query = ones(width), matrix(width, width)
            self.cross_kv, self.cross_out = matrix(2 * width, width), matrix(width, width, small)
        self.inner_norm, self.up, self.down = ones(width), matrix(inner, width), matrix(width, inner, small)

    def split(self, x: Tensor, parts: int) -> tuple[Tensor, ...]:
        """[B, n, parts * d] as `parts` tensors [B, heads, n, d / heads]."""
        shaped = x.view(*x.shape[:2], parts, self.heads, -1).permute(2, 0, 3, 1, 4)
        return shaped.unbind(0)

    def attend(self, x: Tensor, mask: Tensor | None, past: KeysValues | None) -> tuple[Tensor, KeysValues]:
        """The rows after self-attention to `past` and to each other, and keys and values of both."""
        query, key, value = self.split(F.linear(rms(x, self.norm), self.qkv), 3)
        all_kv = KeysValues(key, value) if past is None else past.then(KeysValues(key, value))
        found = F.scaled_dot_product_attention(query, all_kv.keys, all_kv.values, attn_mask=mask)
        return x + F.linear(joined(found), self.out), all_kv

    def read(self, x: Tensor, source: KeysValues, mask: Tensor | None) -> Tensor:
        """The rows after attention to the source."""
        query, = self.split(F.linear(rms(x, self.cross_norm), self.cross_query), 1)
        found = F.scaled_dot_product_attention(query, source.keys, source.values, attn_mask=mask)
        return x + F.linear(joined(found), self.cross_out)

    def feed(self, x: Tensor) -> Tensor:
        return x + F.linear(F.gelu(F.linear(rms(x, self.inner_norm), self.up)), self.down)

    def source_kv(self, memory: Tensor) -> KeysValues:
        key, value = self.split(F.linear(memory, self.cross_kv), 2)
        return KeysValues(key, value)


def layers(sizes: Sizes, inner: int, cross: bool, count: int) -> nn.ModuleList:
    """So many layers; with `cross` they read a source."""
    return nn.ModuleList(TransformerLayer(sizes.width, inner, sizes.heads, cross, count) for _ in range(count))


def ones(width: int) -> nn.Parameter:
    return nn.Parameter(torch.ones(width))


def rms(x: Tensor, norm: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], norm, EPS)


def joined(x: Tensor) -> Tensor:
    """[B, heads, n, d / heads] as [B, n, d]."""
    return x.transpose(1, 2).flatten(2)


def waves(positions: int, width: int) -> Tensor:
    """Sinusoids [positions, width] that learned positions start from."""
    rate = 10_000 ** (-torch.arange(0, width, 2) / width)
    angle = torch.arange(positions)[:, None] * rate
    return torch.cat((angle.sin(), angle.cos()), 1) * 0.5


class Decoder(nn.Module):
    """Embedding, layers that read a source, and a head over the phonemes."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.sizes, width = sizes, sizes.width
        self.embedding = nn.Parameter(torch.randn(VOCAB, width) * 0.5)
        self.places = nn.Parameter(waves(sizes.positions, width))
        self.layers = layers(sizes, sizes.decoder_inner, True, sizes.decoder_layers)
        self.norm, self.head = ones(width), matrix(VOCAB, width)

    def blocks(self) -> list[TransformerLayer]:
        return [layer for layer in self.layers if isinstance(layer, TransformerLayer)]

    def memory(self, encoded: Tensor, mask: Tensor | None) -> Memory:
        """Keys and values of the encoded source [B, S, d] for every layer: once per source."""
        return Memory(tuple(block.source_kv(encoded) for block in self.blocks()), mask)

    def inputs(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Embedded tokens at their positions [B, n, d]."""
        return F.embedding(tokens, self.embedding) + F.embedding(positions, self.places)

    def run(self, x: Tensor, memory: Memory, mask: Tensor | None,
            past: Sequence[KeysValues] | None = None) -> tuple[Tensor, tuple[KeysValues, ...]]:
        """Logits [B, n, V] of these rows, and keys and values per layer, the past ones included.

        `mask [.., n, m]` says which keys a row sees; None lets it see all of them.
        """
        kept = []
        for place, block in enumerate(self.blocks()):
            x, seen = block.attend(x, mask, None if past is None else past[place])
            x = block.feed(block.read(x, memory.layers[place], memory.mask))
            kept.append(seen)
        return F.linear(rms(x, self.norm), self.head), tuple(kept)


class Encoder(nn.Module):
    """Letters to hidden states, in one forward."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        width = sizes.width
        self.embedding = nn.Parameter(torch.randn(SOURCE_VOCAB, width) * 0.5)
        self.places = nn.Parameter(waves(sizes.positions, width))
        self.layers = layers(sizes, sizes.encoder_inner, False, sizes.encoder_layers)
        self.norm = ones(width)

    def run(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states [B, S, d] of the letters [B, S], and the mask of those that are no padding [B, 1, 1, S]."""
        mask = (source != PAD)[:, None, None, :]
        x = F.embedding(source, self.embedding) + self.places[:source.shape[1]]
        for block in self.layers:
            assert isinstance(block, TransformerLayer)
            x = block.feed(block.attend(x, mask, None)[0])
        return rms(x, self.norm), mask


class EncoderDecoder(nn.Module):
    """The verifier's network."""

    def __init__(self, sizes: Sizes = Sizes()):    # noqa: B008  a frozen value
        super().__init__()
        self.sizes, self.encoder, self.decoder = sizes, Encoder(sizes), Decoder(sizes)

    def teacher_forced(self, source: Tensor, inputs: Tensor) -> Tensor:
        """Logits [B, n, V] after each of these inputs [B, n], which begin with BEGIN."""
        encoded, mask = self.encoder.run(source)
        rows = torch.arange(inputs.shape[1])
        causal = rows[:, None] >= rows
        return self.decoder.run(self.decoder.inputs(inputs, rows), self.decoder.memory(encoded, mask), causal)[0]


class BlockDecoder(Decoder):
    """The drafter's decoder: `block` slots with learned queries are filled at once after a causal prefix.

    Source: Spec-Drafter (arXiv 2203.16487). Slots see the prefix and each other; the prefix sees only its past, so its
    keys and values stay valid when it grows. A slot's input is its query, or a revealed token's embedding in training.
    """

    def __init__(self, sizes: Sizes):
        super().__init__(sizes)
        self.queries = nn.Parameter(torch.randn(sizes.block, sizes.width) * 0.5)

    def slots(self, start: Tensor, count: int, revealed: Tensor | None = None) -> Tensor:
        """Inputs [B, count, d] of the slots from position `start [B]`; `revealed [B, count]` has tokens, else PAD."""
        asked = self.queries[:count].expand(len(start), -1, -1)
        if revealed is not None:
            asked = torch.where((revealed != PAD)[..., None], F.embedding(revealed, self.embedding), asked)
        return asked + F.embedding(start[:, None] + torch.arange(count), self.places)
