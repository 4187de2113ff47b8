"""Many sequences at once through the weights of one decoder: for making data and features, not for decoding fast.

Sequences of different lengths share a padded cache; each row writes at its own length and sees its own tokens alone.
One row says what `Transformer` says of the same text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.models.llama.cache import twice
from specdec_lib.models.llama.config import LlamaConfig, rope_table
from specdec_lib.models.llama.forward import scaled
from specdec_lib.models.llama.weights import LayerWeights, LlamaWeights

ROOM = 128                                         # columns of a new cache; it doubles
PACK = 64                                          # columns are taken by that many, so shapes repeat
TOKENS = 8192                                      # padded tokens that go through the layers at once

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]      # queries, keys, values of rows -> [rows, heads * d]


class BatchedLlama:
    """Rows of a batch, each with a text of its own. `lengths` [rows] counts the tokens fed, on the device."""

    def __init__(self, weights: LlamaWeights):
        self.weights, self.shape = weights, weights.shape
        self.kv = torch.empty(0)                   # [layers, 2, rows, kv_heads, capacity, d]
        self.lengths = torch.zeros(0, dtype=torch.long, device=weights.device)
        self.born: list[int] = []                  # per row, length minus steps when it was filled: no transfer
        self.steps = 0
        self.rope = rope_table(self.shape, ROOM, weights.dtype, weights.device)

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
            s, w = self.shape, self.weights
            self.kv = torch.zeros(len(w.layers), 2, len(sequences), s.kv_heads, ROOM, s.head_dim, dtype=w.dtype,
                                  device=w.device)
            self.lengths = torch.zeros(len(sequences), dtype=torch.long, device=w.device)
        sizes = list(map(len, sequences))
        if len(rows) != len(sizes) or not sizes:
            raise ValueError(f"{len(sizes)} texts do not fill {len(rows)} rows")
        for row, size in zip(rows, sizes, strict=True):
            self.born[row] = size - self.steps
        self.reserve(max(sizes))
        for group in length_groups(sizes):
            at = torch.tensor([rows[i] for i in group], device=self.weights.device)
            self.lengths[at] = torch.tensor([sizes[i] for i in group]).to(at.device)
            if sizes[group[-1]]:
                for level, _, new in self.through([sequences[i] for i in group]):
                    if level:
                        self.kv[level - 1][:, at, :, :new.shape[3]] = new

    @torch.no_grad()
    def step(self, tokens: Tensor, alive: Tensor | None = None) -> Tensor:
        """Feeds one token a row [rows]; raw logits [rows, V], or [rows, len(ids)] of a restricted head.

        Rows that are not `alive` [rows] stay as long as they are, and their logits mean nothing.
        """
        if len(tokens) != len(self.lengths):
            raise ValueError(f"{len(tokens)} tokens for {len(self.lengths)} rows")
        self.reserve(self.longest + 1)
        stop = min(-(-(self.longest + 1) // PACK) * PACK, self.kv.shape[4])
        at, row = self.lengths, torch.arange(len(tokens), device=tokens.device)
        seen = torch.zeros(len(at), 1, 1, stop, dtype=self.weights.dtype, device=tokens.device)
        seen.masked_fill_((torch.arange(stop, device=tokens.device) > at[:, None])[:, None, None], float("-inf"))
        seen = seen.expand(-1, -1, self.shape.group, -1)
        x, cos, sin = F.embedding(tokens, self.weights.embedding), self.rope[0][at], self.rope[1][at]
        for w, kv in zip(self.weights.layers, self.kv.unbind(0), strict=True):
            x = batched_layer(x, w, self.shape, cos, sin, lambda q, k, v, kv=kv: one_each(q, k, v, kv, row, at, seen))
        self.lengths = at + (1 if alive is None else alive.long())
        self.steps += 1
        return self.weights.head(self.normed(x))

    def keep(self, rows: Sequence[int]) -> None:
        """Goes on with these rows alone, in this order."""
        at = torch.tensor(list(rows), dtype=torch.long, device=self.weights.device)
        self.kv, self.lengths, self.born = self.kv[:, :, at], self.lengths[at], [self.born[row] for row in rows]

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
            k, v = (part.repeat_interleave(self.shape.group, 1) for part in (k, v))
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0)
            return out.transpose(1, 2).reshape(len(texts) * length, -1)

        yield 0, x, self.lengths
        for level, w in enumerate(self.weights.layers[:last], 1):
            x = batched_layer(x, w, self.shape, cos, sin, attention)
            yield level, x, kept[0]

    def normed(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (self.shape.hidden,), self.weights.norm, self.shape.eps)

    def reserve(self, columns: int) -> None:
        """Room for that many tokens in every row."""
        while self.kv.shape[4] < columns:
            self.kv = twice(self.kv, 4)
        self.angles(self.kv.shape[4])

    def angles(self, length: int) -> None:
        if len(self.rope[0]) < length:
            self.rope = rope_table(self.shape, 2 * length, self.weights.dtype, self.weights.device)


def batched_layer(x: Tensor, w: LayerWeights, shape: LlamaConfig, cos: Tensor, sin: Tensor,
                  attention: Attention) -> Tensor:
    """One decoder layer over x [rows, hidden] with angles [rows, d]; who sees whom is the attention's affair."""
    heads, turning, d = shape.heads, shape.heads + shape.kv_heads, shape.head_dim
    qkv = w.qkv(scaled(x, shape.eps)).view(len(x), -1, d)                    # [rows, heads + 2 kv_heads, d]
    if w.q_norm is not None:
        qkv[:, :heads] = F.rms_norm(qkv[:, :heads], (d,), w.q_norm, shape.eps)
        qkv[:, heads:turning] = F.rms_norm(qkv[:, heads:turning], (d,), w.k_norm, shape.eps)
    turned = qkv[:, :turning]
    other = turned.roll(d // 2, -1)
    turned.mul_(cos[:, None]).addcmul_(other, sin[:, None])
    x = x + w.out(attention(turned[:, :heads], turned[:, heads:], qkv[:, turning:]))
    gate, up = w.gate_up(scaled(x, shape.eps)).chunk(2, -1)
    return w.down(F.silu(gate).mul_(up)).add_(x)


def one_each(q: Tensor, k: Tensor, v: Tensor, kv: Tensor, row: Tensor, at: Tensor, seen: Tensor) -> Tensor:
    """Attention of one token a row over kv [2, rows, kv_heads, capacity, d], where it is written at its length."""
    rows, kv_heads, d = k.shape
    kv[:, row, :, at] = torch.stack((k, v), 1)     # [rows, 2, kv_heads, d]: the two indices come first
    keys, values = kv[:, :, :, :seen.shape[-1]].unbind(0)
    out = F.scaled_dot_product_attention(q.reshape(rows, kv_heads, -1, d), keys, values, attn_mask=seen, scale=1.0)
    return out.reshape(rows, -1)


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
    best = logits.argmax(-1)
    probs = torch.softmax(logits.float() / temperature.clamp(min=1e-4)[:, None], -1)
    sums = probs.cumsum(-1)
    drawn = torch.searchsorted(sums, coins * sums[:, -1:], right=True).clamp(max=logits.shape[1] - 1)
    out, open_ = best, temperature > 0
    for column in drawn.unbind(1):
        here = probs.gather(1, column[:, None])
        inside = open_ & (torch.where(probs > here, probs, 0).sum(-1) < top_p) & (here[:, 0] > 0)
        out, open_ = torch.where(inside, column, out), open_ & ~inside
        if not open_.is_cuda and not open_.any():  # on a GPU to ask costs more than to toss
            break
    return out


def draws_for(top_p: float) -> int:
    """Coins after which one row in a thousand million has drawn nothing of the nucleus."""
    count = 1
    while (1 - top_p) ** count > 1e-9:
        count += 1
    return count
