"""How far a policy drafts along recorded texts, held against the length that would have been kept.

A drafter's chains are replayed from every place of a recording. A rule that is the same in every round can be asked at
all places at once, and its rounds follow from that; a policy that looks back walks along the text. Tokens are counted
on the recorded greedy text. Speed is predicted, from a cost curve and a price per drafted token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from specdec_lib.cost import CostCurve
from specdec_lib.dice import Dice
from specdec_lib.drafting import accepted, prune
from specdec_lib.how.match import Match
from specdec_lib.loop import begin, decode
from specdec_lib.models.replay import Recording, Replay
from specdec_lib.types import NO_DICE, Brief, Budget, Draft, Refusal, Round, Session, Stop, Trail, Verdict, When
from specdec_lib.what.recorded import Recorded
from specdec_lib.when.oracle import Oracle


class Turn(NamedTuple):
    """One round: tokens drafted, and how many of them were kept."""

    drafted: int
    kept: int


class Outcome(NamedTuple):
    """What a policy came to over some texts; `speed` in times plain decoding and `regret` are predicted."""

    drafted: int
    kept: int
    forwards: int
    tokens_per_forward: float
    speed: float
    regret: float                                  # time beyond that of the oracle, as a share of the oracle's


@dataclass(frozen=True)
class Course:
    """Recorded texts with the chains of one drafter, up to `depth`; a drafted token costs `level` plain forwards."""

    tapes: Mapping[str, Recording]
    drafter: str
    depth: int
    curve: CostCurve
    level: float

    def __post_init__(self):
        if self.depth < 1 or self.level < 0:
            raise Refusal(f"a course needs a depth of at least 1 and a price of zero or more, got {self.depth} and "
                          f"{self.level}")

    @cached_property
    def chains(self) -> Mapping[str, tuple[Draft, ...]]:
        """The longest chain from every place of every text; the last token of a text is never drafted."""
        return {name: tuple(self._chain(tape, place) for place in range(len(tape.output)))
                for name, tape in self.tapes.items()}

    def _chain(self, tape: Recording, place: int) -> Draft:
        here = begin(tape.tokens[:tape.prompt + place], len(tape.output) - place, tape.end)
        return Recorded(tape, self.drafter)(here, Budget(self.depth).within(here), NO_DICE)

    @cached_property
    def right(self) -> Mapping[str, tuple[int, ...]]:
        """How many tokens of the longest chain would be kept, at every place."""
        return {name: tuple(accepted(chain, tape.output[place:]) for place, chain in enumerate(self.chains[name]))
                for name, tape in self.tapes.items()}

    def lengths(self, name: str, stop: Stop | None, depth: int | None = None) -> tuple[int, ...]:
        """How far a rule would draft from every place of one text, `depth` at most."""
        most = self.depth if depth is None else depth
        return tuple(min(most, length(chain, stop)) for chain in self.chains[name])

    def judged(self, names: Iterable[str] | None = None) -> list[tuple[Trail, bool]]:
        """(trail, was its last token right?) for every drafted token whose predecessors in the draft were right."""
        out = []
        for name in self.tapes if names is None else names:
            for chain, right in zip(self.chains[name], self.right[name], strict=True):
                out += [(chain.sights[:i + 1], i < right) for i in range(min(right + 1, len(chain)))]
        return out

    def turns(self, name: str, lengths: Sequence[int]) -> list[Turn]:
        """The rounds of one text where a round from place i drafts `lengths[i]` tokens."""
        out, place = [], 0
        while place < len(lengths):
            out.append(Turn(lengths[place], min(lengths[place], self.right[name][place])))
            place += out[-1].kept + 1
        return out

    def told(self, name: str, when: When, dice=NO_DICE) -> Session:
        """One text decoded under a policy."""
        tape = self.tapes[name]
        *_, last = decode(tape.tokens[:tape.prompt], Replay(tape), when, Recorded(tape, self.drafter), Match(),
                          max_new_tokens=len(tape.output), end=tape.end, id=name, dice=dice)
        return last

    def walked(self, name: str, when: When, dice=NO_DICE) -> Session:
        """The same without the target's scores, so in milliseconds: for policies that ask what was drafted and kept."""
        tape, chains, right = self.tapes[name], self.chains[name], self.right[name]
        now = begin(tape.tokens[:tape.prompt], len(tape.output), tape.end, id=name)
        while now.room:
            place = len(now.output)
            budget = when(now, dice.fork(len(now.rounds)).fork("when")).within(now)
            draft = prune(chains[place], budget)
            kept = min(len(draft), right[place])
            verdict = Verdict(tuple(range(kept)), tape.output[place:place + kept + 1])
            now = now.after(Round(budget, draft, Brief(None, None), verdict, ()))
        return now

    def seer(self, name: str, rule: str = "quickest") -> Oracle:
        """The oracle of one text, under this course's prices."""
        tape = self.tapes[name]
        return Oracle(tape, Recorded(tape, self.drafter), self.depth, rule, self.curve, self.level)

    @cached_property
    def quickest(self) -> Mapping[str, tuple[int, ...]]:
        """At every place, the length to draft there so that the rest of the text is written soonest."""
        return {name: self.seer(name).lengths for name in self.tapes}

    def _ms(self, turn: Turn) -> float:
        return 1000 * (self.curve(turn.drafted + 1) + self.level * self.curve(1) * turn.drafted)

    @cached_property
    def oracle(self) -> Outcome:
        """The quickest lengths: they know the text to come, so no rule for these chains is predicted faster."""
        return self._counts([turn for name, lengths in self.quickest.items() for turn in self.turns(name, lengths)])

    def under(self, stop: Stop | None, depth: int | None = None) -> Outcome:
        """All texts under one rule for every round; None never stops before `depth`."""
        return self.total([turn for name in self.tapes for turn in self.turns(name, self.lengths(name, stop, depth))])

    def played(self, when: When, dice: Dice | None = None) -> Outcome:
        """All texts under a policy that looks back, each with dice of its own where there are any."""
        return self.counted([self.walked(name, when, dice.fork(name) if dice else NO_DICE) for name in self.tapes])

    def counted(self, sessions: Iterable[Session]) -> Outcome:
        """Decodes of these texts, as counts and predictions."""
        return self.total([Turn(len(round.draft), len(round.verdict.path))
                           for session in sessions for round in session.rounds])

    def total(self, turns: Sequence[Turn]) -> Outcome:
        """Rounds over all texts, as counts and predictions."""
        found = self._counts(turns)
        return found._replace(regret=self.oracle.speed / found.speed - 1)

    def _counts(self, turns: Sequence[Turn]) -> Outcome:
        drafted, kept, forwards = sum(t.drafted for t in turns), sum(t.kept for t in turns), len(turns)
        tokens, spent = kept + forwards, sum(map(self._ms, turns))
        return Outcome(drafted, kept, forwards, tokens / forwards, 1000 * tokens * self.curve(1) / spent, 0.0)


def length(chain: Draft, stop: Stop | None) -> int:
    """Tokens of the chain up to and with the first at which the rule fires; all where it never does."""
    fires = (i for i in range(1, len(chain)) if stop and stop(chain.sights[:i]))
    return next(fires, len(chain))
