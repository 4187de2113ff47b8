"""The path search of DiffuSpec on the recorded lattices of one answer: at a position, and with a controller of length.

A position takes about a millisecond and a whole answer a tenth of a second, each kept once computed, so sliders call
this directly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from specdec_lib import lattice
from specdec_lib.how.match import Match
from specdec_lib.index.sequences import common_prefix
from specdec_lib.lattice import Proxy
from specdec_lib.loop import decode
from specdec_lib.models.replay import Recording, Replay
from specdec_lib.types import Budget, Draft, Lattice, RandomNumbers, Session, What, When
from specdec_lib.what.path_search import PathSearch
from specdec_lib.what.recorded import Recorded
from specdec_lib.when.adaptive_length import AdaptiveLength
from specdec_lib.when.fixed import Fixed

FULL = "whole block"
CONTROLLERS: Mapping[str, When] = {
    "corrected": AdaptiveLength(), "printed": AdaptiveLength(rule="printed"),
    "printed, 20 to 30": AdaptiveLength(20, 30, 10, rule="printed")}           # the last one is the paper's


class SearchedLattice(NamedTuple):
    """A lattice at one position, its candidates after narrowing, and three paths: argmax, searched, and what came."""

    raw: Lattice
    kept: tuple[int, ...]                          # candidates of each slot that the search may use
    best: tuple[int, ...]
    searched: tuple[int, ...]
    came: tuple[int, ...]

    @property
    def accepted(self) -> tuple[int, int]:
        """Tokens that the target accepts of the argmax path and of the searched one."""
        return common_prefix(self.best, self.came), common_prefix(self.searched, self.came)


class LatticeReplay:
    """Searches on one answer. `search` in the calls below are the parameters of the path search."""

    def __init__(self, recording: Recording, drafter: str, proxy: Proxy | None, depth: int):
        self.recording, self.drafter, self.proxy, self.depth = recording, drafter, proxy, depth
        self._sessions: dict[tuple, Session] = {}
        self._drafts: dict[tuple, Draft] = {}

    def at(self, place: int, depth: int | None = None, **search: Any) -> SearchedLattice:
        """Token `place` of the output and those after it: the lattice there and the paths through it."""
        start = self.recording.prompt + place
        raw = lattice.to_host(self.recording.lattice(self.drafter, start, min(depth or self.depth, self.depth)))
        narrowing = {name: search.pop(name) for name in ("mass", "cap") if name in search}
        few = lattice.narrow(raw, end=self.recording.end, **narrowing)
        path = lattice.search(few, self.recording.tokens[:start], self.proxy, end=self.recording.end, **search)[0]
        return SearchedLattice(raw, lattice.candidate_counts(few), lattice.best_chain(raw, self.recording.end),
                               path.tokens, self.recording.tokens[start:start + len(raw.ids)])

    def most_movable(self, knobs: Mapping[str, Sequence[Any]]) -> int:
        """The token at which most of these parameters, each moved alone, change the searched path.

        Of equals the one at which the search gains most over the argmax path, then the first one.
        """
        def worth(place: int) -> tuple[int, int]:
            moved = sum(len({self.at(place, **{name: value}).searched for value in values}) > 1
                        for name, values in knobs.items())
            best, searched = self.at(place).accepted
            return moved, searched - best

        return max(range(max(1, len(self.recording.output) - self.depth)), key=worth)

    def length_at(self, place: int, controller: str, **search: Any) -> int:
        """Tokens that the controller asks for in the round that writes token `place`; the whole block without one."""
        if controller == FULL:
            return self.depth
        start = 0
        for one in self.session(CONTROLLERS[controller], **search).rounds:
            start += len(one.verdict.tokens)
            if place < start:
                return one.budget.depth
        raise ValueError(f"the answer has {start} tokens, counted from 0: there is no token {place}")

    def session(self, when: When | None = None, **search: Any) -> Session:
        """The whole answer drafted by search under this rule of length; fixed at the whole block by default."""
        key = (when, *sorted(search.items()))
        if key not in self._sessions:
            what = self._remembered(PathSearch(Recorded(self.recording, self.drafter), self.proxy, **search), key[1:])
            *_, last = decode(self.recording.tokens[:self.recording.prompt], Replay(self.recording),
                              when or Fixed(self.depth), what, Match(), end=self.recording.end,
                              max_new_tokens=len(self.recording.output))
            self._sessions[key] = last
        return self._sessions[key]

    def _remembered(self, what: PathSearch, search: tuple) -> What:
        """The search with its drafts kept: they depend on the prefix and the depth alone."""
        def draft(session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
            key = (len(session.tokens), min(budget.depth, budget.size), search)
            if key not in self._drafts:
                self._drafts[key] = what(session, budget, dice)
            return self._drafts[key]
        return draft


def lengths_by_rule(sessions: Mapping[str, Session]) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """For each decode the tokens asked for in every round, and those accepted."""
    return ({name: [one.budget.depth for one in session.rounds] for name, session in sessions.items()},
            {name: [len(one.verdict.path) for one in session.rounds] for name, session in sessions.items()})
