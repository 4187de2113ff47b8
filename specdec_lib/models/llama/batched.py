"""Many sequences at once through the weights of one decoder: for making data and features, not for decoding fast.

Each row writes into the cache at its own length and sees its own tokens alone. On a CPU a few rows are attended to at a
time, padded to the longest of these. One row says what `Transformer` says of the same text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.models.llama.attention import products
from specdec_lib.models.llama.config import LlamaConfig, rope_table
from specdec_lib.models.llama.forward import after_attention, before_attention
from specdec_lib.models.llama.row_blocks import PACK, RowBlocks
from specdec_lib.models.llama.weights import LayerWeights, LlamaWeights
from specdec_lib.topk import argmax

TILE = 128                                         # tokens of a text that attend at once on a CPU
TOKENS = 8192                                      # padded tokens that go through the layers at once
FED, WIDE = {"cpu": 1024}, 32768                   # of texts that are fed: few where caches are small, else many

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]      # queries, keys, values of rows -> [rows, heads * d]


class BatchedLlama:
    """Rows of a batch, each with a text of its own. `lengths` [rows] counts the tokens fed, on the device."""

    rows: int | None = None                        # as many as memory holds

    def __init__(self, weights: LlamaWeights):
        self.weights, self.shape, self.device, self.ids = weights, weights.shape, weights.device, weights.ids
        self.cache = RowBlocks(self.shape, len(weights.layers), weights.dtype, weights.device)
        self.lengths = torch.zeros(0, dtype=torch.long, device=weights.device)
        self.born: list[int] = []                  # per row, length minus steps when it was filled: no transfer
        self.steps = 0
        self.rope = rope_table(self.shape, PACK, weights.dtype, weights.device)

    @property
    def blocks(self) -> int:
        """Blocks that the cache is in: with more than one, rows of like length belong together."""
        return len(self.cache.blocks)

    @property
    def sizes(self) -> list[int]:
        """Per row at least as many tokens as it holds, without asking the device."""
        return [self.steps + born for born in self.born]

    @property
    def longest(self) -> int:
        """No row holds more tokens than this."""
        return self.steps + max(self.born, default=0)

    def prefill(self, sequences: Sequence[Sequence[int]], rows: Sequence[int] | None = None) -> None:
        """Feeds these texts, computing no logits: into these rows, which forget theirs, or into a new batch.

        A text may be empty: one token of it, the next to be fed, is what `step` takes.
        """
        if rows is None:
            rows, self.steps, self.born = range(len(sequences)), 0, [0] * len(sequences)
            self.cache.open(len(sequences))
            self.lengths = torch.zeros(len(sequences), dtype=torch.long, device=self.weights.device)
        sizes = list(map(len, sequences))
        if len(rows) != len(sizes) or not sizes:
            raise ValueError(f"{len(sizes)} texts do not fill {len(rows)} rows")
        for row, size in zip(rows, sizes, strict=True):
            self.born[row] = size - self.steps
        self.reserve()
        for group in length_groups(sizes, FED.get(self.weights.device.type, WIDE)):
            at = torch.tensor([rows[i] for i in group], device=self.weights.device)
            self.lengths[at] = torch.tensor([sizes[i] for i in group]).to(at.device)
            if sizes[group[-1]]:
                for level, _, new in self.through([sequences[i] for i in group]):
                    if level:
                        self.cache.put(level - 1, [rows[i] for i in group], [sizes[i] for i in group], new)

    @torch.no_grad()
    def step(self, tokens: Tensor, alive: Tensor | None = None) -> Tensor:
        """Feeds one token a row [rows]; raw logits [rows, V], or [rows, len(ids)] of a restricted head.

        Rows that are not `alive` [rows] stay as long as they are, and their logits mean nothing.
        """
        if len(tokens) != len(self.lengths):
            raise ValueError(f"{len(tokens)} tokens for {len(self.lengths)} rows")
        self.reserve(1)
        at = self.lengths
        parts = [part_of(lengths, block.shape[3], block.shape[4], self.weights.dtype)
                 for lengths, block in zip(at.split(self.cache.size), self.cache.blocks, strict=True)]
        x, cos, sin = F.embedding(tokens, self.weights.embedding), self.rope[0][at], self.rope[1][at]
        for w, blocks in zip(self.weights.layers, self.cache.layers(), strict=True):
            x = batched_layer(x, w, self.shape, cos, sin, lambda q, k, v,
                              blocks=blocks: by_blocks(q, k, v, blocks, parts))
        self.lengths = at + (1 if alive is None else alive.long())
        self.steps += 1
        return self.weights.head(self.normed(x))

    def keep(self, rows: Sequence[int]) -> None:
        """Goes on with these rows alone, in this order."""
        sizes, at = self.sizes, torch.tensor(list(rows), dtype=torch.long, device=self.weights.device)
        self.cache.keep(rows, [sizes[row] for row in rows])
        self.lengths, self.born = self.lengths[at], [self.born[row] for row in rows]

    def streams(self, sequences: Sequence[Sequence[int]], levels: tuple[int, ...]) -> list[Tensor]:
        """Residual streams [len, levels, hidden] of each text, without the cache: `Transformer.features` of all.

        Level 0 is the embedding, i what layer i gives, the last one normed. Texts of like length go together.
        """
        count = len(self.weights.layers)
        if not levels or not all(0 <= level <= count for level in levels):
            raise ValueError(f"levels lie between 0 and {count}, got {tuple(levels)}")
        if not all(map(len, sequences)):
            raise ValueError("a text without tokens has no streams")
        out: list[Tensor] = [self.lengths] * len(sequences)
        for group in length_groups(list(map(len, sequences))):
            texts = [sequences[i] for i in group]
            kept = {}
            for level, x, _ in self.through(texts, max(levels)):
                if level in levels:
                    kept[level] = self.normed(x) if level == count else x
            stacked = torch.stack([kept[level] for level in levels], 1).view(len(texts), -1, len(levels), x.shape[-1])
            for i, text, streams in zip(group, texts, stacked, strict=True):
                out[i] = streams[:len(text)]
        return out

    @torch.no_grad()
    def through(self, texts: Sequence[Sequence[int]], last: int | None = None) -> Iterator[tuple[int, Tensor, Tensor]]:
        """(level, its stream [texts * longest, hidden], its keys and values [2, texts, kv_heads, longest, d]).

        Padded at the right, so that no token has padding before it.
        """
        length, device = max(map(len, texts)), self.weights.device
        self.angles(length)
        ids = torch.zeros(len(texts), length, dtype=torch.long)
        for row, text in enumerate(texts):
            ids[row, :len(text)] = torch.tensor(text, dtype=torch.long)
        cos, sin = (table[:length].repeat(len(texts), 1) for table in self.rope)
        x, kept = F.embedding(ids.to(device).view(-1), self.weights.embedding), []

        def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q, k, v = (part.view(len(texts), length, -1, self.shape.head_dim).transpose(1, 2) for part in (q, k, v))
            kept[:] = [torch.stack((k, v))]
            return causal(q, *kept[0].unbind(0)).transpose(1, 2).reshape(len(texts) * length, -1)

        yield 0, x, self.lengths
        for level, w in enumerate(self.weights.layers[:last], 1):
            x = batched_layer(x, w, self.shape, cos, sin, attention)
            yield level, x, kept[0]

    def normed(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (self.shape.hidden,), self.weights.norm, self.shape.eps)

    def reserve(self, more: int = 0) -> None:
        """Room for what every row holds and so many tokens more."""
        self.cache.reserve([max(span) + more for span in self.cache.spans(self.sizes)])
        self.angles(self.longest + more)

    def angles(self, length: int) -> None:
        if len(self.rope[0]) < length:
            self.rope = rope_table(self.shape, 2 * length, self.weights.dtype, self.weights.device)


def batched_layer(x: Tensor, w: LayerWeights, shape: LlamaConfig, cos: Tensor, sin: Tensor,
                  attention: Attention) -> Tensor:
    """One decoder layer over x [rows, hidden] with angles [rows, d]; who sees whom is the attention's affair."""
    heads, turning, d = shape.heads, shape.heads + shape.kv_heads, shape.head_dim
    qkv = before_attention(x, w, shape).view(len(x), -1, d)                  # [rows, heads + 2 kv_heads, d]
    if w.q_norm is not None:
        qkv[:, :heads] = F.rms_norm(qkv[:, :heads], (d,), w.q_norm, shape.eps)
        qkv[:, heads:turning] = F.rms_norm(qkv[:, heads:turning], (d,), w.k_norm, shape.eps)
    turned = qkv[:, :turning]
    if w.turned:
        other = turned.roll(d // 2, -1)
        turned.mul_(cos[:, None]).addcmul_(other, sin[:, None])
    return after_attention(x, attention(turned[:, :heads], turned[:, heads:], qkv[:, turning:]), w, shape)


class Part(NamedTuple):
    """Where the rows of a block stand in a step, the same for every layer."""

    slots: Tensor                                  # [rows * kv_heads], where they write among all columns of all heads
    seen: Tensor                                   # [rows, 1, 1, columns], -inf where nothing of theirs is


def part_of(at: Tensor, kv_heads: int, columns: int, dtype: torch.dtype) -> Part:
    """Rows of these lengths [rows] in a block of so many heads and columns."""
    first = torch.arange(len(at) * kv_heads, device=at.device).view(-1, kv_heads) * columns
    seen = torch.zeros(len(at), 1, 1, columns, dtype=dtype, device=at.device)
    seen.masked_fill_((torch.arange(columns, device=at.device) > at[:, None])[:, None, None], float("-inf"))
    return Part((first + at[:, None]).flatten(), seen)


def by_blocks(q: Tensor, k: Tensor, v: Tensor, blocks: Sequence[Tensor], parts: Sequence[Part]) -> Tensor:
    """Attention of one token a row over the blocks that hold these rows: [rows, heads * d]."""
    size = blocks[0].shape[1]
    return torch.cat([one_each(*some) for some in
                      zip(q.split(size), k.split(size), v.split(size), blocks, parts, strict=True)])


def one_each(q: Tensor, k: Tensor, v: Tensor, kv: Tensor, part: Part) -> Tensor:
    """Attention of one token a row over kv [2, rows, kv_heads, columns, d], where it is written at its length."""
    rows, kv_heads, d = k.shape
    for new, held in zip((k, v), kv, strict=True):
        held.view(-1, d).index_copy_(0, part.slots, new.reshape(-1, d))
    keys, values = kv.unbind(0)
    q = q.reshape(rows * kv_heads, -1, d)
    weight = products(q, keys.flatten(0, 1))       # [rows * kv_heads, group, columns]
    weight.view(rows, kv_heads, -1, weight.shape[-1]).add_(part.seen)
    return torch.bmm(torch.softmax(weight, -1), values.flatten(0, 1)).view(rows, -1)


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention of every token of q [texts, heads, length, d] over k, v [texts, kv_heads, length, d] up to itself.

    On a CPU plain products of a tile of tokens with what is before its end take a third of the fused kernel's time.
    """
    texts, kv_heads, length, d = k.shape
    if q.is_cuda:
        k, v = (part.repeat_interleave(q.shape[1] // kv_heads, 1) for part in (k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0)
    k, v, out = k.flatten(0, 1), v.flatten(0, 1), torch.empty_like(q)
    ahead = torch.full((min(TILE, length),) * 2, float("-inf"), dtype=q.dtype).triu(1)
    for start in range(0, length, TILE):
        some = q[:, :, start:start + TILE]
        size, stop = some.shape[2], start + some.shape[2]
        weight = torch.bmm(some.reshape(texts * kv_heads, -1, d), k[:, :stop].transpose(1, 2))
        weight.view(len(k), -1, size, stop)[..., start:].add_(ahead[:size, :size])
        out[:, :, start:stop] = torch.bmm(torch.softmax(weight, -1), v[:, :stop]).view(some.shape)
    return out


def length_groups(sizes: Sequence[int], tokens: int = TOKENS) -> Iterator[list[int]]:
    """Indices of texts, shortest first, in groups that hold at most this many tokens once padded (or one text)."""
    group: list[int] = []
    for i in sorted(range(len(sizes)), key=lambda i: sizes[i]):
        if group and (len(group) + 1) * sizes[i] > tokens:
            yield group
            group = []
        group.append(i)
    if group:
        yield group


def draw(logits: Tensor, temperature: Tensor, coins: Tensor, top_p: float = 1.0) -> Tensor:
    """One column [rows] of each row of logits [rows, V]: the best where `temperature` [rows] is 0, else drawn.

    A nucleus without sorting: a column drawn from everything counts if what is likelier than it sums to less than
    `top_p`, else the next coin [rows, `coins_for(top_p)`] is tossed; after the last, the best. Columns exactly as
    likely as the last of the nucleus are in it.
    """
    best = argmax(logits)
    if not logits.is_cuda:                         # on a GPU to ask costs more than to toss
        warm = temperature.nonzero()[:, 0]
        if 0 < len(warm) < len(best):
            best[warm] = draw(logits[warm], temperature[warm], coins[warm], top_p)
        if len(warm) < len(best):
            return best
    probs = torch.softmax(logits.float() / temperature.clamp(min=1e-4)[:, None], -1)
    sums = probs.cumsum(-1)
    drawn = torch.searchsorted(sums, coins * sums[:, -1:], right=True).clamp(max=logits.shape[1] - 1)
    out, open_ = best, temperature > 0
    for column in drawn.unbind(1):
        here = probs.gather(1, column[:, None])
        inside = open_ & (likelier(probs, here, 1 - top_p) < top_p) & (here[:, 0] > 0)
        out, open_ = torch.where(inside, column, out), open_ & ~inside
        if not open_.is_cuda and not open_.any():
            break
    return out


def likelier(probs: Tensor, here: Tensor, small: float) -> Tensor:
    """What is likelier than `here` [rows, 1] of chances [rows, V] sums to this [rows].

    On a CPU it is summed up only where `here` is at most `small`; else 0 stands for anything below 1 - `small`.
    """
    if probs.is_cuda:
        return torch.where(probs > here, probs, 0).sum(-1)
    out, rows = torch.zeros(len(probs)), (here[:, 0] <= small + 1e-5).nonzero()[:, 0]
    some, least = probs[rows], here[rows]
    out[rows] = torch.where(some > least, some, 0).sum(-1)
    return out


def draws_for(top_p: float) -> int:
    """Coins after which one row in a thousand million has drawn nothing of the nucleus."""
    count = 1
    while (1 - top_p) ** count > 1e-9:
        count += 1
    return count
