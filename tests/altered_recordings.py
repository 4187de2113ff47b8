"""Recordings of other data, made from given ones: other answers, better drafters, drafters that are never right.

A notebook's sentences have to be true of all of these. Rows stay consistent: the best token of row i is output token i.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from specdec_lib import catalog
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.loop import begin
from specdec_lib.models.replay import Recording, Replay, save_recording
from specdec_lib.recordings.drafts import record_drafts, with_drafts
from specdec_lib.recordings.record import NODES
from specdec_lib.scores import RowStats
from specdec_lib.types import ROOT, Draft, Lattice

LIVE = ("prompt-lookup", "suffix-automaton", "token-recycling")    # drafters of the text alone: recorded again


def save_altered(recordings: Mapping[str, Recording], alter: Callable[[Recording], Recording], folder: Path) -> Path:
    """Every recording altered and saved in `folder`, which is created."""
    folder.mkdir(parents=True, exist_ok=True)
    for family, one in recordings.items():
        save_recording(alter(one), folder / f"{family}.safetensors")
    return folder


def better(recording: Recording, share: float = 0.7, seed: int = 0) -> Recording:
    """Trained drafters propose the true token with probability `share` where they did not, and are surer of it."""
    longest = max(length for lengths in recording.drafts.values() for length in lengths)
    dice = random.Random(seed)
    told = [[dice.random() < share for _ in range(longest)] for _ in recording.output]
    out = recording.output

    def truth(row: int, slot: int) -> int | None:
        return out[row + slot] if row + slot < len(out) and slot < longest and told[row][slot] else None
    return _redrafted(recording, truth)


def worse(recording: Recording) -> Recording:
    """No draft of a trained drafter is right at any position: each proposes what the target ranks lowest of its 64."""
    out, lowest = recording.output, recording.row_stats.ids[:, -1].tolist()

    def wrong(row: int, slot: int) -> int | None:
        return lowest[row + slot] if row + slot < len(out) else None
    return _redrafted(recording, wrong)


def shorter(recording: Recording, tokens: int = 24) -> Recording:
    """The first `tokens` output tokens alone."""
    return _rows(recording, range(min(tokens, len(recording.output))))


def backwards(recording: Recording) -> Recording:
    """The answer from its end to its beginning, its last token in place; trained drafters keep their drafts."""
    last = len(recording.output) - 1
    return _rows(recording, [*range(last - 1, -1, -1), last], drafts=False)


def looping(recording: Recording, period: int = 12) -> Recording:
    """An answer that repeats its first `period` tokens for ever, as copies like it."""
    return _rows(recording, [row % period for row in range(len(recording.output))])


def _rows(recording: Recording, rows: Sequence[int], drafts: bool = True) -> Recording:
    """The recording of these rows in this order; `drafts` False keeps the drafts where they were."""
    index, stats, old = torch.tensor(list(rows)), recording.row_stats, recording.output
    at = list(rows) if drafts else list(range(len(rows)))
    picked = RowStats(stats.ids[index], stats.logits[index], tuple(range(len(index))),
                      tuple(stats.lse[row] for row in rows), tuple(stats.entropy[row] for row in rows))

    def pick(kept: Mapping[str, Mapping[int, Sequence]]) -> dict:
        return {name: {length: tuple(some[row] for row in at) for length, some in lengths.items()}
                for name, lengths in kept.items()}
    return _live_again(replace(
        recording, tokens=(*recording.tokens[:recording.prompt], *(old[row] for row in rows)), row_stats=picked,
        drafts=pick(recording.drafts), seconds=pick(recording.seconds), lattices=pick(recording.lattices)))


def _live_again(recording: Recording) -> Recording:
    """What drafters without a model propose on the recording's text."""
    kit = Kit(Replay(recording), TokenizerFacts(end=recording.end, vocab=recording.about["vocab"]), nodes=NODES,
              parts=catalog.make_part)
    first = begin(recording.tokens[:recording.prompt], len(recording.output), recording.end)
    session = replace(first, tokens=recording.tokens, remaining=0)
    return with_drafts(recording, {name: record_drafts(name, session, kit, sorted(recording.drafts[name]), {})
                                   for name in LIVE if name in recording.drafts})


def _redrafted(recording: Recording, wanted: Callable[[int, int], int | None]) -> Recording:
    """Drafts and lattices of trained drafters with `wanted(row, slot)` as the best token wherever it is not None."""
    drafts = {name: {length: tuple(_draft(one, row, wanted) for row, one in enumerate(some))
                     for length, some in lengths.items()} if name not in LIVE else lengths
              for name, lengths in recording.drafts.items()}
    lattices = {name: {length: tuple(_lattice(one, row, wanted) for row, one in enumerate(some))
                       for length, some in lengths.items()} for name, lengths in recording.lattices.items()}
    pieces = {str(token): recording.about["pieces"].get(str(token), f"<{token}>")
              for token in (*recording.pieces, *recording.row_stats.ids[:, -1].tolist())}
    return replace(recording, drafts=drafts, lattices=lattices, about={**recording.about, "pieces": pieces})


def _draft(draft: Draft, row: int, wanted: Callable[[int, int], int | None]) -> Draft:
    """The first child of every first child gets the wanted token; a sibling that has it gets the token in exchange."""
    tokens, stats, confidence = list(draft.tokens), list(draft.stats), list(draft.confidence)
    node, slot = ROOT, 0
    while children := draft.children.get(node, ()):
        node, token = children[0], wanted(row, slot)
        if token is not None:
            for twin in children:
                if tokens[twin] == token:
                    tokens[twin] = tokens[node]
            tokens[node] = token
            if stats:
                stats[node] = _surer(stats[node])
            if confidence:
                confidence[node] = stats[node].prob if stats else max(confidence[node], 0.8)
        slot += 1
    return replace(draft, tokens=tuple(tokens), stats=tuple(stats), confidence=tuple(confidence))


def _surer(stat):
    first = 1 - (1 - stat.first) / 4
    return stat._replace(prob=first, first=first, second=stat.second / 4, entropy=stat.entropy / 2)


def _lattice(lattice: Lattice, row: int, wanted: Callable[[int, int], int | None]) -> Lattice:
    ids = lattice.ids.clone()
    for slot in range(len(ids)):
        token = wanted(row, slot)
        if token is not None:
            found = (ids[slot] == token).nonzero()
            ids[slot, int(found[0, 0]) if len(found) else -1] = int(ids[slot, 0])
            ids[slot, 0] = token
    return Lattice(ids, lattice.logp)
