"""Greedy and beam search over many sources at once: labels for the drafter, error rates, and the quality bar."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from specdec_lib.seq2seq.alphabet import BEGIN, END, PAD
from specdec_lib.seq2seq.network import EncoderDecoder, KeysValues, Memory


def padded(rows: Sequence[Sequence[int]]) -> Tensor:
    """Token ids [rows, longest], PAD behind the shorter ones."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])


def greedy(net: EncoderDecoder, sources: Sequence[Sequence[int]], longest: int, batch: int = 256,
           ) -> Iterator[tuple[int, ...]]:
    """The greedy output of each source with its END, or `longest` tokens without one, in the order given."""
    order = sorted(range(len(sources)), key=lambda place: len(sources[place]))
    found: dict[int, tuple[int, ...]] = {}
    for start in range(0, len(order), batch):
        places = order[start:start + batch]
        rows = greedy_batch(net, padded([sources[place] for place in places]), longest)
        found |= dict(zip(places, rows, strict=True))
    yield from (found[place] for place in range(len(sources)))


@torch.inference_mode()
def greedy_batch(net: EncoderDecoder, source: Tensor, longest: int) -> list[tuple[int, ...]]:
    """Greedy outputs of one batch [B, S]."""
    encoded, mask = net.encoder.run(source)
    memory, past, out = net.decoder.memory(encoded, mask), None, []
    last, done = torch.full((len(source),), BEGIN), torch.zeros(len(source), dtype=torch.bool)
    for place in range(longest):
        x = net.decoder.inputs(last[:, None], torch.tensor([place]))
        logits, past = net.decoder.run(x, memory, None, past)
        last = torch.where(done, PAD, logits[:, -1].argmax(-1))
        out.append(last)
        done |= last == END
        if bool(done.all()):
            break
    return [tuple(token for token in row if token != PAD) for row in torch.stack(out, 1).tolist()]


@torch.inference_mode()
def beam_search(net: EncoderDecoder, source: Sequence[int], longest: int, width: int = 5,
                penalty: float = 1.0) -> tuple[tuple[int, ...], int]:
    """The best output of a beam of `width`, and how many forwards it took.

    A finished output's score is its log-probability divided by its length to the power `penalty`; the search ends
    when `width` outputs have finished, or at `longest` tokens. Only an end among the `width` best steps counts.
    """
    encoded, mask = net.encoder.run(torch.tensor([source]))
    memory, past = net.decoder.memory(encoded, mask), None
    beams, scores, finished = [()], torch.zeros(1), []
    for place in range(longest):
        last = torch.tensor([[beam[-1] if beam else BEGIN] for beam in beams])
        logits, past = net.decoder.run(net.decoder.inputs(last, torch.tensor([place])), spread(memory, len(beams)),
                                       None, past)
        total = scores[:, None] + logits[:, -1].log_softmax(-1)
        best = total.flatten().topk(min(2 * width, total.numel()))
        kept: list[tuple[int, int, float]] = []
        for rank, (score, index) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True)):
            row, token = divmod(index, logits.shape[-1])
            if token == END and rank >= width:     # an unlikely end would fill the beam with short outputs
                continue
            if token == END:
                finished.append((score / (place + 1) ** penalty, (*beams[row], END)))
            elif len(kept) < width:
                kept.append((row, token, score))
        rows = [row for row, _, _ in kept]
        beams = [(*beams[row], token) for row, token, _ in kept]
        scores, past = torch.tensor([score for _, _, score in kept]), chosen(past, rows)
        if len(finished) >= width:
            break
    return (max(finished)[1] if finished else beams[0]), place + 1


def spread(memory: Memory, rows: int) -> Memory:
    """The memory of one source for several rows."""
    return Memory(tuple(KeysValues(kv.keys.expand(rows, -1, -1, -1), kv.values.expand(rows, -1, -1, -1))
                        for kv in memory.layers), memory.mask)


def chosen(past: Sequence[KeysValues], rows: Sequence[int]) -> tuple[KeysValues, ...]:
    """The caches of these rows, repeated where a beam has split."""
    return tuple(KeysValues(kv.keys[list(rows)], kv.values[list(rows)]) for kv in past)
