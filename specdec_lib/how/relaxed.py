"""Relaxed: a retrieved token may differ from the target's choice if it is close enough; a model's draft may not.

Source: the source-aware verification of ReSpec (arXiv 2511.01282): drafts of a model are verified strictly, retrieved
ones leniently. The abstract says no more, so the rule and its guards are our reading, each a parameter. Not lossless.

At every node the target makes its own choice, by the random numbers of that position. A child that holds it is kept
strictly. A retrieved child that does not may be kept where the rule holds (R1 rank-margin, R2 typical) and no guard
forbids it. At temperature 0 the choice is the best token. Above it the strict test comes first (a retrieved token is a
deterministic proposal, so drawing the target's own token is the ratio test, and another token drawn is a draw from the
residual) and the rule after it. A chain (v, w) whose v may be relaxed then emits v with probability
p(v) + (1 - p(v)) p(w | v), any other x with p(x) (1 - p(w | v)): off the target by (1 - p(v)) p(w | v), zero under R0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from specdec_lib.acceptance import ExactOnly, RankMargin, Rule, Typical, standing
from specdec_lib.cards import Card, Kit, naming
from specdec_lib.scores import Scores
from specdec_lib.trees import Path, longest_path
from specdec_lib.types import ROOT, Draft, How, RandomNumbers, Refusal, Session, Verdict

COPIERS = ("feedback-retrieval", "suffix-automaton", "suffix-decoding", "prompt-lookup")
SPARED = ("control", "digit", "fence")             # fields of Facts; end tokens are always spared


@dataclass(frozen=True)
class Guards:
    """Limits on exchanges that hold for every rule."""

    never: frozenset[int] = frozenset()            # tokens that nothing replaces and that replace nothing
    fence: frozenset[int] = frozenset()            # the same, and no exchange between two of these: code
    most: int = 2                                  # exchanges per round
    confirm: bool = True                           # an exchange needs a strict match of the next drafted token
    either: bool = True                            # False: only the drafted token is protected, not the one it replaces

    def allow(self, drafted: int, chosen: int, end: frozenset[int]) -> bool:
        """Whether these two tokens may be exchanged at all; an end token never."""
        return not any(token in spared for spared in (self.never, self.fence, end)
                       for token in (drafted, chosen)[:1 + self.either])


@dataclass(frozen=True)
class Relaxed:
    """Keeps the longest path of strict and exchanged tokens, of two the likelier; `strict` verifies other drafts."""

    strict: How
    rule: Rule = field(default_factory=RankMargin)
    guards: Guards = field(default_factory=Guards)
    sources: tuple[str, ...] = COPIERS
    temperature: float | None = 1.0                # of the distribution the rule sees; None: the session's

    def __call__(self, session: Session, draft: Draft, scores: Scores, dice: RandomNumbers) -> Verdict:
        if isinstance(self.rule, ExactOnly) or not set(draft.source) & set(self.sources):
            return self.strict(session, draft, scores, dice)
        found = dict(self.paths(session, draft, scores, dice))
        path = longest_path(draft, scores, found)
        return Verdict.of(draft, path, found[path])

    def paths(self, session: Session, draft: Draft, scores: Scores, dice: RandomNumbers) -> Iterator[tuple[Path, int]]:
        """Every path that may be emitted, with the target's own choice after it.

        Below an exchange random numbers are forked: the position's own are used again if the path is cut there.
        """
        todo: list[tuple[Path, Path]] = [((), ())]                                          # path, exchanged nodes
        while todo:
            path, changed = todo.pop()
            node, here = path[-1] if path else ROOT, dice.at(len(session.tokens) + len(path))
            here = here.fork("exchanged", len(path), node) if changed else here
            chosen = here.choose(scores.distribution(node + 1, session.sampling))
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
        """Whether this child may be kept where the target chose another token."""
        token, parent = draft.tokens[child], draft.parents[child]
        heat = self.temperature
        if heat is None:                           # at temperature 0 the distribution is a point mass: no exchange
            heat = 0.0 if session.sampling is None else session.sampling.temperature
        if not heat or draft.source[child] not in self.sources or not self.guards.allow(token, chosen, session.end):
            return False
        before = (draft.tokens[node] for node in draft.path(parent))
        return (self.rule(standing(scores, parent + 1, token, heat))
                and not inside_fence(self.guards.fence, (*session.tokens, *before)))


def inside_fence(fence: Collection[int], tokens: tuple[int, ...]) -> bool:
    """Whether `tokens` hold an odd number of fences, so that the last one is still open."""
    return bool(fence) and sum(map(fence.__contains__, tokens)) % 2 == 1


def make(kit: Kit, rule: str = "rank-margin", rank: int = 3, margin: float = 0.5, eps: float = 0.09,
         delta: float = 0.3, most: int = 2, confirm: bool = True, either: bool = True,
         spare: tuple[str, ...] = SPARED, sources: tuple[str, ...] = COPIERS, temperature: float | None = 1.0,
         strict: str = "match") -> Relaxed:
    """`rule` is strict, rank-margin (rank, margin) or typical (eps, delta); `strict` names the part for other drafts.

    The rule sees the raw softmax at temperature 1: its thresholds were set there, and at temperature 0 the session's
    own distribution has no second token. `temperature=None` divides by the session's, as Medusa does.
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
        raise Refusal(f"the temperature of the rule must be above 0, got {temperature}")
    never = frozenset().union(kit.facts.end, *(getattr(kit.facts, name) for name in spare))
    guards = Guards(never, kit.facts.fence if "fence" in spare else frozenset(), most, confirm, either)
    return Relaxed(kit.part(strict), rules[rule], guards, tuple(sources), temperature)


CARD = Card("relaxed", idea="retrieved tokens may differ from the target's choice if close enough, a model's may not",
            source="ReSpec, arXiv 2511.01282; the rule is our reading", make=make, lossless=False,
            named=naming(strict="how"), notebook="33_how_relaxed")
