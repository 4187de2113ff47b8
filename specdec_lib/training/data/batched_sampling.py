"""Many continuations at once: a batch that stays full for as long as somebody asks for more.

State lives on the device; one look at which rows are over comes to the host every few steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from specdec_lib.models.llama.batched import draw, draws_for

SPAN = 64                                          # a text that repeats so many tokens of itself in a row loops
SORTED = 16                                        # steps after which the rows of a batch are put in order of length
LOOKS = {"cuda": 16}                               # steps between two looks; 1 where looking costs nothing


@dataclass(frozen=True)
class Request:
    """A text to be continued by at most `limit` tokens; the same `key` means the same coins, whatever runs beside."""

    prompt: tuple[int, ...]
    limit: int
    temperature: float = 0.0
    key: int = 0
    note: tuple = ()                               # what the asker wants to find again


@dataclass(frozen=True)
class Reply:
    """What was said to a request, its end token included; `whole` unless time ran out."""

    request: Request
    output: tuple[int, ...]
    whole: bool


@dataclass(frozen=True)
class RunningRow:
    """A row between two steps: what it was asked and what it has said, or None; and the tokens that it takes up."""

    request: Request | None
    said: tuple[int, ...]
    size: int


class BatchedModel(Protocol):
    """Many texts at once through one model: `BatchedLlama`, `BatchedHuggingFace`."""

    steps: int                                     # taken by this batch

    @property
    def device(self) -> torch.device: ...
    @property
    def ids(self) -> Tensor | None: ...            # tokens of a restricted head
    @property
    def blocks(self) -> int: ...                   # of its cache: with more than one, rows are sorted by length
    @property
    def rows(self) -> int | None: ...              # at most; None = as many as memory holds
    @property
    def sizes(self) -> list[int]: ...              # per row at least as many tokens as it holds

    def prefill(self, sequences: Sequence[Sequence[int]], rows: Sequence[int] | None = None) -> None: ...
    def step(self, tokens: Tensor, alive: Tensor | None = None) -> Tensor: ...
    def keep(self, rows: Sequence[int]) -> None: ...


def sample_batched(batch: BatchedModel, poll: Callable[[], Request | None], ends: Iterable[int], limit: int,
                   rows: int = 32, top_p: float = 0.98, over: Callable[[], bool] = lambda: False,
                   begun: Sequence[RunningRow] = (), steps: int = 0,
                   watch: Callable[[BatchRows], None] = lambda rows: None) -> Iterator[Reply]:
    """Replies as they come; `poll` is asked for more whenever a row is free, until nothing runs and it has none.

    A text ends with one of `ends`, at its limit (none above `limit`), where it starts to loop, or cut when `over`.
    `batch` runs at most `rows` at once; what is in it is forgotten. `watch` is called between two steps; the rows that
    it found running in an earlier process go on as `begun`, after so many `steps`.
    """
    first = [] if begun else take(poll, rows if batch.rows is None else min(rows, batch.rows))
    if not first and not begun:
        return
    slots = BatchRows(batch, sorted(ends), limit, top_p)
    if begun:
        slots.resume(begun, steps)
    else:
        slots.open(first)
    while True:
        watch(slots)
        for _ in range(LOOKS.get(batch.device.type, 1)):
            slots.advance()
        late = over()
        yield from slots.close(everything=late)
        if late:
            return
        free = slots.free
        new = take(poll, len(free))
        slots.fill(free[:len(new)], new)
        if len(slots.free) == len(slots.asked):
            return
        if 4 * len(slots.free) >= len(slots.asked):
            slots.shrink()
        elif slots.batch.steps % SORTED == 0:
            slots.sort()


def take(poll: Callable[[], Request | None], count: int) -> list[Request]:
    """Up to so many requests."""
    out: list[Request] = []
    while len(out) < count and (request := poll()) is not None:
        out.append(request)
    return out


class BatchRows:
    """The rows of a batch with what each has said so far [rows, limit + 1], all of it on the device."""

    def __init__(self, batch: BatchedModel, ends: Sequence[int], limit: int, top_p: float):
        self.batch, self.device, self.limit, self.top_p = batch, batch.device, limit, top_p
        self.ends = torch.tensor(ends, dtype=torch.long, device=self.device)
        self.asked: list[Request | None] = []

    @property
    def free(self) -> list[int]:
        return [row for row, request in enumerate(self.asked) if request is None]

    def open(self, requests: list[Request]) -> None:
        """As many rows as requests."""
        self.make_room(len(requests))
        self.fill(list(range(len(requests))), requests)

    def resume(self, rows: Sequence[RunningRow], steps: int) -> None:
        """The rows of an earlier batch as they were after so many steps, what they have said included."""
        self.make_room(len(rows))
        self.batch.steps = steps
        free = [row for row, one in enumerate(rows) if one.request is None]
        if free:
            self.batch.prefill([(0,) * rows[row].size for row in free], free)
        going = [(row, one.request, one.said) for row, one in enumerate(rows) if one.request is not None]
        self.fill([row for row, _, _ in going], [request for _, request, _ in going], [said for _, _, said in going])

    def running(self) -> list[RunningRow]:
        """The rows as they are between two steps."""
        told = zip(self.asked, self.said.tolist(), self.count.tolist(), self.batch.sizes, strict=True)
        return [RunningRow(request, tuple(said[:count]) if request else (), size)
                for request, said, count, size in told]

    def make_room(self, rows: int) -> None:
        """That many free rows."""
        device = self.device
        self.asked = [None] * rows
        self.token, self.count, self.most = (torch.zeros(rows, dtype=torch.long, device=device) for _ in range(3))
        self.alive = torch.zeros(rows, dtype=torch.bool, device=device)
        self.temperature = torch.zeros(rows, device=device)
        self.said = torch.zeros(rows, self.limit + 1, dtype=torch.long, device=device)   # a row that is over writes
        self.coins = torch.zeros(rows, self.limit + 1, draws_for(self.top_p), device=device)   # into the last column
        self.recent = torch.full((rows, self.limit), -1, device=device)
        self.runs = torch.zeros(rows, self.limit, dtype=torch.long, device=device)
        self.batch.prefill([()] * rows)

    def fill(self, rows: list[int], requests: list[Request], said: Sequence[tuple[int, ...]] = ()) -> None:
        """Starts these requests in these rows, or goes on with them after what they have said."""
        if not rows:
            return
        for row, request in zip(rows, requests, strict=True):
            if not request.prompt or not 0 < request.limit <= self.limit:
                raise ValueError(f"a request needs a text and a limit up to {self.limit}, got {request}")
            self.asked[row] = request
        texts = [(*request.prompt, *words) for request, words in
                 zip(requests, said or [()] * len(rows), strict=True)]
        self.batch.prefill([text[:-1] for text in texts], rows)
        at = torch.tensor(rows, device=self.device)
        self.token[at] = torch.tensor([text[-1] for text in texts], device=self.device)
        self.most[at] = torch.tensor([request.limit for request in requests], device=self.device)
        self.temperature[at] = torch.tensor([float(request.temperature) for request in requests], device=self.device)
        self.coins[at] = torch.stack([self.toss(request.key) for request in requests]).to(self.device)
        self.alive[at], self.count[at], self.recent[at], self.runs[at] = True, 0, -1, 0
        for row, words in zip(rows, said, strict=False):
            self.repeat(row, words)

    def repeat(self, row: int, words: tuple[int, ...]) -> None:
        """Takes note of what this row has said."""
        recent, runs = self.recent[row:row + 1], self.runs[row:row + 1]
        for token in torch.tensor(words, dtype=torch.long, device=self.device):
            recent, runs = loop_runs(recent, runs, token[None])
        self.recent[row], self.runs[row], self.count[row] = recent[0], runs[0], len(words)
        self.said[row, :len(words)] = torch.tensor(words, dtype=torch.long, device=self.device)

    def toss(self, key: int) -> Tensor:
        """All coins of one text, made on the host, so that they are the same on every device."""
        return torch.rand(self.coins.shape[1:], generator=torch.Generator().manual_seed(key))

    @torch.no_grad()
    def advance(self) -> None:
        """One token more in every row that is not over."""
        row = torch.arange(len(self.token), device=self.device)
        logits = self.batch.step(self.token, self.alive)
        column = draw(logits, self.temperature, self.coins[row, self.count], self.top_p)
        ids = self.batch.ids
        self.token = column if ids is None else ids.to(self.device)[column]
        self.said[row, self.count] = self.token
        self.recent, self.runs = loop_runs(self.recent, self.runs, self.token)
        self.count = self.count + self.alive.long()
        loops = (self.runs >= SPAN).any(1)
        self.alive = self.alive & ~(torch.isin(self.token, self.ends) | (self.count >= self.most) | loops)

    def close(self, everything: bool = False) -> Iterator[Reply]:
        """Hands out the rows that are over, or all; they are free then."""
        counts = torch.where(self.alive, -self.count, self.count).tolist()         # the one look at the device
        rows = [row for row, request in enumerate(self.asked)
                if request is not None and (everything or counts[row] > 0)]
        if not rows:
            return
        for row, said in zip(rows, self.said[torch.tensor(rows, device=self.device)].tolist(), strict=True):
            request, self.asked[row] = self.asked[row], None
            assert request is not None             # only such rows are closed
            yield Reply(request, tuple(said[:abs(counts[row])]), counts[row] > 0)

    def shrink(self) -> None:
        """Goes on with the rows that are not free."""
        self.keep([row for row, request in enumerate(self.asked) if request is not None])

    def sort(self) -> None:
        """Puts rows of like length together, where the cache is in blocks."""
        if self.batch.blocks > 1:
            sizes = self.batch.sizes
            self.keep(sorted(range(len(sizes)), key=lambda row: sizes[row]))

    def keep(self, rows: list[int]) -> None:
        """Goes on with these rows in this order."""
        at = torch.tensor(rows, device=self.device)
        self.batch.keep(rows)
        self.asked = [self.asked[row] for row in rows]
        for name in ("token", "count", "most", "alive", "temperature", "said", "coins", "recent", "runs"):
            setattr(self, name, getattr(self, name)[at])


def loop_runs(recent: Tensor, runs: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
    """Both with one token [rows] more: the last tokens [rows, lags], latest first, and per lag how many tokens in a
    row have equalled the one so far before them."""
    runs = (runs + 1) * (recent == token[:, None])
    return torch.cat((token[:, None], recent[:, :-1]), 1), runs
