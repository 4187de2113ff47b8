"""Feedback retrieval: copy from several earlier places at once, the ones that proved right first.

Source: ReSpec (arXiv 2511.01282), feedback-driven candidate selection. Every place at which the end of the text stands
has a score (see index/position_scores). Costs no model pass; every node is certain.

What the paper is known to do is `shape="leave", least=0.5, query=3, key="position"`: places below `least` are dropped,
the others are offered in the order of score, match length and recency, each with a length that grows with its score,
and merged into one tree. It is silent on the rate of the scores, the number of places looked at and a shortest chain.
`shape="extend"` lengthens the chains by nodes that are left over, best first, and what is won there counts for no
score.

Ours, `shape="likely"`, sizes the tree by what a node is worth: see index/likely_tree. A place is believed by its
match length and its score together, a node joins while the chance of its path is above its price on the cost curve,
and nothing is drafted where even the first token has less than `least`. So it drafts longer where a copy runs well,
and shorter where it is fresh: on the tuning prompts 6.3 tokens wide on average instead of 9.3, and `respec` with it
is 1.05 times (1.00 to 1.09) as fast as with chains by score (`data/results/tuning`). Scores are kept by distance, not
by absolute position, which is seldom met twice: a copy moves on with the text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from specdec_lib.index.all_positions import AllPositions
from specdec_lib.index.matcher import shared_matcher
from specdec_lib.index.ngram_positions import NgramPositions
from specdec_lib.index.position_scores import Chain, PositionScores
from specdec_lib.index.sequences import continuation, until_end
from specdec_lib.index.trees import CopySource, likely_tree
from specdec_lib.memory.answers import Store, with_answers
from specdec_lib.trees import deterministic_tree
from specdec_lib.types import ROOT, Budget, Card, Draft, Kit, Refusal, Session

NAME = "feedback-retrieval"
DIAGONAL, POSITION = "diagonal", "position"
LIKELY, EXTEND, LEAVE = "likely", "extend", "leave"
GAIN = 3.0                                         # tokens that the time of a forward makes where copies run


class Candidate(NamedTuple):
    """A place to copy from; candidates compare as they are preferred."""

    score: float                                   # S
    match: int                                     # tokens that agree before it, 64 at most
    start: int                                     # position that is copied first
    key: int                                       # under which its score is kept


@dataclass(frozen=True)
class FeedbackRetrieval:
    """A tree of the best continuations within depth, width and nodes; empty where no candidate survives."""

    positions: AllPositions
    scores: PositionScores
    store: Store | None = None                     # a corpus; its candidates come after those of the session
    key: str = DIAGONAL
    query: int = 2                                 # tokens that must agree where the budget does not say
    least: float = 0.3                             # theta_score: candidates below it are dropped
    longest: int | None = None                     # L_max; None = the nodes of the budget. Literal: 40, with 60 nodes
    shortest: int = 4                              # however low the score
    most: int = 64                                 # places looked at, the newest
    shape: str = LIKELY                            # or by scores: LEAVE, literal, or EXTEND by nodes that are left over
    kept: int = 4                                  # LIKELY: places that vote, the longest matches, newest first
    price: float = 0.1                             # LIKELY: no node whose path has less chance

    def __post_init__(self):
        if self.key not in (DIAGONAL, POSITION):
            raise Refusal(f"key is {DIAGONAL!r} or {POSITION!r}, got {self.key!r}")
        if self.shape not in (LIKELY, EXTEND, LEAVE):
            raise Refusal(f"shape is {LIKELY!r}, {EXTEND!r} or {LEAVE!r}, got {self.shape!r}")
        if not (0 <= self.least <= 1 and 0 <= self.price <= 1):
            raise Refusal(f"least and price are chances between 0 and 1, got {self.least} and {self.price}")
        if min(self.query, self.shortest, self.most, self.kept) < 1 or (self.longest is not None and self.longest < 1):
            raise Refusal("query, shortest, longest, most and kept are at least 1, got"
                          f" {self.query}, {self.shortest}, {self.longest}, {self.most} and {self.kept}")

    def __call__(self, session: Session, budget: Budget, dice) -> Draft:
        if not budget.size:
            return Draft()
        return self.likely(session, budget) if self.shape == LIKELY else self.scored(session, budget)

    def likely(self, session: Session, budget: Budget) -> Draft:
        """The likeliest nodes of the longest matches, each worth its price."""
        found = sorted(self.candidates(session, budget.query), key=lambda one: (-one.match, one.key < 0, -one.start))
        kept = found[:self.kept]
        copies = [CopySource(self.copy(session, one, budget, whole=True), one.match, one.score) for one in kept]
        draft, joined = likely_tree(copies, budget, self.least, self.price, NAME)
        noted = tuple(Chain(one.key, len(nodes), nodes) for one, nodes in zip(kept, joined, strict=True) if nodes)
        return replace(draft, notes={NAME: noted}) if noted else draft

    def scored(self, session: Session, budget: Budget) -> Draft:
        """The best-scored chains in their order, each as long as its score allows."""
        kept = [one for one in self.candidates(session, budget.query) if one.score >= self.least]
        chains = different(((one, self.copy(session, one, budget)) for one in kept), budget)
        whole, merged = chains, chains
        if self.shape == EXTEND:
            whole = [(one, self.copy(session, one, budget, whole=True)) for one, _ in chains]
            merged = different(chains + whole, budget)
        draft = deterministic_tree([tokens for _, tokens in merged], budget.size, NAME)
        paths = [path_of(draft, tokens) for _, tokens in whole]
        confidence: dict[int, float] = {}
        for (one, _), nodes in zip(chains, paths, strict=True):
            confidence = dict.fromkeys(nodes, one.score) | confidence  # of the first chain through a node
        noted = tuple(Chain(one.key, min(len(nodes), len(tokens)), nodes)
                      for (one, tokens), nodes in zip(chains, paths, strict=True))
        return replace(draft, confidence=tuple(confidence[node] for node in range(len(draft))),
                       notes={NAME: noted} if noted else {})

    def candidates(self, session: Session, query: int = 0) -> list[Candidate]:
        """Every place found, dropped or not, in order of preference, those of the corpus last.

        With `query` exactly so many tokens agree at least; without, `self.query`, or one less where that finds nothing.
        """
        self.scores.read(session)
        for n in (query,) if query else (self.query, max(1, self.query - 1)):
            found = self._own(session.tokens, n) + self._corpus(session.tokens, n)
            if found:
                return found
        return []

    def copy(self, session: Session, one: Candidate, budget: Budget, whole: bool = False) -> tuple[int, ...]:
        """What followed this candidate up to an end token: as long as its score allows, or `whole`, the budget."""
        longest = self.longest or budget.size
        n = min(longest if whole else length(one.score, longest, self.shortest), budget.depth)
        tokens = self.store.following(-one.key, n) if one.key < 0 else continuation(session.tokens, one.start, n)
        return until_end(tokens, session.end)

    def _own(self, tokens: tuple[int, ...], query: int) -> list[Candidate]:
        keyed = [(len(tokens) - start if self.key == DIAGONAL else start, start, match)
                 for start, match in self.positions.find(tokens, query, self.most)]
        return sorted((Candidate(self.scores.score(key), match, start, key) for key, start, match in keyed),
                      reverse=True)

    def _corpus(self, tokens: tuple[int, ...], query: int) -> list[Candidate]:
        """The first and the most recent place of the longest match in the corpus, by corpus position.

        Their keys are negative, so that they are no keys of the session.
        """
        there = self.store.find(tokens) if self.store is not None else None
        if there is None or there.length < query:
            return []
        return sorted((Candidate(self.scores.score(-start), there.length, start, -start)
                       for start in {there.first, there.recent}), reverse=True)


def length(score: float, longest: int, shortest: int = 4) -> int:
    """Tokens copied at this score: longest x score, rounded, but `shortest` at least and `longest` at most."""
    return min(longest, max(shortest, round(longest * score)))


def different(chains: Iterable[tuple[Candidate, tuple[int, ...]]], budget: Budget) -> list[tuple]:
    """The chains that add a node to those before them, in order, until the nodes are used.

    So a continuation that equals a kept one, or begins it, is dropped. A chain ends where it would give a node more
    children than the width allows.
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
    """The nodes of this chain in the tree, as far as it got in."""
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
    """Reads the session, and the corpus at `kit.store` if there is one; `start` and `rate` are those of the scores.

    The price defaults to the share of a forward that a node costs, times the tokens that such a share makes elsewhere.
    `remember` is how many tokens of earlier answers count as a corpus, too, as far as the method puts them aside.
    """
    positions = kit.index("3-gram positions", lambda: NgramPositions(3))
    store = with_answers(kit, shared_matcher(kit).store, remember)
    return FeedbackRetrieval(AllPositions(positions), PositionScores(NAME, start, rate), store, key, query, least,
                             longest, shortest, most, shape, kept,
                             min(1.0, GAIN * kit.price) if price is None else price)


CARD = Card(NAME, idea="copy from the places that proved right, several at once",
            source="ReSpec (arXiv 2511.01282)", make=make, notebook="25_what_feedback_retrieval", off_path=True)
