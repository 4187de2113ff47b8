"""Position scores: how well each place has been copied from, folded from the rounds that offered it.

Source: ReSpec (arXiv 2511.01282), score S of a match position: it starts at 0.5, and after a round that offered the
position S <- (1 - rate) S + rate R, where R is the share of its chain that was accepted. The rate stands nowhere in the
paper; 0.3 is what a public re-implementation chose, and it forgets a round's result by half in two rounds.
"""

from __future__ import annotations

from operator import is_
from typing import NamedTuple

from specdec_lib.index.sequences import common_prefix, put_back
from specdec_lib.types import Round, Session


class Chain(NamedTuple):
    """What a drafter notes of each chain it offers: the key of its score, its length, its nodes, root to leaf.

    Nodes past the length are an extra that the score does not answer for.
    """

    key: int
    length: int
    nodes: tuple[int, ...]

    def share(self, path: tuple[int, ...]) -> float:
        """R: the share of the chain that lies on the accepted path."""
        return common_prefix(self.nodes[:self.length], path) / self.length


class PositionScores:
    """Reads the chains that rounds carry in their drafts' notes under `note`; `read(session)`, then `score(key)`."""

    def __init__(self, note: str, start: float = 0.5, rate: float = 0.3):
        if not 0 <= start <= 1:
            raise ValueError(f"start is a score between 0 and 1, got {start}")
        if not 0 < rate <= 1:
            raise ValueError(f"rate is above 0 and at most 1, got {rate}")
        self.note, self.start, self.rate = note, start, rate           # S0, alpha of the paper
        self._scores: dict[int, float] = {}
        self._rounds: tuple[Round, ...] = ()
        self._undo: list[dict[int, float | None]] = []                 # per round: the scores it replaced

    def read(self, session: Session) -> None:
        """Stand for exactly this history: take back rounds that it has not had, learn from those not yet read."""
        same = list(map(is_, self._rounds, session.rounds))
        keep = same.index(False) if False in same else len(same)
        while len(self._undo) > keep:
            self._take_back()
        for round in session.rounds[keep:]:
            self._learn(round)
        self._rounds = session.rounds

    def score(self, key: int) -> float:
        """The score of this key, `start` where it was never offered."""
        return self._scores.get(key, self.start)

    def _learn(self, round: Round) -> None:
        before: dict[int, float | None] = {}
        for noted in round.draft.notes.get(self.note, ()):
            chain = Chain(*noted)
            before.setdefault(chain.key, self._scores.get(chain.key))
            moved = self.rate * (chain.share(round.verdict.path) - self.score(chain.key))
            self._scores[chain.key] = self.score(chain.key) + moved
        self._undo.append(before)

    def _take_back(self) -> None:
        put_back(self._scores, self._undo.pop())
