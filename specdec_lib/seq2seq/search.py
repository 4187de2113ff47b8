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


def beam_search(net: EncoderDecoder, source: Sequence[int], longest: int, width: int = 5,
                penalty: float = 1.0) -> tuple[tuple[int, ...], int]:
    """The best output of a beam of `width`, and how many forwards it took; `beam_searches` says how it is found."""
    return beam_searches(net, [source], longest, width, penalty)[0]


@torch.inference_mode()
def beam_searches(net: EncoderDecoder, sources: Sequence[Sequence[int]], longest: int, width: int = 5,
                  penalty: float = 1.0) -> list[tuple[tuple[int, ...], int]]:
    """The best output for each source by a beam of its own, and in how many forwards the beam took part.

    A finished output's score is its log-probability divided by its length to the power `penalty`; a search ends when
    `width` outputs have finished, or at `longest` tokens. Only an end among the `width` best steps counts. All sources
    start together, share every forward, and leave it when their search ends; nobody takes their place.
    """
    return searched(net, read_sources(net, sources), len(sources), longest, width, penalty)


@torch.inference_mode()
def read_sources(net: EncoderDecoder, sources: Sequence[Sequence[int]]) -> Memory:
    """What the encoder makes of these sources, for the decoder to read."""
    encoded, mask = net.encoder.run(padded(sources))
    return net.decoder.memory(encoded, mask)


@torch.inference_mode()
def searched(net: EncoderDecoder, memory: Memory, count: int, longest: int, width: int = 5, penalty: float = 1.0
             ) -> list[tuple[tuple[int, ...], int]]:
    """`beam_searches` of so many sources that have been read."""
    past, beams = None, [Beam(width, penalty) for _ in range(count)]
    running, wide, owners, scores = beams, memory, [*range(len(beams))], torch.zeros(len(beams), 1)
    for place in range(longest):
        last = torch.tensor([[token] for beam in running for token in beam.last])
        logits, past = net.decoder.run(net.decoder.inputs(last, torch.tensor([place])), wide, None, past)
        total = scores[..., None] + logits[:, -1].log_softmax(-1).view(*scores.shape, -1)
        best = total.flatten(1).topk(min(2 * width, total[0].numel()))
        found = [beam.step(values, steps, total.shape[-1]) for beam, values, steps in
                 zip(running, best.values.tolist(), best.indices.tolist(), strict=True)]
        stay = [at for at, beam in enumerate(running) if not beam.done]
        if not stay:
            break
        past = chosen(past, [at * total.shape[1] + row for at in stay for row, _ in found[at]])
        scores = torch.tensor([[score for _, score in found[at]] for at in stay])
        running, before = [running[at] for at in stay], owners
        owners = [owners[at * total.shape[1]] for at in stay for _ in found[at]]
        wide = wide if owners == before else spread(memory, owners)
    return [(beam.best, beam.forwards) for beam in beams]


class Beam:
    """The search for one source: its unfinished outputs, best first, and those that have finished with their scores."""

    def __init__(self, width: int, penalty: float):
        self.width, self.penalty = width, penalty
        self.outputs: list[tuple[int, ...]] = [()]
        self.finished: list[tuple[float, tuple[int, ...]]] = []
        self.forwards = 0

    @property
    def done(self) -> bool:
        return len(self.finished) >= self.width

    @property
    def last(self) -> list[int]:
        """The token after which each unfinished output goes on."""
        return [output[-1] if output else BEGIN for output in self.outputs]

    @property
    def best(self) -> tuple[int, ...]:
        return max(self.finished)[1] if self.finished else self.outputs[0]

    def step(self, scores: Sequence[float], indices: Sequence[int], vocab: int) -> list[tuple[int, float]]:
        """Takes the best steps, best first, at indices output * vocab + token; returns what goes on and its score."""
        self.forwards += 1
        kept: list[tuple[int, int, float]] = []
        for rank, (score, index) in enumerate(zip(scores, indices, strict=True)):
            row, token = divmod(index, vocab)
            if token == END and rank >= self.width:      # an unlikely end would fill the beam with short outputs
                continue
            if token == END:
                self.finished.append((score / self.forwards ** self.penalty, (*self.outputs[row], END)))
            elif len(kept) < self.width:
                kept.append((row, token, score))
        self.outputs = [(*self.outputs[row], token) for row, token, _ in kept]
        return [(row, score) for row, _, score in kept]


def spread(memory: Memory, owners: Sequence[int]) -> Memory:
    """The memory of each row's source."""
    return Memory(tuple(KeysValues(kv.keys[list(owners)], kv.values[list(owners)]) for kv in memory.layers),
                  None if memory.mask is None else memory.mask[list(owners)])


def chosen(past: Sequence[KeysValues], rows: Sequence[int]) -> tuple[KeysValues, ...]:
    """The caches of these rows, repeated where a beam has split."""
    return tuple(KeysValues(kv.keys[list(rows)], kv.values[list(rows)]) for kv in past)
