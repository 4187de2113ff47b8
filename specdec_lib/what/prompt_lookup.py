"""Prompt lookup: propose what followed the same n-gram earlier in this text.

Source: Saxena 2023. The longest n-gram that occurred earlier is tried first. Every node is deterministic, so the
acceptance probability is p(token). Cost: no model pass. It does not depend on models or on *when*.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec_lib.cards import Card, Kit
from specdec_lib.index.ngram_positions import NgramPositions
from specdec_lib.index.sequences import continuation
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import QUERY, Budget, Draft, RandomNumbers, Refusal, Session, up_to_end

NAME = "prompt-lookup"


@dataclass(frozen=True)
class PromptLookup:
    """A chain copied from the `last` earlier occurrence or the `first`; empty where there is none."""

    positions: NgramPositions
    longest: int = 3                               # n-grams of this length first, then shorter ones
    shortest: int = 1
    mode: str = "last"                             # or "first", the published choice

    def __post_init__(self):
        if self.mode not in ("first", "last"):
            raise Refusal(f"mode must be 'first' or 'last', got {self.mode!r}")
        if not 1 <= self.shortest <= self.longest <= self.positions.longest:
            raise Refusal(f"n-gram lengths must satisfy 1 <= shortest <= longest, "
                          f"got {self.shortest} and {self.longest}")

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        """The budget's note `query` above 0 bounds the n-gram length."""
        self.positions.read(session.tokens)
        longest = min(self.longest, budget.notes.get(QUERY) or self.longest, len(session.tokens) - 1)
        for n in range(longest, self.shortest - 1, -1):
            starts = self.positions.after(session.tokens[-n:])
            if len(starts) > 1:                    # the newest one is the end of the session itself
                start = starts[0] if self.mode == "first" else starts[-2]
                tokens = continuation(session.tokens, start, min(budget.depth, budget.size))
                return deterministic_chain(up_to_end(tokens, session.end), NAME)
        return Draft()


def make(kit: Kit, longest: int = 3, shortest: int = 1, mode: str = "last") -> PromptLookup:
    """The n-gram index is shared with the other parts of the decode."""
    if longest < 1:
        raise Refusal(f"n-gram lengths must satisfy 1 <= shortest <= longest, got {shortest} and {longest}")
    positions = kit.index(f"{longest}-gram positions", lambda: NgramPositions(longest))
    return PromptLookup(positions, longest, shortest, mode)


CARD = Card(NAME, idea="copy what followed the same n-gram earlier", source="Saxena 2023", make=make,
            notebook="20_what_prompt_lookup")
