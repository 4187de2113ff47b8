"""The drafter's decoder at work: a block of tokens after a prefix in one forward, with the prefix in a cache.

It reads the source through the verifier's encoder, which it was trained on, so a decode encodes the source once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from specdec_lib.heads.base import PerTarget
from specdec_lib.scores import TokenStats
from specdec_lib.seq2seq.caches import DecoderCache, SharedCache
from specdec_lib.seq2seq.network import BlockDecoder, Memory
from specdec_lib.seq2seq.stored import drafter_from
from specdec_lib.seq2seq.verifier import Source, Verifier
from specdec_lib.types import LM, Refusal

Block = tuple[list[int], list[TokenStats]]         # the best token of each slot, and the statistics of its distribution


class BlockDrafter:
    """`draft(source, tokens, size)` fills a block; `forwards` counts blocks. One decode each, or many in turn."""

    def __init__(self, net: BlockDecoder, target: Verifier):
        if net.sizes.width != target.net.sizes.width:
            raise Refusal(f"the drafter reads hidden states of {net.sizes.width} numbers and this encoder gives"
                          f" {target.net.sizes.width}: it was trained for another model")
        self.net, self.target = net, target
        self.source: Source = ()
        self.memory: Memory | None = None
        self.cache, self.shared = DecoderCache(), SharedCache()      # of its own forwards, and of shared ones
        self.forwards = 0

    @property
    def block(self) -> int:
        """The most slots that it has queries for."""
        return self.net.sizes.block

    def __call__(self, source: Source, tokens: tuple[int, ...], size: int) -> Block:
        """The block of `size` slots after these tokens."""
        with torch.inference_mode():
            return blocks_of([self.logits(source, tokens, size)])[0]

    def bind(self, source: Source) -> None:
        """Turns to this source; if it is another one than before, no token is known any more."""
        if source != self.source:
            self.source, self.memory = source, None
            self.cache, self.shared = DecoderCache(), SharedCache()

    def remembered(self) -> Memory:
        """Keys and values of the source, computed at the first use."""
        if self.memory is None:
            with torch.inference_mode():
                self.memory = self.net.memory(self.target.encode(self.source), None)
        return self.memory

    def logits(self, source: Source, tokens: tuple[int, ...], size: int) -> Tensor:
        """Logits [size, V] of the slots behind these tokens."""
        self.bind(source)
        kept = self.cache.common(tokens)
        rows = len(tokens) - kept
        past = tuple(kv.first(kept) for kv in self.cache.layers) if kept else None
        prefix = self.net.inputs(torch.tensor([tokens[kept:]]), torch.arange(kept, len(tokens)))
        x = torch.cat((prefix, self.net.slots(torch.tensor([len(tokens)]), size)), 1)
        logits, layers = self.net.run(x, self.remembered(), slot_mask(kept, rows, size), past)
        self.cache.tokens, self.cache.layers = tokens, tuple(kv.first(len(tokens)) for kv in layers)
        self.forwards += 1
        return logits[0, rows:]


class BlockRequest(NamedTuple):
    """A block that is asked for and not filled yet: sequences of a batch fill theirs in one forward."""

    head: BlockDrafter
    source: Source
    tokens: tuple[int, ...]
    size: int


@torch.inference_mode()
def blocks_of(logits: Sequence[Tensor]) -> list[Block]:
    """The block of each sequence from the logits [size, V] of its slots."""
    logp = torch.cat(list(logits)).log_softmax(-1)
    best = logp.topk(2, -1)
    entropy = torch.special.entr(logp.exp()).sum(-1)
    first, second = best.values.exp().unbind(-1)
    chosen = best.indices[:, 0].tolist()
    stats = [TokenStats(one, one, two, nats) for one, two, nats in
             zip(first.tolist(), second.tolist(), entropy.tolist(), strict=True)]
    out, at = [], 0
    for one in logits:
        out.append((chosen[at:at + len(one)], stats[at:at + len(one)]))
        at += len(one)
    return out


def slot_mask(kept: int, rows: int, size: int) -> Tensor:
    """Which keys each new row sees [rows + size, kept + rows + size]: a token its past, a slot everything."""
    own = torch.ones(rows + size, rows + size, dtype=torch.bool)
    own[:rows] = own[:rows].tril()
    return torch.cat((torch.ones(rows + size, kept, dtype=torch.bool), own), 1)


NETWORK = PerTarget(lambda checkpoint, verifier: drafter_from(checkpoint))     # built once for all decodes


def block_drafter(checkpoint, target: LM) -> BlockDrafter:
    """The drafter of a loaded checkpoint for one decode of this target; Refusal for one that reads no source."""
    if not hasattr(target, "bound"):
        raise Refusal(f"the drafter {checkpoint.name} fills blocks for an encoder-decoder, and this target reads no"
                      " source: take --target g2p, or another method")
    verifier = cast(Verifier, target)
    return BlockDrafter(NETWORK(checkpoint, cast(Any, verifier.net)), verifier)
