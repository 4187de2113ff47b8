"""Feedback retrieval: copy from several earlier positions at once, those with the best acceptance record first.

Source: ReSpec (arXiv 2511.01282), feedback-driven candidate selection. Every position at which the text's suffix
occurred before has a score (see index/position_scores). Every node is deterministic. Cost: no model pass.

Known of the paper at second hand is `shape="leave", least=0.5, key="position"`: positions below `least` are dropped;
the others are offered in the order of score, match length and recency, each with a length that grows with its score,
and merged into one tree. How many tokens must match, the rate of the scores, the number of positions searched and the
shortest chain are not known to us. `shape="extend"` lengthens the chains by the nodes that remain, best first; those
nodes do not count in the scores.

Ours, `shape="likely"`, sizes the tree by the value of a node: see index/trees. Match length and score together give the
confidence of a position, the nodes are those that are worth their rows on the cost curve, and nothing is drafted where
even the first token is below `least`. So drafts are longer after long matches and shorter after short ones: on the
tuning prompts 9.6 tokens a draft instead of 21.4, and `respec` with it was 1.07 times (1.03 to 1.12) as fast as with
chains by score (the command of `data/results/tuning` at 4f0c3fd, where `respec` had `least` 0.3 and no counts). Scores
are kept by distance, because an absolute position seldom recurs: a copy moves on with the text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from specdec_lib.cards import Card, Kit
from specdec_lib.cost.row_costs import FREE, RowCosts, node_costs
from specdec_lib.index.all_positions import AllPositions
from specdec_lib.index.matcher import shared_matcher
from specdec_lib.index.ngram_positions import NgramPositions
from specdec_lib.index.position_scores import Chain, PositionScores
from specdec_lib.index.sequences import continuation
from specdec_lib.index.trees import CopySource, copy_probability, corpus_probability, likely_tree
from specdec_lib.memory.answers import Store, with_answers
from specdec_lib.trees import deterministic_tree
from specdec_lib.types import QUERY, ROOT, Budget, Draft, RandomNumbers, Refusal, Session, up_to_end

NAME = "feedback-retrieval"
DIAGONAL, POSITION = "diagonal", "position"
LIKELY, EXTEND, LEAVE = "likely", "extend", "leave"
GAIN = 3.0                                         # tokens generated per forward time while copying


class Candidate(NamedTuple):
    """A position to copy from; candidates compare in order of preference."""

    score: float                                   # S
    match: int                                     # matching tokens before it, 64 at most
    start: int                                     # first position to copy
    key: int                                       # key of its score
    other: bool = False                            # from a corpus of other texts


@dataclass(frozen=True)
class FeedbackRetrieval:
    """A tree of the best continuations within depth, width and nodes; empty where no candidate remains."""

    positions: AllPositions
    scores: PositionScores
    store: Store | None = None                     # a corpus; its candidates come after those of the session
    key: str = DIAGONAL
    query: int = 2                                 # tokens that must match, if the budget gives no number
    least: float = 0.3                             # theta_score: candidates below it are dropped
    longest: int | None = None                     # L_max; None = the budget's nodes. Paper: 40, with 60 nodes
    shortest: int = 4                              # shortest chain, at any score
    most: int = 64                                 # positions searched, newest first
    shape: str = LIKELY                            # or by scores: LEAVE as in the paper, EXTEND by remaining nodes
    kept: int = 4                                  # LIKELY: positions used, longest match first, then newest
    price: float = 0.1                             # LIKELY: minimal path probability of a node
    rows: RowCosts = FREE                          # LIKELY: and no more nodes than are worth their rows

    def __post_init__(self):
        if self.key not in (DIAGONAL, POSITION):
            raise Refusal(f"key must be {DIAGONAL!r} or {POSITION!r}, got {self.key!r}")
        if self.shape not in (LIKELY, EXTEND, LEAVE):
            raise Refusal(f"shape must be {LIKELY!r}, {EXTEND!r} or {LEAVE!r}, got {self.shape!r}")
        if not (0 <= self.least <= 1 and 0 <= self.price <= 1):
            raise Refusal(f"least and price must be probabilities between 0 and 1, got {self.least} and {self.price}")
        if min(self.query, self.shortest, self.most, self.kept) < 1 or (self.longest is not None and self.longest < 1):
            raise Refusal("query, shortest, longest, most and kept must be at least 1, got"
                          f" {self.query}, {self.shortest}, {self.longest}, {self.most} and {self.kept}")

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        if not budget.size:
            return Draft()
        return self.likely(session, budget) if self.shape == LIKELY else self.scored(session, budget)

    def likely(self, session: Session, budget: Budget) -> Draft:
        """The most probable nodes of the longest matches, as far as they are worth `price` and their rows."""
        found = self.candidates(session, budget.notes.get(QUERY, 0))
        found = sorted(found, key=lambda one: (-one.match, one.key < 0, -one.start))
        kept = found[:self.kept]
        copies = [CopySource(self.copy(session, one, budget, whole=True), one.match, one.score,
                             corpus_probability if one.other else copy_probability) for one in kept]
        draft, members = likely_tree(copies, budget, self.least, self.price, NAME, self.rows)
        noted = tuple(Chain(one.key, len(nodes), nodes) for one, nodes in zip(kept, members, strict=True) if nodes)
        return replace(draft, notes={NAME: noted}) if noted else draft

    def scored(self, session: Session, budget: Budget) -> Draft:
        """Chains in order of score, each as long as its score allows."""
        kept = [one for one in self.candidates(session, budget.notes.get(QUERY, 0)) if one.score >= self.least]
        chains = distinct_chains(((one, self.copy(session, one, budget)) for one in kept), budget)
        whole, merged = chains, chains
        if self.shape == EXTEND:
            whole = [(one, self.copy(session, one, budget, whole=True)) for one, _ in chains]
            merged = distinct_chains(chains + whole, budget)
        draft = deterministic_tree([tokens for _, tokens in merged], budget.size, NAME)
        paths = [path_of(draft, tokens) for _, tokens in whole]
        confidence: dict[int, float] = {}
        for (one, _), nodes in zip(chains, paths, strict=True):
            confidence = {node: one.score for node in nodes} | confidence  # of the first chain through a node
        noted = tuple(Chain(one.key, min(len(nodes), len(tokens)), nodes)
                      for (one, tokens), nodes in zip(chains, paths, strict=True))
        return replace(draft, confidence=tuple(confidence[node] for node in range(len(draft))),
                       notes={NAME: noted} if noted else {})

    def candidates(self, session: Session, query: int = 0) -> list[Candidate]:
        """Every position found, dropped or not, in order of preference, those of the corpus last.

        At least `query` tokens match; if it is 0, `self.query`, or one less where that finds nothing.
        """
        self.scores.read(session)
        for n in (query,) if query else (self.query, max(1, self.query - 1)):
            found = self._own(session.tokens, n) + self._corpus(session.tokens, n)
            if found:
                return found
        return []

    def copy(self, session: Session, one: Candidate, budget: Budget, whole: bool = False) -> tuple[int, ...]:
        """What followed this candidate up to an end token: as long as its score allows, or with `whole` the budget."""
        longest = self.longest or budget.size
        n = min(longest if whole else copy_length(one.score, longest, self.shortest), budget.depth)
        if one.key >= 0:
            return up_to_end(continuation(session.tokens, one.start, n), session.end)
        assert self.store is not None              # the candidate is its own
        return up_to_end(self.store.following(-one.key, n), session.end)

    def _own(self, tokens: tuple[int, ...], query: int) -> list[Candidate]:
        keyed = [(len(tokens) - start if self.key == DIAGONAL else start, start, match)
                 for start, match in self.positions.find(tokens, query, self.most)]
        return sorted((Candidate(self.scores.score(key), match, start, key) for key, start, match in keyed),
                      reverse=True)

    def _corpus(self, tokens: tuple[int, ...], query: int) -> list[Candidate]:
        """The first and the most recent position of the longest match in the corpus.

        Their keys are negative, so that they differ from all keys of the session.
        """
        there = self.store.find(tokens) if self.store is not None else None
        if there is None or there.length < query:
            return []
        return sorted((Candidate(self.scores.score(-start), there.length, start, -start, there.other)
                       for start in {there.first, there.recent}), reverse=True)


def copy_length(score: float, longest: int, shortest: int = 4) -> int:
    """Tokens copied at this score: longest x score, rounded, at least `shortest` and at most `longest`."""
    return min(longest, max(shortest, round(longest * score)))


def distinct_chains(chains: Iterable[tuple[Candidate, tuple[int, ...]]], budget: Budget) -> list[tuple]:
    """The chains that add a node to those before them, in order, until the budget's nodes are used.

    A continuation that equals a kept one, or is its beginning, is dropped. A chain is cut where it would give a node
    more children than the width allows.
    """
    below: dict[tuple[int, ...], set[int]] = {}    # the tree so far: path -> tokens that follow it
    seen: set[tuple[int, ...]] = set()
    out, nodes = [], 0
    for one, tokens in chains:
        before = nodes
        for n, token in enumerate(tokens if tokens not in seen else ()):
            here = below.setdefault(tokens[:n], set())
            if token not in here:
                if len(here) == budget.width:
                    tokens = tokens[:n]
                    break
                here.add(token)
                nodes += 1
        seen.add(tokens)
        if nodes > before:
            out.append((one, tokens))
        if nodes >= budget.size:
            break
    return out


def path_of(draft: Draft, tokens: tuple[int, ...]) -> tuple[int, ...]:
    """The nodes of this chain in the tree, as far as the tree contains it."""
    out: list[int] = []
    for token in tokens:
        here = draft.children.get(out[-1] if out else ROOT, ())
        node = next((node for node in here if draft.tokens[node] == token), None)
        if node is None:
            break
        out.append(node)
    return tuple(out)


def make(kit: Kit, key: str = DIAGONAL, query: int = 2, least: float = 0.3, longest: int | None = None,
         shortest: int = 4, most: int = 64, start: float = 0.5, rate: float = 0.3, shape: str = LIKELY, kept: int = 4,
         price: float | None = None, remember: int = 0) -> FeedbackRetrieval:
    """Searches the session, and the corpus at `kit.store` if there is one; `start` and `rate` are those of the scores.

    Without a price the kit's cost curve says which nodes are worth their rows. `remember` is the number of tokens of
    earlier answers that are searched as a corpus, if the method stores them.
    """
    positions = kit.index("3-gram positions", lambda: NgramPositions(3))
    store = with_answers(kit, shared_matcher(kit).store, remember)
    return FeedbackRetrieval(AllPositions(positions), PositionScores(NAME, start, rate), store, key, query, least,
                             longest, shortest, most, shape, kept, *node_costs(kit, GAIN, price))


CARD = Card(NAME, idea="copy from several earlier positions, scored by their acceptance",
            source="ReSpec, arXiv 2511.01282", make=make, notebook="25_what_feedback_retrieval", off_path=True)
