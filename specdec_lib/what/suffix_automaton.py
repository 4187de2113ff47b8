"""Suffix automaton: propose what followed the longest suffix that occurred earlier, in this text or in a corpus.

Source: Hu et al. 2024 (SAM-Decoding), which copies from the first occurrence; here the most recent one is the default.
Every node is deterministic. `match(session)` gives the match length that *when* reads: both share one matcher. Cost: no
model pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec_lib.cards import Card, Kit
from specdec_lib.index.matcher import STATIC, Matcher, SuffixMatch, shared_matcher
from specdec_lib.index.trees import copy_probability, corpus_probability
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import Budget, Draft, RandomNumbers, Refusal, Session, up_to_end

NAME = "suffix-automaton"


@dataclass(frozen=True)
class SuffixAutomatonDrafter:
    """A chain copied from the longest match of at least `threshold` tokens; empty where there is none."""

    matcher: Matcher
    mode: str = "recent"                           # or "first", SAM-Decoding's choice
    threshold: int = 1                             # minimal match length in tokens

    def __post_init__(self):
        if self.mode not in ("first", "recent"):
            raise Refusal(f"mode must be 'first' or 'recent', got {self.mode!r}")
        if self.threshold < 1:
            raise Refusal(f"threshold must be at least 1 token, got {self.threshold}")

    def match(self, session: Session) -> SuffixMatch:
        """The longest match of the text's suffix; a tie goes to its own text before the corpus."""
        return self.matcher.find(session.tokens)

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        match = self.match(session)
        if match.length < self.threshold:
            return Draft()
        tokens = self.matcher.following(session.tokens, match, min(budget.depth, budget.size), self.mode)
        tokens = up_to_end(tokens, session.end)
        copied = corpus_probability if match.origin == STATIC else copy_probability
        return deterministic_chain(tokens, NAME, tuple(copied(match.length + i) for i in range(len(tokens))))


def make(kit: Kit, mode: str = "recent", threshold: int = 1) -> SuffixAutomatonDrafter:
    """Searches the session, and the corpus at `kit.store` if there is one."""
    return SuffixAutomatonDrafter(shared_matcher(kit), mode, threshold)


CARD = Card(NAME, idea="copy what followed the longest suffix that occurred earlier",
            source="Hu et al. 2024, SAM-Decoding", make=make, notebook="21_what_suffix_automaton")
