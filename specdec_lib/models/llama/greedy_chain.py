"""The greedy chain of a draft model as one launch: its tokens go from row to row on the device.

Otherwise a draft model is launched, and waited for, once a token. Here the last committed rows, the chain and the
statistics of its rows are one graph (`cuda_graph.py`), and one transfer brings them to the host. The rows of the chain
stay in the cache: the next context keeps those that were accepted.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor

from specdec_lib.models.device import to_host
from specdec_lib.models.llama.cache import KVCache
from specdec_lib.models.llama.cuda_graph import CapturedWork, columns_for, width_for
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.forward import LayerView, through_layers
from specdec_lib.models.llama.logits_cache import LogitsCache
from specdec_lib.models.llama.row_stats import packed_stats, unpacked
from specdec_lib.models.llama.weights import LlamaWeights
from specdec_lib.scores import Scores
from specdec_lib.types import Draft

LATE = 2                                           # committed rows that a chain takes in: its last token and the next


class GreedyChain(CapturedWork):
    """A chain of `count` tokens over the first `columns` rows of a cache: logits [count, V] and packed statistics."""

    def __init__(self, count: int, columns: int, weights: LlamaWeights, cache: KVCache, rope: tuple[Tensor, Tensor],
                 products: bool):
        self.count, self.columns, self.weights, self.rope = count, columns, weights, rope
        self.products = products
        super().__init__(8 * (2 * LATE + count), cache)          # tokens, their rows, and those of the chain
        self.numbers = self.staged.numpy().view(np.int64)

    def __call__(self, tokens: tuple[int, ...], start: int) -> tuple[Tensor, Tensor]:
        """The chain behind these tokens, at most LATE, whose rows begin at `start`; valid until the next launch.

        Padding lies behind them, where the chain overwrites it, and no row before it sees it.
        """
        rows, base = len(tokens), start + len(tokens)
        self.wait()
        self.numbers[:] = (*tokens, *[0] * (LATE - rows), *range(start, start + LATE),
                           *range(base - 1, base - 1 + self.count))
        self.send()
        logits, packed = self.launch()
        return logits, packed

    def compute(self) -> tuple[Tensor, Tensor]:
        """From the inputs to the logits of each row of the chain and their statistics."""
        numbers = self.inputs.view(torch.long)
        tokens, where, chain = numbers.split([LATE, LATE, self.count])
        known = self.layers(tokens, where)
        x, logits = known.index_select(0, chain[:1] - where[0]), []
        for row in range(self.count):
            logits.append(self.weights.head(self.weights.normed(x)))
            if row + 1 < self.count:               # nothing follows the last token
                best = logits[-1].argmax(-1)
                x = self.layers(best if self.weights.ids is None else self.weights.ids[best], chain[row + 1:row + 2])
        whole = torch.cat(logits)
        whole = whole.to(torch.promote_types(whole.dtype, torch.float32))
        return whole, packed_stats(whole, self.weights.ids)

    def layers(self, tokens: Tensor, where: Tensor) -> Tensor:
        """Hidden states of these tokens behind the layers; each row of the cache sees those up to its own."""
        hidden = torch.zeros(len(where), self.columns, dtype=self.weights.dtype, device=self.device)
        hidden.masked_fill_(torch.arange(self.columns, device=self.device) > where[:, None], float("-inf"))
        full = hidden.expand(self.weights.shape.group, -1, -1).reshape(-1, self.columns)
        view = LayerView(where, self.columns, self.rope[0][where], self.rope[1][where], full=full,
                         products=self.products)
        x = self.weights.embedding[tokens]
        return through_layers(x, self.weights, self.cache, view, 0, len(self.weights.layers))


def chains(lm: object) -> bool:
    """Whether `greedy_chain` drafts with this model: one of captured steps that has its cache for itself."""
    return (isinstance(lm, Transformer) and lm.lease is not None and lm.head is None and not lm.bidirectional
            and lm.depth == lm.layers and lm.cache.hidden is None)


def greedy_chain(lm: Transformer, tokens: tuple[int, ...], count: int) -> Scores:
    """Scores after the context and after each node but the last of the greedy chain of `count` tokens.

    `forwards` and `fed` are counted as if each token had a forward of its own.
    """
    rows, stop = lm.cache.rows, len(tokens)
    lm.cache.align(tokens, Draft())
    del rows.depth[stop - 1:]                      # the last row is computed again where its logits are not kept
    feed(lm, stop)
    start, chain = len(rows), captured_chain(lm, stop, count)
    with torch.inference_mode():
        logits, packed = chain(tokens[start:], start)
    stats = unpacked(to_host(packed), logits.dtype)
    drafted = tuple(ids[0] for ids in stats.tops[0][:count - 1])
    rows.draft = Draft(drafted, tuple(range(-1, len(drafted) - 1)))
    rows.depth += [lm.depth] * (stop - start + len(drafted))
    lm.forwards, lm.fed = lm.forwards + count, lm.fed + stop - start + len(drafted)
    lm.answers = LogitsCache(lm.static)            # those of the last call are of other rows
    return Scores(logits, lm.ids, stats)


def captured_chain(lm: Transformer, stop: int, count: int) -> GreedyChain:
    """The chain behind row `stop` - 1 on this model's cache, in which there is room for it then."""
    assert lm.lease is not None                    # `chains` asked
    rows = stop + max(LATE, count)
    lm.reserve(rows)
    held = lm.lease.held
    key = count, columns_for(rows), lm.cache.taps, lm.products
    if key not in held.chains:
        held.chains[key] = GreedyChain(count, columns_for(rows), lm.weights, lm.cache, lm.rope, lm.products)
    return cast(GreedyChain, held.chains[key])


def feed(lm: Transformer, stop: int) -> None:
    """Feeds rows of the context until at most LATE are missing before `stop`: a prompt, or what others drafted."""
    if stop - len(lm.cache.rows) <= LATE:
        return
    width = width_for(stop - 1 - len(lm.cache.rows))
    if width is None:
        lm.catch_up(stop - 1)
    else:
        lm.step(width, stop - 1)
