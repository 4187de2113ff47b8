"""One forward of an EAGLE head for several sequences: their rows go through its weights together.

A sequence keeps a head of its own on shared weights, so its cache aligns itself as in a decode alone. Its rows are fed
in the groups in which it feeds them alone, and they attend over its own cache alone: a newcomer's prompt beside the few
rows of others. Weights are read once for all sequences; attention is called once a sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from specdec_lib.heads.draft_vocabulary import side_by_side
from specdec_lib.heads.eagle import EagleHead, HeadRows
from specdec_lib.models.device import to_device, to_host
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.forward import Attend, Columns, LayerView, attended, columns
from specdec_lib.models.llama.logits_cache import LogitsCache
from specdec_lib.models.llama.row_stats import packed_stats, split, tells, unpacked
from specdec_lib.models.llama.weights import LayerWeights
from specdec_lib.scores import ListedRowStats, Scores
from specdec_lib.types import Draft

Asked = tuple[EagleHead, tuple[int, ...], Draft]   # a sequence's head, its context and the draft to be scored


class ChainRequest(NamedTuple):
    """The greedy chain of `count` tokens that a drafter asks of its head and that is not run yet."""

    head: EagleHead
    tokens: tuple[int, ...]
    count: int

    def alone(self) -> Scores:
        """The answer by forwards of its own."""
        return self.head.chain(self.tokens, self.count)


class HeadPart(NamedTuple):
    """The rows of one sequence in a forward: from `start` to `stop` of its cache, at `where` among all that are fed."""

    head: EagleHead
    where: slice
    start: int
    stop: int
    kv: Columns
    view: LayerView


def score_heads_together(asked: Sequence[Asked]) -> list[Scores]:
    """What each of these heads, by itself, would score for its context and draft: a forward for every group of rows.

    ValueError for heads that cannot share one: the same one twice, or other weights.
    """
    refuse_strangers([head for head, _, _ in asked])
    open_ = []
    for head, tokens, draft in asked:
        head.check(tokens)
        known = head.answers.known(tokens, draft)
        if known <= len(draft):
            open_.append((head, tokens, draft, known))
    if open_:
        feed_together([(head, tokens, draft) for head, tokens, draft, _ in open_])
        keep_logits(open_)
    return [head.scores(draft) for head, _, draft in asked]


def score_chains_together(asked: Sequence[ChainRequest]) -> list[Scores]:
    """The greedy chain of each of these heads: a forward for every token of the longest, and one transfer for all.

    As in `EagleHead.chain`, rows of the nodes are not kept. ValueError as above.
    """
    refuse_strangers([one.head for one in asked])
    for one in asked:
        one.head.check(one.tokens)
    feed_together([(one.head, one.tokens, Draft()) for one in asked])
    order = sorted(range(len(asked)), key=lambda at: -asked[at].count)           # those that go on come first
    steps, ids = chain_steps([asked[at] for at in order])
    told = to_host(torch.cat([packed_stats(logits, ids[:len(logits)]) for logits in steps]))
    starts = [0, *accumulate(map(len, steps))]
    found = {}
    for place, at in enumerate(order):
        head, _, count = asked[at]
        head.answers = LogitsCache()               # they are of rows that go
        head.forwards, head.fed = head.forwards + count - 1, head.fed + count - 1
        whole = torch.cat([logits[place:place + 1, :len(head.ids)] for logits in steps[:count]])
        found[at] = Scores(whole, head.ids, unpacked(told[[start + place for start in starts[:count]]], whole.dtype))
    return [found[at] for at in range(len(asked))]


def chain_steps(asked: Sequence[ChainRequest]) -> tuple[list[Tensor], Tensor]:
    """For each token of the longest chain the logits [chains that are as long, columns]; the longest chain is first.

    Also the tokens [chains, columns]. Each token goes from one row to the next on the device. The heads hold the rows
    of their contexts.
    """
    weights, steps = asked[0].head.weights, []
    words = side_by_side([one.head.vocabulary for one in asked])
    for one in asked:
        one.head.reserve(len(one.tokens) - 1 + one.count)
    with torch.inference_mode():
        x = torch.cat([one.head.hidden[len(one.tokens) - 2:len(one.tokens) - 1] for one in asked])
        for step in range(asked[0].count):
            read = weights.readout(x)
            steps.append(words.joined(weights.head(read), read).float())
            going = [one for one in asked if one.count > step + 1]
            if going:
                parts = [chain_part(one, place, step) for place, one in enumerate(going)]
                best = steps[-1][:len(going)].argmax(-1, keepdim=True)
                x = weights.output(x[:len(going)], words.ids[:len(going)].gather(1, best)[:, 0], attend_of(parts))
    return steps, words.ids


def chain_part(one: ChainRequest, place: int, step: int) -> HeadPart:
    """The row of a chain's token `step`, as row `place` of those that are fed."""
    row = len(one.tokens) - 1 + step
    view = one.head.row_view(row)
    (kv,) = columns(one.head.cache.kv, view)
    return HeadPart(one.head, slice(place, place + 1), row, row + 1, kv, view)


def feed_together(asked: Sequence[Asked]) -> None:
    """Computes all rows that these heads lack for scores of these drafts."""
    lacking = [(head, head.missing(tokens, draft)) for head, tokens, draft in asked]
    while groups := next_groups(lacking):
        run_together(groups)


def refuse_strangers(heads: Sequence[EagleHead]) -> None:
    """Raises ValueError where these heads cannot share a forward."""
    if len({id(head.cache) for head in heads}) < len(heads):
        raise ValueError("a sequence stands in a batch once: two of these share a cache")
    if any(head.weights is not heads[0].weights for head in heads):
        raise ValueError("heads share a forward on the same weights alone")


def next_groups(lacking: Sequence[tuple[EagleHead, Iterator[HeadRows]]]) -> list[tuple[EagleHead, HeadRows]]:
    """The rows that each head computes next; one that lacks none is left out."""
    found = [(head, next(groups, None)) for head, groups in lacking]
    return [(head, rows) for head, rows in found if rows is not None]


def run_together(groups: Sequence[tuple[EagleHead, HeadRows]]) -> None:
    """Computes these rows, a group of each head, into the heads' caches and stores their outputs."""
    weights = groups[0][0].weights
    with torch.inference_mode():
        features = features_of(groups)
    parts = parts_of(groups, [len(g) for g in features])
    fed = [token for part in parts for token in part.head.cache.rows.flat(part.start, part.stop)]
    with torch.inference_mode():
        x = weights.output(torch.cat(features), to_device(fed, weights.ids.device), attend_of(parts))
        for part in parts:
            part.head.ran(part.start, x[part.where])


def attend_of(parts: Sequence[HeadPart]) -> Attend:
    """Attention of all rows that are fed, each sequence's over its own cache."""
    def attend(qkv: Tensor, w: LayerWeights, shape: LlamaConfig) -> Tensor:
        return torch.cat([attended(qkv[part.where], w, shape, part.kv, part.view) for part in parts])
    return attend


def features_of(groups: Sequence[tuple[EagleHead, HeadRows]]) -> list[Tensor]:
    """The features [rows, hidden] of each group; those of committed tokens in one product."""
    taps = [rows.taps for _, rows in groups if rows.taps is not None]
    committed = iter(groups[0][0].weights.feature(torch.cat(taps)).split([len(one) for one in taps]) if taps else ())
    return [head.hidden[rows.parents] if rows.taps is None else next(committed) for head, rows in groups]


def parts_of(groups: Sequence[tuple[EagleHead, HeadRows]], counts: Sequence[int]) -> list[HeadPart]:
    """Where these groups of so many rows lie, with room for them in the caches."""
    parts, at = [], 0
    for (head, rows), count in zip(groups, counts, strict=True):
        stop = rows.start + count
        head.reserve(stop)
        view = head.view(rows.start, stop)
        (kv,) = columns(head.cache.kv, view)
        parts.append(HeadPart(head, slice(at, at + count), rows.start, stop, kv, view))
        at += count
    return parts


def keep_logits(asked: Sequence[tuple[EagleHead, tuple[int, ...], Draft, int]]) -> None:
    """Reads the logits of the rows that were asked for, in one product, and keeps each sequence's own."""
    counts = [1 + len(draft) - known for _, _, draft, known in asked]
    first = asked[0][0]
    with torch.inference_mode():
        rows = [head.hidden[len(tokens) - 2 + known:len(tokens) - 1 + len(draft)]
                for head, tokens, draft, known in asked]
        logits = own_logits([head for head, *_ in asked], torch.cat(rows), counts)
    stats: Sequence[ListedRowStats | None] = [None] * len(counts)
    if tells(first.ids.device, first.dtype):
        told = torch.cat([packed_stats(own, head.ids) for own, (head, *_) in zip(logits, asked, strict=True)])
        stats = split(unpacked(to_host(told), torch.promote_types(logits[0].dtype, torch.float32)), counts)
    for (head, tokens, draft, known), own, told in zip(asked, logits, stats, strict=True):
        head.answers.keep(tokens, draft, known, own, told)


def own_logits(heads: Sequence[EagleHead], x: Tensor, counts: Sequence[int]) -> list[Tensor]:
    """The logits [count, len(ids)] of so many of the rows x for each head: trained tokens in one product for all."""
    read = heads[0].weights.readout(x)
    logits = heads[0].weights.head(read)
    return [head.vocabulary.joined(known, part)
            for head, known, part in zip(heads, logits.split(counts), read.split(counts), strict=True)]
