"""Decodes with a stack of drafters, counted: forwards of every level, and which tokens the level above accepts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from specdec_lib.types import Session
from specdec_lib.what.hierarchy import NAME, InnerRound


class LevelCounts(NamedTuple):
    """One decode: forwards that verify, by level (the target's last), and what became of the topmost drafts."""

    forwards: tuple[int, ...]
    lowest: int                                    # tokens that the lowest drafter drafted
    rolled_back: int                               # tokens that the topmost level handed up and the target rejected
    emitted: int

    @property
    def tokens_per_target_forward(self) -> float:
        return self.emitted / self.forwards[-1]


class OriginCounts(NamedTuple):
    """Tokens of a middle level that the level above looked at, and how many of them it accepted."""

    looked_at: int
    accepted: int

    @property
    def share(self) -> float | None:
        return self.accepted / self.looked_at if self.looked_at else None


def inner_rounds_of(session: Session) -> list[InnerRound]:
    """All inner rounds of a decode, in order."""
    return [one for turn in session.rounds for one in turn.draft.notes.get(NAME, ())]


def level_counts(session: Session) -> LevelCounts:
    """The counts of one decode; a stack of one drafter has the target's forwards alone."""
    inner = inner_rounds_of(session)
    by_level = Counter(one.level for one in inner)
    handed = sum(len(turn.draft) for turn in session.rounds)
    kept = sum(len(turn.verdict.path) for turn in session.rounds)
    lowest = sum(len(one.drafted) for one in inner if one.level == 1) if inner else handed
    return LevelCounts((*(by_level[level] for level in sorted(by_level)), len(session.rounds)), lowest, handed - kept,
                       len(session.output))


def acceptance_by_origin(sessions: Iterable[Session]) -> tuple[OriginCounts, OriginCounts]:
    """Tokens that the topmost level took from the level below, and its own, as the target saw them.

    The target looks at a draft up to the first token that it rejects. Were acceptances independent of the origin, both
    shares would be equal but for chance.
    """
    seen: Counter[tuple[bool, bool]] = Counter()
    for session in sessions:
        for turn in session.rounds:
            inner = turn.draft.notes.get(NAME, ())
            top = max((one.level for one in inner), default=0)
            taken = [n < one.accepted for one in inner if one.level == top for n in range(len(one.emitted))]
            kept, cut = len(turn.verdict.path), len(turn.verdict.tokens) == len(turn.verdict.path)
            seen.update((own, place < kept) for place, own in enumerate(taken[:kept + (not cut)]))
    return (OriginCounts(seen[True, True] + seen[True, False], seen[True, True]),
            OriginCounts(seen[False, True] + seen[False, False], seen[False, True]))
