"""Position scores: how much of the copies from each position was accepted, computed from the rounds that offered it.

Source: ReSpec (arXiv 2511.01282), score S of a match position: it starts at 0.5, and after a round that offered the
position S <- (1 - rate) S + rate R, where R is the share of its chain that was accepted. The paper does not give the
rate; 0.3 is the choice of a public re-implementation, with which the weight of a round halves in two rounds.
"""

from __future__ import annotations

from operator import is_
from typing import NamedTuple

from specdec_lib.index.sequences import common_prefix, restore
from specdec_lib.types import Round, Session


class Chain(NamedTuple):
    """A drafter's note on each offered chain: the key of its score, its length, its nodes from root to leaf.

    Nodes beyond the length do not count in the score.
    """

    key: int
    length: int
    nodes: tuple[int, ...]

    def share(self, path: tuple[int, ...]) -> float:
        """R: the share of the chain on the accepted path."""
        return common_prefix(self.nodes[:self.length], path) / self.length


class PositionScores:
    """Scores from the chains in the rounds' draft notes under `note`: call `read(session)`, then `score(key)`."""

    def __init__(self, note: str, start: float = 0.5, rate: float = 0.3):
        if not 0 <= start <= 1:
            raise ValueError(f"start must be a score between 0 and 1, got {start}")
        if not 0 < rate <= 1:
            raise ValueError(f"rate must be above 0 and at most 1, got {rate}")
        self.note, self.start, self.rate = note, start, rate           # S0, alpha of the paper
        self._scores: dict[int, float] = {}
        self._rounds: tuple[Round, ...] = ()
        self._undo: list[dict[int, float | None]] = []                 # per round: the replaced scores

    def read(self, session: Session) -> None:
        """Set the history to this session's: take back rounds that it does not have, and learn from new ones."""
        same = list(map(is_, self._rounds, session.rounds))
        keep = same.index(False) if False in same else len(same)
        while len(self._undo) > keep:
            self._take_back()
        for round in session.rounds[keep:]:
            self._learn(round)
        self._rounds = session.rounds

    def score(self, key: int) -> float:
        """The score of this key; `start` if it was never offered."""
        return self._scores.get(key, self.start)

    def tried(self, key: int) -> bool:
        """Whether a round has offered this key; its score may be `start` nevertheless."""
        return key in self._scores

    def _learn(self, round: Round) -> None:
        before: dict[int, float | None] = {}
        for noted in round.draft.notes.get(self.note, ()):
            chain = Chain(*noted)
            before.setdefault(chain.key, self._scores.get(chain.key))
            moved = self.rate * (chain.share(round.verdict.path) - self.score(chain.key))
            self._scores[chain.key] = self.score(chain.key) + moved
        self._undo.append(before)

    def _take_back(self) -> None:
        restore(self._scores, self._undo.pop())
