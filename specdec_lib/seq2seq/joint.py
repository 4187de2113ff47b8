"""One forward of the verifier for several sequences, and one of the drafter: ragged rows, padded to a rectangle.

Every sequence has a source, an output and a draft of lengths of its own. Its rows stand at the left of the rectangle,
behind the keys and values that it knows, and a mask hides the padding. So each row computes what it computes alone, up
to the rounding of larger products. A forward of this model costs its calls more than its arithmetic: a few padded calls
beat one call per sequence. Source of ragged acceptance in one forward: Qian et al. 2024 (BASS, arXiv 2404.15778).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from specdec_lib.models.llama.row_stats import row_stats_of, split
from specdec_lib.scores import Scores
from specdec_lib.seq2seq.alphabet import PAD
from specdec_lib.seq2seq.caches import SharedCache, as_layers, as_rows
from specdec_lib.seq2seq.drafter import Block, BlockDrafter, BlockRequest, blocks_of
from specdec_lib.seq2seq.network import Decoder, Memory
from specdec_lib.seq2seq.verifier import Source, Verifier, draft_mask, is_chain
from specdec_lib.types import Draft, Refusal

Asked = tuple[Verifier, tuple[int, ...], Draft]    # a sequence, its context and the draft to be scored


class SequenceRows(NamedTuple):
    """The rows that one sequence feeds, behind the first `kept` rows of its cache, which all of them see."""

    cache: SharedCache
    kept: int
    tokens: tuple[int, ...]                        # whose keys and values are known afterwards
    ids: tuple[int, ...]                           # of each row, in the table of inputs
    positions: tuple[int, ...]
    reach: tuple[int, ...]                         # how many of the new rows each row sees
    tree: Tensor | None = None                     # which new rows each row sees [n, n], where a number does not say


class SharedForwards:
    """The forwards of one batch: `score` is the verifier's, `fill` the drafter's; neither keeps a sequence alive long.

    ValueError for sequences that cannot share one: the same one twice, or other networks.
    """

    def __init__(self):
        self.verified, self.drafted = SourcesTogether(), SourcesTogether()

    def score(self, asked: Sequence[Asked]) -> list[Scores]:
        """What each of these verifiers, by itself, would score for its context and draft: in one forward."""
        models = [model for model, _, _ in asked]
        refuse_strangers([model.net for model in models], [model.shared for model in models])
        decoder = models[0].net.decoder
        read_sources(decoder, [(model.shared, model, model.source) for model in models])
        parts = [rows_of(*one) for one in asked]
        logits = through_together(decoder, decoder.embedding, parts, self.verified)
        found = [logits[at, len(part.ids) - len(draft) - 1:len(part.ids)]
                 for at, (part, (_, _, draft)) in enumerate(zip(parts, asked, strict=True))]
        return scores_of(found)

    def fill(self, asked: Sequence[BlockRequest]) -> list[Block]:
        """What each of these drafters, by itself, would fill its block with: in one forward."""
        heads = [one.head for one in asked]
        refuse_strangers([head.net for head in heads], [head.shared for head in heads])
        for one in asked:
            one.head.bind(one.source)
        net = heads[0].net
        read_sources(net, [(one.head.shared, one.head.target, one.source) for one in asked])
        parts = [slots_of(*one) for one in asked]
        logits = through_together(net, torch.cat((net.embedding, net.queries)), parts, self.drafted)
        for head in heads:
            head.forwards += 1
        return blocks_of([logits[at, len(part.ids) - one.size:len(part.ids)]
                          for at, (part, one) in enumerate(zip(parts, asked, strict=True))])


def read_together(targets: Sequence[Verifier]) -> None:
    """Encodes the sources of newcomers in one forward; tokens of their prompts are read with the first draft."""
    refuse_strangers([target.net for target in targets], [target.shared for target in targets])
    net, sources = targets[0].net, [target.source for target in targets]
    with torch.inference_mode():
        hidden, _ = net.encoder.run(filled(sources, PAD))
    for target, source, rows in zip(targets, sources, hidden, strict=True):
        target.encoded.source, target.encoded.hidden = source, rows[None, :len(source)]
    read_sources(net.decoder, [(target.shared, target, target.source) for target in targets])


@torch.inference_mode()
def read_sources(decoder: Decoder, wanted: Sequence[tuple[SharedCache, Verifier, Source]]) -> None:
    """Keys and values of the sources that these caches lack, for every layer, computed at once."""
    open_ = [(cache, target.encode(source)[0]) for cache, target, source in wanted if cache.source is None]
    if open_:
        memory = decoder.memory(pad_sequence([hidden for _, hidden in open_], batch_first=True), None)
        for (cache, hidden), rows in zip(open_, as_rows(memory.layers), strict=True):
            cache.source = rows[:len(hidden)]


def member(target: Verifier) -> Verifier:
    """The same model and source with nothing read yet, for a place in a batch."""
    return target.fresh()


def refuse_strangers(nets: Sequence[Decoder | torch.nn.Module], caches: Sequence[SharedCache]) -> None:
    """Raises ValueError where these sequences cannot share a forward."""
    if len({id(cache) for cache in caches}) < len(caches):
        raise ValueError("a sequence stands in a batch once: two of these share a cache")
    if any(net is not nets[0] for net in nets):
        raise ValueError("sequences share a forward of the same network alone")


def rows_of(model: Verifier, tokens: tuple[int, ...], draft: Draft) -> SequenceRows:
    """The rows that a verifier's sequence lacks: of its context, then of its draft."""
    if not tokens:
        raise ValueError("a model needs at least one token of context")
    kept = model.shared.common(tokens)
    rows, chain = len(tokens) - kept, is_chain(draft)
    positions = (*range(kept, len(tokens)), *(len(tokens) - 1 + depth for depth in draft.depths))
    if max(positions) >= model.context:
        raise Refusal(f"the decoder holds {model.context} tokens: draft or generate fewer")
    return SequenceRows(model.shared, kept, tokens + draft.tokens if chain else tokens, tokens[kept:] + draft.tokens,
                        positions, tuple(range(1, len(positions) + 1)), None if chain else draft_mask(0, rows, draft))


def slots_of(head: BlockDrafter, source: tuple[int, ...], tokens: tuple[int, ...], size: int) -> SequenceRows:
    """The rows that a drafter's sequence lacks: of its prefix, then the slots, which see each other."""
    kept = head.shared.common(tokens)
    rows, first = len(tokens) - kept, len(head.net.embedding)
    return SequenceRows(head.shared, kept, tokens, (*tokens[kept:], *range(first, first + size)),
                        tuple(range(kept, len(tokens) + size)), (*range(1, rows + 1), *[rows + size] * size))


@torch.inference_mode()
def through_together(decoder: Decoder, table: Tensor, parts: Sequence[SequenceRows],
                     sources: SourcesTogether) -> Tensor:
    """Logits [B, n, V] of all rows, `n` of the longest sequence; every cache gets its own keys and values.

    Row i of `table` is the input of id i. Rows behind a sequence's own are padding, and nothing reads them.
    """
    x = F.embedding(filled([part.ids for part in parts], 0), table)
    x = x + F.embedding(filled([part.positions for part in parts], 0), decoder.places)
    empty = decoder.places.new_empty(0, 2 * len(decoder.layers) * decoder.sizes.width)
    known = pad_sequence([empty if part.cache.values is None else part.cache.values[:part.kept] for part in parts],
                         batch_first=True)
    past = as_layers(known, len(decoder.layers), decoder.sizes.heads) if known.shape[1] else None
    memory = sources.of(decoder, [part.cache for part in parts])
    logits, layers = decoder.run(x, memory, seen(parts, known.shape[1], x.shape[1]), past)
    for part, rows in zip(parts, as_rows(layers, known.shape[1]), strict=True):
        part.cache.keep(part.kept, part.tokens, rows[:len(part.tokens) - part.kept])
    return logits


def filled(rows: Sequence[Sequence[int]], value: int) -> Tensor:
    """These whole numbers [B, longest], with `value` behind the shorter rows."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[value] * (longest - len(row))] for row in rows])


def seen(parts: Sequence[SequenceRows], past: int, rows: int) -> Tensor:
    """Which keys each row sees [B, 1, rows, past + rows]; padding sees a sequence's first new row and stays finite."""
    kept = torch.tensor([part.kept for part in parts])
    before = torch.arange(past) < kept[:, None, None]
    own = torch.arange(rows) < filled([part.reach for part in parts], 1)[..., None]
    for at, part in enumerate(parts):
        if part.tree is not None:
            own[at, :len(part.ids), :len(part.ids)] = part.tree
    return torch.cat((before.expand(-1, rows, -1), own), -1)[:, None]


class SourcesTogether:
    """Keys and values of several sources as one memory, which is made anew when a sequence comes or goes."""

    def __init__(self):
        self.read: list[Tensor] = []
        self.memory: Memory | None = None

    def of(self, decoder: Decoder, caches: Sequence[SharedCache]) -> Memory:
        """The memory of these sequences, padded to the longest source."""
        rows = [cache.source for cache in caches if cache.source is not None]
        same = len(rows) == len(self.read) and all(one is two for one, two in zip(rows, self.read, strict=True))
        if not same or self.memory is None:
            lengths = torch.tensor([len(one) for one in rows])
            mask = torch.arange(int(lengths.max())) < lengths[:, None]
            layers = as_layers(pad_sequence(rows, batch_first=True), len(decoder.layers), decoder.sizes.heads)
            self.read, self.memory = rows, Memory(layers, mask[:, None, None])
        return self.memory


def scores_of(logits: Sequence[Tensor]) -> list[Scores]:
    """The scores of each sequence, with the statistics of all rows computed at once."""
    stats = split(row_stats_of(torch.cat(list(logits)), None), [len(one) for one in logits])
    return [Scores(one, None, own) for one, own in zip(logits, stats, strict=True)]
