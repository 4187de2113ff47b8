"""The words of the canvas: what is filled, what a model says about it, and the state of one decode.

A canvas is a fixed number of positions, some of them masked; there is no left-to-right prefix. One forward of a
bidirectional model gives a distribution for every position. A *choice* is a position with its token; the *score* of a
position (its confidence, margin or entropy) decides the order in which choices are made. Data flows one way: canvas ->
model -> forecast -> choices -> round -> session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

from specdec_lib.types import RandomNumbers

if TYPE_CHECKING:
    from specdec_lib.canvas.forecast import Forecast


@dataclass(frozen=True)
class Canvas:
    """Tokens of all positions, some equal to `mask`; only positions of `area` are ever filled or masked again.

    `block` is the length of a semi-autoregressive block, in positions of the area; 0 = the whole area is one block.
    """

    tokens: tuple[int, ...]
    mask: int                                      # the mask token's id
    area: tuple[int, ...]                          # ascending
    block: int = 0

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def masked(self) -> tuple[int, ...]:
        """Positions of the area that hold the mask, ascending."""
        return tuple(position for position in self.area if self.tokens[position] == self.mask)

    @cached_property
    def open_block(self) -> tuple[int, ...]:
        """All positions, filled and masked, of the first block that has a mask; () for a full canvas."""
        if not self.masked:
            return ()
        length = self.block or len(self.area)
        start = self.area.index(self.masked[0]) // length * length
        return self.area[start:start + length]

    @cached_property
    def open(self) -> tuple[int, ...]:
        """The masked positions of the open block: what may be filled now."""
        inside = frozenset(self.open_block)
        return tuple(position for position in self.masked if position in inside)

    @property
    def full(self) -> bool:
        return not self.masked

    @property
    def answer(self) -> tuple[int, ...]:
        """The tokens of the area."""
        return tuple(self.tokens[position] for position in self.area)

    def fill(self, positions: Sequence[int], tokens: Sequence[int]) -> Canvas:
        """The canvas with these tokens at these positions; the mask as a token empties a position."""
        if not positions:
            return self
        new = dict(zip(positions, tokens, strict=True))
        if not new.keys() <= self.allowed:
            raise ValueError(f"only positions of the area are filled, got {sorted(new.keys() - self.allowed)}")
        return replace(self, tokens=tuple(new.get(position, old) for position, old in enumerate(self.tokens)))

    def erase(self, positions: Sequence[int]) -> Canvas:
        """The canvas with the mask at these positions."""
        return self.fill(positions, (self.mask,) * len(positions))

    @cached_property
    def allowed(self) -> frozenset[int]:
        return frozenset(self.area)


class CanvasModel(Protocol):
    """A bidirectional model of canvases; its forecast is made by `forecast.forecast`, so that ties are broken once."""

    @property
    def vocab(self) -> int:
        """Token ids are below this; the mask's id counts."""
        ...

    @property
    def mask(self) -> int:
        """The mask token's id."""
        ...

    @property
    def end(self) -> tuple[int, ...]:
        """Tokens that close a text, which Tolerator damps; () where there are none."""
        ...

    def __call__(self, canvases: Sequence[Canvas], /) -> Forecast:
        """One batched forward: all canvases have one length and are the rows of one batch.

        The forecast covers at least the positions of every canvas's area.
        """
        ...


class Choice(NamedTuple):
    """A position with the token that a rule puts there; `score` orders positions, `confidence` is the probability."""

    position: int
    token: int
    confidence: float
    score: float = 0.0


@dataclass(frozen=True)
class CanvasRound:
    """One round: what was written, and what it cost. No tensor: what recordings, replays and reports read.

    Filling `positions` with `tokens` in the canvas before gives the canvas after; the mask is a token here.
    """

    positions: tuple[int, ...]
    tokens: tuple[int, ...]
    confidences: tuple[float, ...]                 # probability of each token when it was written
    forwards: int = 1                              # batched forwards
    rows: int = 1                                  # rows of all its forwards together
    drafted: int = 0                               # rows beyond the first: canvases that were guessed
    hidden: tuple[int, ...] = ()                   # filled positions that were masked for this round's forward
    locked: tuple[int, ...] = ()                   # positions that are never masked again, so far
    ties: int = 0                                  # decisions in which two positions or two tokens were exactly equal
    seconds: float = 0.0


@dataclass(frozen=True)
class CanvasSession:
    """The state of one decode: the canvas now, the one it began with, and the rounds between."""

    canvas: Canvas
    start: Canvas
    rounds: tuple[CanvasRound, ...] = ()

    @staticmethod
    def begin(canvas: Canvas) -> CanvasSession:
        return CanvasSession(canvas, canvas)

    @property
    def forwards(self) -> int:
        return sum(round.forwards for round in self.rounds)

    @property
    def rows(self) -> int:
        return sum(round.rows for round in self.rounds)

    @property
    def ties(self) -> int:
        return sum(round.ties for round in self.rounds)

    @property
    def seconds(self) -> float:
        return sum(round.seconds for round in self.rounds)

    def after(self, round: CanvasRound) -> CanvasSession:
        return replace(self, canvas=self.canvas.fill(round.positions, round.tokens), rounds=(*self.rounds, round))

    def canvases(self) -> tuple[Canvas, ...]:
        """The canvas at the start and after every round."""
        out = [self.start]
        for round in self.rounds:
            out.append(out[-1].fill(round.positions, round.tokens))
        return tuple(out)


CanvasMethod = Callable[[CanvasSession, CanvasModel, RandomNumbers], Iterator[CanvasSession]]


@dataclass(frozen=True)
class CanvasTask:
    """A canvas to fill; `answer` is the full canvas's tokens where the truth is known."""

    id: str
    canvas: Canvas
    answer: tuple[int, ...] | None = None
    family: str = ""                               # of the task, such as the number of blanks: results are split by it


def no_quality(task: CanvasTask, canvas: Canvas) -> Mapping[str, float]:
    """No numbers beside `solved`."""
    return {}


def tokens_as_text(canvas: Canvas) -> str:
    """Token ids as words, `_` for a mask."""
    return " ".join("_" if token == canvas.mask else str(token) for token in canvas.tokens)


@dataclass(frozen=True)
class CanvasWorld:
    """A model with tasks: what `worlds.open_world(name)` gives, and all that a run knows of it."""

    name: str
    model: CanvasModel
    tasks: tuple[CanvasTask, ...]
    solved: Callable[[CanvasTask, Canvas], bool | None]        # None where right and wrong are not defined
    quality: Callable[[CanvasTask, Canvas], Mapping[str, float]] = no_quality      # such as NLL under the target
    text: Callable[[Canvas], str] = tokens_as_text             # for a person
    about: Mapping[str, str | int | float] = field(default_factory=dict)       # provenance: file, checksum, parameters
