"""The drafter's decoder at work: a block of tokens after a prefix in one forward, with the prefix in a cache.

It reads the source through the verifier's encoder, which it was trained on, so a decode encodes the source once.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from specdec_lib.heads.base import PerTarget
from specdec_lib.scores import TokenStats
from specdec_lib.seq2seq.network import BlockDecoder, Memory
from specdec_lib.seq2seq.stored import drafter_from
from specdec_lib.seq2seq.verifier import DecoderCache, Source, Verifier
from specdec_lib.types import LM, Refusal


class BlockDrafter:
    """`draft(source, tokens, size)` fills a block; `forwards` counts blocks. One decode each, or many in turn."""

    def __init__(self, net: BlockDecoder, target: Verifier):
        if net.sizes.width != target.net.sizes.width:
            raise Refusal(f"the drafter reads hidden states of {net.sizes.width} numbers and this encoder gives"
                          f" {target.net.sizes.width}: it was trained for another model")
        self.net, self.target = net, target
        self.source: Source = ()
        self.memory: Memory | None = None
        self.cache = DecoderCache()
        self.forwards = 0

    @property
    def block(self) -> int:
        """The most slots that it has queries for."""
        return self.net.sizes.block

    def __call__(self, source: Source, tokens: tuple[int, ...], size: int) -> tuple[list[int], list[TokenStats]]:
        """The best token of each of `size` slots after these tokens, and the statistics of its distribution."""
        with torch.inference_mode():
            logits = self.logits(source, tokens, size)
            logp = logits.log_softmax(-1)
            best = logp.topk(2, -1)
            entropy = torch.special.entr(logp.exp()).sum(-1)
            first, second = best.values.exp().unbind(-1)
        chosen = best.indices[:, 0].tolist()
        told = zip(first.tolist(), second.tolist(), entropy.tolist(), strict=True)
        return chosen, [TokenStats(one, one, two, nats) for one, two, nats in told]

    def logits(self, source: Source, tokens: tuple[int, ...], size: int) -> Tensor:
        """Logits [size, V] of the slots behind these tokens."""
        if source != self.source or self.memory is None:
            self.source, self.memory = source, self.net.memory(self.target.encode(source), None)
            self.cache = DecoderCache()
        kept = self.cache.common(tokens)
        rows = len(tokens) - kept
        past = tuple(kv.first(kept) for kv in self.cache.layers) if kept else None
        prefix = self.net.inputs(torch.tensor([tokens[kept:]]), torch.arange(kept, len(tokens)))
        x = torch.cat((prefix, self.net.slots(torch.tensor([len(tokens)]), size)), 1)
        logits, layers = self.net.run(x, self.memory, slot_mask(kept, rows, size), past)
        self.cache.tokens, self.cache.layers = tokens, tuple(kv.first(len(tokens)) for kv in layers)
        self.forwards += 1
        return logits[0, rows:]


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
