"""Draft trees: growing them node by node, making them from known tokens, pruning them, and walking their paths.

A rule of verification walks a draft with `passing_paths`: its test sees a node and the state of the path above, so it
may look at one token alone (typical acceptance) or carry a sum along the path (Consultant Decoding).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from typing import TypeVar

from specdec_lib.scores import Distribution, Scores, TokenStats
from specdec_lib.sharing import run_through
from specdec_lib.types import LM, ROOT, Budget, Draft, RandomNumbers, Refusal, Round, Session, Trail

Path = tuple[int, ...]
State = TypeVar("State")
Asked = TypeVar("Asked")


def passing_paths(draft: Draft, start: State,
                  test: Callable[[State, int], State | None]) -> Iterator[tuple[Path, State]]:
    """Every path from the root on which all nodes pass, with the test's state there; the empty one first.

    `test(state, node)` returns the state after a node that passes, else None; it is called once for each node whose
    predecessors passed.
    """
    todo: list[tuple[Path, State]] = [((), start)]
    while todo:
        path, state = todo.pop()
        yield path, state
        for child in reversed(draft.children.get(path[-1] if path else ROOT, ())):
            after = test(state, child)
            if after is not None:
                todo.append(((*path, child), after))


def longest_path(draft: Draft, scores: Scores, paths: Collection[Path]) -> Path:
    """The longest of these paths; of several the likeliest under the target, and then the first."""
    most = max(map(len, paths))
    rivals = [path for path in paths if len(path) == most]
    return rivals[0] if len(rivals) == 1 else max(rivals, key=lambda path: path_logprob(draft, scores, path))


def path_logprob(draft: Draft, scores: Scores, path: Path) -> float:
    """Log-probability of a path's tokens under the raw softmax at temperature 1."""
    rows = tuple(draft.parents[node] + 1 for node in path)
    lse = scores.row_stats(rows).lse if rows else ()
    return sum(scores.logit(row, draft.tokens[node]) - z for row, node, z in zip(rows, path, lse, strict=True))


def readable(budget: Budget, model: LM, session: Session) -> Budget:
    """The budget without tokens that this drafting model has no room for, or with none after a token that it lacks.

    Its last forward reads the text and every drafted token but the last. Its vocabulary may be padded less than the
    target's, so the target may emit a token that it lacks.
    """
    room = budget.depth if model.context is None else max(0, model.context + 1 - len(session.tokens))
    room = room if max(session.tokens) < getattr(model, "vocab", inf) else 0
    return budget if budget.depth <= room else replace(budget, depth=room)


def wide_enough(width: int, depth: int, nodes: int) -> int:
    """The width of a tree, or the one with which `depth` levels hold these nodes if that is more.

    Refusal for sizes that no draft can have.
    """
    asked = Budget(depth, width, nodes)
    return max(asked.width, -(-nodes // max(1, depth)))


def grow(session: Session, budget: Budget, dice: RandomNumbers, ask: Callable[[Draft], Scores],
         source: str = "") -> Draft:
    """A chain drawn token by token; `ask(draft)` scores it, and its last row gives the next distribution.

    A drawn token stays: the stop rule is called afterwards and can only stop drafting, so the token still has the
    distribution `q`. At temperature 0 every node is deterministic. Stops after an end token.
    """
    return run_through(growing(session, budget, dice, ask, source))


def growing(session: Session, budget: Budget, dice: RandomNumbers, ask: Callable[[Draft], Asked],
            source: str = "") -> Generator[Asked, Scores, Draft]:
    """`grow` whose forwards may be others': yields `ask(draft)`, is sent the draft's scores and returns the chain."""
    draft = Draft()
    while len(draft) < min(budget.depth, budget.size):
        scores = yield ask(draft)
        row = len(draft)
        dist = scores.distribution(row, session.sampling)
        token = dice.at(len(session.tokens) + row).choose(dist)
        seen = scores.stats(row, token)
        draft = Draft(draft.tokens + (token,), draft.parents + (row - 1,),
                      draft.q + (dist if len(dist.ids) > 1 else None,), draft.stats + (seen,),
                      draft.source + (source,) if source else (), draft.confidence + (seen.prob,))
        if token in session.end or (budget.stop and budget.stop(draft.stats)):
            break
    return draft


def grow_chains(session: Session, budget: Budget, dice: RandomNumbers, ask: Callable[[Draft], Scores], draft: Draft,
                length: int, source: str = "") -> Draft:
    """Continues every leaf of a draft, one token each per forward of `ask`, until its path has `length` tokens.

    As in `grow`, a drawn token stays; the stop rule and an end token stop their own path alone. The first path draws
    with the numbers of `grow`, each other with a fork of its own. No more nodes than the budget has.
    """
    ends = [node for node in range(len(draft)) if node not in draft.children]
    own = [dice if path == 0 else dice.fork("path", path) for path in range(len(ends))]
    while True:
        open_paths = [path for path, node in enumerate(ends) if draft.depths[node] < length and not (
            draft.tokens[node] in session.end or (budget.stop and budget.stop(draft.trail(node))))]
        open_paths = open_paths[:max(0, budget.size - len(draft))]
        if not open_paths:
            return draft
        scores = ask(draft)
        for path in open_paths:
            node = ends[path]
            dist = scores.distribution(node + 1, session.sampling)
            token = own[path].at(len(session.tokens) + draft.depths[node]).choose(dist)
            ends[path] = len(draft)
            draft = with_node(draft, node, token, dist, scores.stats(node + 1, token), source)


def likeliest(scores: Scores, row: int, most: int) -> tuple[int, ...]:
    """The `most` likeliest tokens of a row, the first of them the one that greedy decoding takes, also among equals."""
    best = scores.best[row]
    ranked = scores.row_stats((row,), most).ids[row].tolist()
    return (best, *(token for token in ranked if token != best))[:most]


def with_node(draft: Draft, parent: int, token: int, dist: Distribution | None, seen: TokenStats,
              source: str = "") -> Draft:
    """The draft with one node more, drawn from `dist`; None, or a point mass, is a deterministic proposal."""
    drawn = dist if dist is not None and getattr(dist, "only", None) is None else None
    return Draft(draft.tokens + (token,), draft.parents + (parent,), draft.q + (drawn,), draft.stats + (seen,),
                 draft.source + (source,) if source else (), draft.confidence + (seen.prob,), draft.notes)


def deterministic_chain(tokens: Sequence[int], source: str = "", confidence: Sequence[float] = ()) -> Draft:
    """A chain of deterministic nodes, as from retrieval."""
    tokens = tuple(tokens)
    return Draft(tokens, tuple(range(ROOT, len(tokens) - 1)), source=(source,) * len(tokens) if source else (),
                 confidence=tuple(confidence))


def deterministic_tree(chains: Iterable[Sequence[int]], nodes: int, source: str = "") -> Draft:
    """Chains merged into one tree of deterministic nodes, in order, until `nodes` are used."""
    tokens: list[int] = []
    parents: list[int] = []
    place: dict[tuple[int, int], int] = {}
    for chain in chains:
        parent = ROOT
        for token in chain:
            if (parent, token) not in place:
                if len(tokens) == nodes:
                    break
                place[parent, token] = len(tokens)
                tokens.append(token)
                parents.append(parent)
            parent = place[parent, token]
    return Draft(tuple(tokens), tuple(parents), source=(source,) * len(tokens) if source else ())


def first_nodes(draft: Draft, count: int) -> Draft:
    """The draft of its first `count` nodes, which are a tree since parents come first; all where there are no more."""
    return Draft(draft.tokens[:count], draft.parents[:count], draft.q[:count], draft.stats[:count],
                 draft.source[:count], draft.confidence[:count], draft.notes)


def prune(draft: Draft, budget: Budget) -> Draft:
    """What this budget would have allowed of a larger draft: by depth, by number of nodes, and cut by its stop rule.

    The stop rule cuts below the first node at which it fires, so the node that fired stays, as in `grow`.
    """
    kept: list[int] = []
    closed = {ROOT: False}
    for node, parent in enumerate(draft.parents):
        if closed.get(parent, True) or draft.depths[node] > budget.depth or len(kept) == budget.size:
            continue
        kept.append(node)
        closed[node] = bool(budget.stop and draft.stats and budget.stop(draft.trail(node)))
    return draft if len(kept) == len(draft) else draft.keep(tuple(kept))


@dataclass(frozen=True)
class UnlikelyPath:
    """Stops drafting when the probability of the path falls below `least`."""

    least: float

    def __call__(self, trail: Trail) -> bool:
        return prod(stat.prob for stat in trail) < self.least


def stop_when_unlikely(budget: Budget, least: float) -> Budget:
    """The same budget, stopped below a path of lower probability than `least`; 0 never stops."""
    if not 0 <= least <= 1:
        raise Refusal(f"least must be a probability between 0 and 1, got {least}")
    return budget.each(lambda own: replace(own, stop=UnlikelyPath(least))) if least else budget


def offered(round: Round) -> int:
    """Depths at which the draft went on below the accepted path: as many as were accepted, or one more.

    A path that the loop cut short was not rejected, so nothing more was offered there.
    """
    path = round.verdict.path
    rejected = len(round.verdict.tokens) > len(path) and (path[-1] if path else ROOT) in round.draft.children
    return len(path) + rejected


def below(draft: Draft, node: int) -> Draft:
    """The subtree under a node, with the node as its context."""
    inside = {node}
    for other, parent in enumerate(draft.parents):
        if parent in inside and other not in inside:
            inside.add(other)
    kept = tuple(sorted(inside - {node}))
    lifted = replace(draft, parents=tuple(ROOT if parent == node else parent for parent in draft.parents))
    return lifted.keep(kept)


def with_children(draft: Draft, tip: int, heads: Draft) -> Draft:
    """The draft with the first level of `heads` as further children of `tip`; what one of them lacks is filled up."""
    first = heads.keep(heads.children.get(ROOT, ()))

    def joined(one: tuple, other: tuple, blank: object) -> tuple:
        return (one or (blank,) * len(draft)) + (other or (blank,) * len(first)) if one or other else ()

    has_stats = (draft.stats or not len(draft)) and (first.stats or not len(first))
    return Draft(draft.tokens + first.tokens, draft.parents + (tip,) * len(first), joined(draft.q, first.q, None),
                 draft.stats + first.stats if has_stats else (), joined(draft.source, first.source, ""),
                 draft.confidence + first.confidence
                 if (draft.confidence or not len(draft)) and (first.confidence or not len(first)) else (),
                 draft.notes)


def merged(draft: Draft, other: Draft) -> Draft:
    """The trie of two drafts: the nodes of the first as they are, then what the other has more, as deterministic nodes.

    Lossless even where the first was drawn: a node of the other is tested once the drawn siblings were rejected,
    against what their rejection leaves, and a deterministic proposal may depend on anything that is known by then.
    """
    tokens, parents, picked = list(draft.tokens), list(draft.parents), []
    place = {(parent, token): node for node, (parent, token) in enumerate(zip(parents, tokens, strict=True))}
    where = {ROOT: ROOT}
    for node, (parent, token) in enumerate(zip(other.parents, other.tokens, strict=True)):
        key = where[parent], token
        if key not in place:
            place[key] = len(tokens)
            tokens.append(token)
            parents.append(key[0])
            picked.append(node)
        where[node] = place[key]

    def joined(one: tuple, more: tuple, blank: object) -> tuple:
        if not (one or more):
            return ()
        return (one or (blank,) * len(draft)) + tuple(more[node] if more else blank for node in picked)

    if not picked:
        return draft
    return Draft(tuple(tokens), tuple(parents), joined(draft.q, (), None), notes=draft.notes,
                 source=joined(draft.source, other.source, ""))


def nodes_along(draft: Draft, text: Sequence[int]) -> tuple[int, ...]:
    """The nodes of the draft that greedy verification accepts where the target continues with `text`, root to leaf."""
    path: list[int] = []
    for token in text:
        here = draft.children.get(path[-1] if path else ROOT, ())
        node = next((node for node in here if draft.tokens[node] == token), None)
        if node is None:
            break
        path.append(node)
    return tuple(path)


def accepted_depth(draft: Draft, text: Sequence[int]) -> int:
    """How many nodes of the draft greedy verification accepts where the target continues with `text`."""
    return len(nodes_along(draft, text))


def with_notes(draft: Draft, **notes) -> Draft:
    """The draft with these notes added, to be recorded with its round."""
    return replace(draft, notes={**draft.notes, **notes})
