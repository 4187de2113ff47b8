"""Relaxed: copied text may differ a little from what the target would have said; drafted text may not.

Source: the source-aware verification of ReSpec (arXiv 2511.01282): drafts of a model are judged strictly, retrieved
ones leniently. The abstract says no more, so the rule and its guards are our reading, each a parameter. Not lossless.

At every node the target makes its own choice, by the coins of that position. A child that holds it is kept strictly.
A retrieved child that does not may be kept nevertheless where the rule holds (R1 rank-margin, R2 typical) and no guard
objects. At temperature 0 the choice is the best token. Above it this is the strict test first (a retrieved token is
certain, so drawing the target's own token is the ratio test, and a refused draw is a draw from the residual) and the
rule after it. A chain (v, w) whose v may be relaxed then emits v with chance p(v) + (1 - p(v)) p(w | v), any other x
with p(x) (1 - p(w | v)): off the target's law by (1 - p(v)) p(w | v), zero under R0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from specdec_lib.acceptance import ExactOnly, RankMargin, Rule, Typical, standing
from specdec_lib.scores import Scores
from specdec_lib.trees import Path, longest_path
from specdec_lib.types import ROOT, Card, Draft, How, Kit, Refusal, Session, Verdict

COPIERS = ("feedback-retrieval", "suffix-automaton", "prompt-lookup")
SPARED = ("control", "digit", "fence")             # fields of Facts; end tokens are always spared


@dataclass(frozen=True)
class Guards:
    """What is not exchanged, whatever the rule says."""

    never: frozenset[int] = frozenset()            # tokens that nothing replaces and that replace nothing
    fence: frozenset[int] = frozenset()            # the same, and nothing is exchanged between two of these: code
    most: int = 2                                  # exchanges per round
    confirm: bool = True                           # one counts only where the next drafted token is a strict match
    either: bool = True                            # False: spared is what the draft would put in, not what it replaces

    def allow(self, drafted: int, chosen: int, end: frozenset[int]) -> bool:
        """Whether these two tokens may be exchanged at all; an end token never."""
        return not any(token in spared for spared in (self.never, self.fence, end)
                       for token in (drafted, chosen)[:1 + self.either])


@dataclass(frozen=True)
class Relaxed:
    """Keeps the longest path of strict and exchanged tokens, the likelier of two; `strict` judges all other drafts."""

    strict: How
    rule: Rule = field(default_factory=RankMargin)
    guards: Guards = field(default_factory=Guards)
    sources: tuple[str, ...] = COPIERS
    temperature: float | None = 1.0                # of the law the rule looks at; None: the session's own

    def __call__(self, session: Session, draft: Draft, scores: Scores, dice) -> Verdict:
        if isinstance(self.rule, ExactOnly) or not set(draft.source) & set(self.sources):
            return self.strict(session, draft, scores, dice)
        found = dict(self.paths(session, draft, scores, dice))
        path = longest_path(draft, scores, found)
        return Verdict.of(draft, path, found[path])

    def paths(self, session: Session, draft: Draft, scores: Scores, dice) -> Iterator[tuple[Path, int]]:
        """Every path that may be emitted, with the target's own choice after it.

        Coins below an exchange are of their own: the position's own are thrown there again if the path is cut.
        """
        todo: list[tuple[Path, Path]] = [((), ())]                                          # path, exchanged nodes
        while todo:
            path, changed = todo.pop()
            node, place = path[-1] if path else ROOT, len(session.tokens) + len(path)
            coins = dice.at(place).fork("exchanged", len(path), node) if changed else dice.at(place)
            chosen = coins.choose(scores.distribution(node + 1, session.sampling))
            waits = self.guards.confirm and changed[-1:] == (node,)
            if not waits:
                yield path, chosen
            for child in reversed(draft.children.get(node, ())):
                if draft.tokens[child] == chosen:
                    todo.append(((*path, child), changed))
                elif (not waits and len(changed) < self.guards.most
                      and self.lenient(session, draft, scores, child, chosen)):
                    todo.append(((*path, child), (*changed, child)))

    def lenient(self, session: Session, draft: Draft, scores: Scores, child: int, chosen: int) -> bool:
        """Whether this child may stand where the target chose another token."""
        token, parent = draft.tokens[child], draft.parents[child]
        heat = self.temperature
        if heat is None:                           # at temperature 0 the session's law is certain: nothing to exchange
            heat = 0.0 if session.sampling is None else session.sampling.temperature
        if not heat or draft.source[child] not in self.sources or not self.guards.allow(token, chosen, session.end):
            return False
        before = (draft.tokens[node] for node in draft.path(parent))
        return (self.rule(standing(scores, parent + 1, token, heat))
                and not inside(self.guards.fence, (*session.tokens, *before)))


def inside(fence: Collection[int], tokens: tuple[int, ...]) -> bool:
    """Whether an odd number of fences stands in `tokens`: the last one is still open."""
    return bool(fence) and sum(map(fence.__contains__, tokens)) % 2 == 1


def make(kit: Kit, rule: str = "rank-margin", rank: int = 3, margin: float = 0.5, eps: float = 0.09,
         delta: float = 0.3, most: int = 2, confirm: bool = True, either: bool = True,
         spare: tuple[str, ...] = SPARED, sources: tuple[str, ...] = COPIERS, temperature: float | None = 1.0,
         strict: str = "match") -> Relaxed:
    """`rule` is strict, rank-margin (rank, margin) or typical (eps, delta); `strict` names the part for other drafts.

    The rule looks at the raw softmax at temperature 1: its thresholds were set there, and at temperature 0 the
    session's own law knows no second token. `temperature=None` is Medusa's way, which divides by the session's.
    """
    rules = {"strict": ExactOnly(), "rank-margin": RankMargin(rank, margin), "typical": Typical(eps, delta)}
    if rule not in rules:
        raise Refusal(f"there is no rule {rule!r}; there are: {', '.join(rules)}")
    if most < 0:
        raise Refusal(f"most counts exchanges per round, got {most}")
    if isinstance(sources, str) or not sources:
        raise Refusal(f"sources names one drafter or more, such as {COPIERS[1:]}, got {sources!r}")
    if isinstance(spare, str) or set(spare) - set(SPARED):
        raise Refusal(f"spare names kinds of tokens, {', '.join(SPARED)}, got {spare!r}")
    if temperature is not None and temperature <= 0:
        raise Refusal(f"the rule looks at a law above temperature 0, got {temperature}")
    never = frozenset().union(kit.facts.end, *(getattr(kit.facts, name) for name in spare))
    guards = Guards(never, kit.facts.fence if "fence" in spare else frozenset(), most, confirm, either)
    return Relaxed(kit.part(strict), rules[rule], guards, tuple(sources), temperature)


CARD = Card("relaxed", idea="copied text may differ a little from the target's choice, drafted text may not",
            source="ReSpec, arXiv 2511.01282; the rule is our reading", make=make, lossless=False,
            notebook="33_how_relaxed")
