"""Majority vote: fill several times with drawn tokens, and take at every position the token that came up most often.

The fair contrast to refining at equal forwards: `runs` runs share `forwards` equally, so that all votes weigh the same.
A remainder is not spent: 4 runs of 10 forwards take 8; but a run takes a forward for every block. Equal counts: the
token of the earliest run. Positions are voted on one by one, so the result may be none of the runs' canvases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from specdec_lib.canvas.filling import check_temperature, fill, within_forwards
from specdec_lib.canvas.types import Canvas, CanvasModel, CanvasRound, CanvasSession, Choice
from specdec_lib.cards import Card
from specdec_lib.types import RandomNumbers, Refusal


@dataclass(frozen=True)
class Vote:
    """`runs` runs of parallel filling at this temperature, and their majority."""

    forwards: int = 32
    runs: int = 4
    temperature: float = 0.5

    def __call__(self, session: CanvasSession, model: CanvasModel, dice: RandomNumbers) -> Iterator[CanvasSession]:
        positions, filled = session.canvas.masked, []
        for run in range(self.runs):
            since, share = len(session.rounds), self.forwards // self.runs

            def take(choices: tuple[Choice, ...], now: CanvasSession, since: int = since, share: int = share) -> int:
                return within_forwards(share, now, since)

            for now in fill(session, model, take, dice.fork("run", run), temperature=self.temperature):
                session = now
                yield session
            filled.append(session.canvas)
            if run + 1 < self.runs:
                session = session.after(CanvasRound(positions, (session.canvas.mask,) * len(positions),
                                                    (0.0,) * len(positions), forwards=0, rows=0))
        yield session.after(majority(positions, filled))


def majority(positions: tuple[int, ...], filled: list[Canvas]) -> CanvasRound:
    """The round that writes the most frequent token of every position; its share of the runs is the confidence."""
    counts = [Counter(canvas.tokens[position] for canvas in filled).most_common(1)[0] for position in positions]
    return CanvasRound(positions, tuple(token for token, _ in counts),
                       tuple(count / len(filled) for _, count in counts), forwards=0, rows=0)


def make(model: CanvasModel, forwards: int = 32, runs: int = 4, temperature: float = 0.5) -> Vote:
    if runs < 1 or forwards < runs:
        raise Refusal(f"runs is at least 1 and forwards at least runs, got {runs} and {forwards}")
    return Vote(forwards, runs, check_temperature(temperature))


CARD = Card("vote", idea="fill several times with drawn tokens, take the majority of every position",
            source="Wang et al. 2022 (self-consistency), arXiv 2203.11171", make=make, lossless=False,
            notebook="63_tolerator")
