"""A shard under way on disk: its answers as they come and its unfinished texts, so that a killed run resumes there.

What the lot was asked and told is kept in order and is told again to a new lot, which then stands where the old one
stood. The unfinished texts are kept with their rows and their words, and are continued. So a killed run ends with the
records of one that was not, up to what rounding makes of a text that is read at once and not word by word.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from specdec_lib.training.data.batched_sampling import BatchRows, Reply, Request, RunningRow
from specdec_lib.training.data.shards import Shards

EVERY = 1.0                                        # seconds between two writes, at least
SHARE = 0.02                                       # of the time that writing may take


class Lot(Protocol):
    """What asks for texts and is told the replies."""

    def poll(self) -> Request | None: ...
    def take(self, reply: Reply, /) -> None: ...


LotType = TypeVar("LotType", bound=Lot)


class BegunShard(Generic[LotType]):
    """One lot that is written down: `poll` and `take` are the lot's, `keep` is called between two steps."""

    def __init__(self, shards: Shards, place: int, make: Callable[[], LotType], settings: object):
        self.shards, self.place = shards, place
        self.key = hashlib.sha256(repr(settings).encode()).hexdigest()
        self.start(make())
        kept = shards.begun(place)
        try:
            if kept is not None and kept["key"] == self.key:
                self.resume(kept)
        except (KeyError, IndexError, TypeError, ValueError):      # not what we write: begin anew
            self.start(make())
        self.due = time.monotonic() + EVERY

    def start(self, lot: LotType) -> None:
        """Nothing is asked and nothing told."""
        self.lot, self.steps = lot, 0
        self.running: list[RunningRow] = []        # what to continue; empty at the start of a shard
        self.requests: list[Request] = []
        self.places: dict[int, int] = {}           # id of a request -> its number
        self.events: list[int | list] = []         # so many polls, or the number of a request with its reply

    def resume(self, kept: dict) -> None:
        """Tells the lot what it was told."""
        for event in kept["events"]:
            if isinstance(event, int):
                for _ in range(event):
                    self.poll()
            else:
                number, output, whole = event
                self.take(Reply(self.requests[number], tuple(output), whole))
        self.steps = int(kept["steps"])
        self.running = [RunningRow(None if number is None else self.requests[number], tuple(said), size)
                        for number, said, size in kept["rows"]]

    def poll(self) -> Request | None:
        if self.events and isinstance(self.events[-1], int):
            self.events[-1] += 1
        else:
            self.events.append(1)
        request = self.lot.poll()
        if request is not None:
            self.places[id(request)] = len(self.requests)
            self.requests.append(request)          # kept, so that no other takes over its id
        return request

    def take(self, reply: Reply) -> None:
        self.events.append([self.number(reply.request), list(reply.output), reply.whole])
        self.lot.take(reply)

    def number(self, request: Request) -> int:
        """Of this very request; another may be equal."""
        return self.places[id(request)]

    def keep(self, rows: BatchRows) -> None:
        """Writes the state if it is time to."""
        begun = time.monotonic()
        if begun >= self.due:
            now = [(None if row.request is None else self.number(row.request), row.said, row.size)
                   for row in rows.running()]
            self.shards.keep_begun(self.place, json.dumps({"key": self.key, "events": self.events, "rows": now,
                                                           "steps": rows.batch.steps}))
            ended = time.monotonic()
            self.due = ended + max(EVERY, (ended - begun) / SHARE)
