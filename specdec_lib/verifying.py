"""Verifying: what lenient rules share, whichever test they put to a token: the paths that pass, and the one to take.

The counterpart of `drafting`. A test hears a node and what it came to on the path above, so a rule may look at one
token alone (typical acceptance) or carry a sum along the path (Consultant Decoding).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

from specdec_lib.types import ROOT, Draft, Scores

Path = tuple[int, ...]
State = TypeVar("State")


def passing(draft: Draft, start: State, test: Callable[[State, int], State | None]) -> Iterator[tuple[Path, State]]:
    """Every path from the root on which all nodes pass, with what the test came to there; the empty one first.

    `test(state, node)` gives the state after a node that passes, and None for one that does not; it is asked once for
    each node whose predecessors passed.
    """
    todo: list[tuple[Path, State]] = [((), start)]
    while todo:
        path, state = todo.pop()
        yield path, state
        for child in reversed(draft.children.get(path[-1] if path else ROOT, ())):
            after = test(state, child)
            if after is not None:
                todo.append(((*path, child), after))


def longest(draft: Draft, scores: Scores, paths: Collection[Path]) -> Path:
    """The longest of these paths; of several the likeliest under the target, and then the first."""
    most = max(map(len, paths))
    rivals = [path for path in paths if len(path) == most]
    return rivals[0] if len(rivals) == 1 else max(rivals, key=lambda path: likelihood(draft, scores, path))


def likelihood(draft: Draft, scores: Scores, path: Path) -> float:
    """Log-probability of a path's tokens under the raw softmax at temperature 1."""
    rows = tuple(draft.parents[node] + 1 for node in path)
    lse = scores.brief(rows).lse if rows else ()
    return sum(scores.logit(row, draft.tokens[node]) - z for row, node, z in zip(rows, path, lse, strict=True))
