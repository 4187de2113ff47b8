"""The encoder-decoder as the target: the `LM` protocol over its decoder, with a cache that aligns itself.

The encoder reads the source that the model is bound to, once; the decoder then scores a context and a draft in one
forward. A draft is a tree: a node sees the context, its ancestors and itself, at the position of its depth. After a
chain its keys and values are kept, and the next call cuts them back to what was accepted; after a tree those of the
context alone are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specdec_lib.scores import Scores
from specdec_lib.seq2seq.alphabet import BEGIN, VOCAB
from specdec_lib.seq2seq.caches import DecoderCache, SharedCache
from specdec_lib.seq2seq.network import EncoderDecoder, Memory
from specdec_lib.seq2seq.stored import fingerprint_of
from specdec_lib.types import Draft, Refusal

Source = tuple[int, ...]


@dataclass
class EncodedSource:
    """The source that was encoded last, so that target and drafter encode it once between them."""

    source: Source = ()
    hidden: Tensor | None = None                   # [1, S, d]


@dataclass
class Verifier:
    """The target for one source; `fresh()` forgets the cache, `bound(source)` reads another source."""

    net: EncoderDecoder
    source: Source = ()
    encoded: EncodedSource = field(default_factory=EncodedSource, repr=False)
    cache: DecoderCache = field(default_factory=DecoderCache, repr=False)
    shared: SharedCache = field(default_factory=SharedCache, repr=False)      # of forwards shared with others
    memory: Memory | None = field(default=None, repr=False)

    start: tuple[int, ...] = (BEGIN,)              # the prompt of every decode

    @property
    def context(self) -> int:
        return self.net.sizes.positions

    @property
    def vocab(self) -> int:
        return VOCAB

    @property
    def fingerprint(self) -> dict[str, str | None]:
        """What a checkpoint for this target is compared with."""
        return fingerprint_of(self.net)

    def fresh(self) -> Verifier:
        return Verifier(self.net, self.source)

    def bound(self, source: Sequence[int]) -> Verifier:
        """The same model for this source, nothing read yet; Refusal for one that is longer than its positions."""
        if len(source) > self.context:
            raise Refusal(f"the source has {len(source) - 1} letters and the encoder reads at most {self.context - 1}:"
                          " give fewer words")
        return Verifier(self.net, tuple(int(letter) for letter in source))

    def encode(self, source: Source) -> Tensor:
        """Hidden states [1, S, d] of a source; the last one is kept. Refusal for an empty one."""
        if not source:
            raise Refusal("an encoder-decoder reads a source: bind one with `target.bound(source)`")
        if self.encoded.source != source or self.encoded.hidden is None:
            with torch.inference_mode():
                self.encoded.hidden, _ = self.net.encoder.run(torch.tensor([source]))
            self.encoded.source = source
        return self.encoded.hidden

    def prefill(self, tokens: tuple[int, ...]) -> None:
        """Encodes the source, and reads the tokens into the cache."""
        self.remembered()
        if tokens:
            self(tokens, Draft())

    def remembered(self) -> Memory:
        """Keys and values of the bound source, computed at the first use."""
        if self.memory is None:
            with torch.inference_mode():
                self.memory = self.net.decoder.memory(self.encode(self.source), None)
        return self.memory

    def __call__(self, tokens: tuple[int, ...], draft: Draft) -> Scores:
        """Logits [1 + n, V] after the context and after each node, in one forward."""
        kept = self.cache.common(tokens)
        rows, chain = len(tokens) - kept, is_chain(draft)
        positions = [*range(kept, len(tokens)), *(len(tokens) - 1 + depth for depth in draft.depths)]
        if max(positions) >= self.context:
            raise Refusal(f"the decoder holds {self.context} tokens: draft or generate fewer")
        past = tuple(kv.first(kept) for kv in self.cache.layers) if kept else None
        with torch.inference_mode():
            x = self.net.decoder.inputs(torch.tensor([[*tokens[kept:], *draft.tokens]]), torch.tensor(positions))
            mask = None if len(positions) == 1 else draft_mask(kept, rows, draft)
            logits, layers = self.net.decoder.run(x, self.remembered(), mask, past)
        whole = tokens + draft.tokens if chain else tokens
        self.cache.tokens, self.cache.layers = whole, tuple(kv.first(len(whole)) for kv in layers)
        return Scores(logits[0, rows - 1:])


def is_chain(draft: Draft) -> bool:
    """Whether each node follows the one before it."""
    return draft.parents == tuple(range(-1, len(draft) - 1))


def draft_mask(kept: int, rows: int, draft: Draft) -> Tensor:
    """Which keys each new row sees [rows + n, kept + rows + n]: tokens of the context, then the nodes of the draft.

    A row of the context sees its past. A node sees the whole context, its ancestors and itself.
    """
    size = rows + len(draft)
    own = torch.ones(size, size, dtype=torch.bool).tril()
    for node, parent in () if is_chain(draft) else enumerate(draft.parents):
        line = own[rows + node]
        line[rows:] = False if parent < 0 else own[rows + parent, rows:]
        line[rows + node] = True
    return torch.cat((torch.ones(size, kept, dtype=torch.bool), own), 1)
