"""Draft lengths of a policy along recorded texts, compared with the lengths that the target would accept.

A drafter's chains are replayed from every position of a recording. A rule that is the same in every round is evaluated
at all positions at once; a policy that depends on the history walks along the text. Tokens are counted on the recorded
greedy text. Speed is predicted from a cost curve, a price of beginning a draft, and one of each drafted token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, cast

from specdec_lib.cost.curves import CostCurve
from specdec_lib.cost.lengths import RoundOffer, quickest_lengths
from specdec_lib.dice import Dice
from specdec_lib.how.match import Match
from specdec_lib.loop import NO_MEMORY, begin, decode, finish
from specdec_lib.models.replay import Recording, Replay
from specdec_lib.scores import RowStats
from specdec_lib.trees import accepted_depth, prune
from specdec_lib.types import NO_DICE, Budget, Draft, RandomNumbers, Refusal, Round, Session, Stop, Trail, Verdict, When
from specdec_lib.what.recorded import Recorded
from specdec_lib.when.oracle import Oracle


class ReplayedRound(NamedTuple):
    """One round: tokens drafted, and how many of them were kept."""

    drafted: int
    kept: int


class ReplayOutcome(NamedTuple):
    """Totals of a policy over some texts; `speed`, in times plain decoding, and `regret` are predicted."""

    drafted: int
    kept: int
    forwards: int
    tokens_per_forward: float
    speed: float
    regret: float                                  # time beyond that of the oracle, as a share of the oracle's

Value = TypeVar("Value")


class NoRowStats:
    """Stands for the statistics of a round without scores: whoever reads them is told where to find some."""

    def __getattr__(self, name: str) -> Any:
        raise Refusal(f"a walk has no scores of the target, so no {name}: decode_text has them")


@dataclass(frozen=True)
class LengthReplay:
    """Recorded texts with the chains of one drafter, up to `depth`.

    In plain forwards, a draft costs `begin` once, unless nothing is drafted, and `level` for each token.
    """

    recordings: Mapping[str, Recording]
    drafter: str
    depth: int
    curve: CostCurve
    level: float
    begin: float = 0.0

    def __post_init__(self):
        if self.depth < 1 or min(self.level, self.begin) < 0:
            raise Refusal("a replay needs a depth of at least 1 and prices of zero or more, got "
                          f"{self.depth}, {self.level} and {self.begin}")

    @cached_property
    def chains(self) -> Mapping[str, tuple[Draft, ...]]:
        """The longest chain from every position of every text; the last token of a text is never drafted."""
        return {name: tuple(self._chain(recording, place) for place in range(len(recording.output)))
                for name, recording in self.recordings.items()}

    def _chain(self, recording: Recording, place: int) -> Draft:
        here = begin(recording.tokens[:recording.prompt + place], len(recording.output) - place, recording.end)
        return Recorded(recording, self.drafter)(here, Budget(self.depth).within(here), NO_DICE)

    @cached_property
    def accepted(self) -> Mapping[str, tuple[int, ...]]:
        """How many tokens of the longest chain would be accepted, at every position."""
        return {name: tuple(accepted_depth(chain, recording.output[place:])
                            for place, chain in enumerate(self.chains[name]))
                for name, recording in self.recordings.items()}

    def lengths(self, name: str, stop: Stop | None, depth: int | None = None) -> tuple[int, ...]:
        """How far a rule would draft from every position of one text, at most `depth`."""
        most = self.depth if depth is None else depth
        return tuple(min(most, stop_length(chain, stop)) for chain in self.chains[name])

    def labelled_trails(self, names: Iterable[str] | None = None) -> list[tuple[Trail, bool]]:
        """(trail, is its last token accepted?) for every drafted token whose predecessors in the draft are accepted."""
        out = []
        for name in self.recordings if names is None else names:
            for chain, accepted in zip(self.chains[name], self.accepted[name], strict=True):
                out += [(chain.stats[:i + 1], i < accepted) for i in range(min(accepted + 1, len(chain)))]
        return out

    def rounds(self, name: str, lengths: Sequence[int]) -> list[ReplayedRound]:
        """The rounds of one text if a round from position i drafts `lengths[i]` tokens."""
        out, place = [], 0
        while place < len(lengths):
            out.append(ReplayedRound(lengths[place], min(lengths[place], self.accepted[name][place])))
            place += out[-1].kept + 1
        return out

    def decode_text(self, name: str, when: When, dice: RandomNumbers = NO_DICE) -> Session:
        """One text decoded under a policy."""
        recording = self.recordings[name]
        *_, last = decode(recording.tokens[:recording.prompt], Replay(recording), when,
                          Recorded(recording, self.drafter), Match(),
                          max_new_tokens=len(recording.output), end=recording.end, id=name, dice=dice)
        return last

    def walk_text(self, name: str, when: When, dice: RandomNumbers = NO_DICE,
               memory: Mapping[str, Any] = NO_MEMORY) -> Session:
        """The same without target scores, in milliseconds; for policies that only use what was drafted and accepted.

        `memory` is that of the kit which made the policy; it learns the whole decode at the end.
        """
        recording, chains, accepted = self.recordings[name], self.chains[name], self.accepted[name]
        now = begin(recording.tokens[:recording.prompt], len(recording.output), recording.end, id=name)
        while now.remaining:
            place = len(now.output)
            budget = when(now, dice.fork(len(now.rounds)).fork("when")).within(now)
            draft = prune(chains[place], budget)
            kept = min(len(draft), accepted[place])
            verdict = Verdict(tuple(range(kept)), recording.output[place:place + kept + 1])
            now = now.after(Round(budget, draft, cast(RowStats, NoRowStats()), verdict, ()))
        finish(memory, now)
        return now

    def oracle_of(self, name: str, rule: str = "quickest") -> Oracle:
        """The oracle of one text, with the prices of this replay."""
        recording = self.recordings[name]
        return Oracle(recording, Recorded(recording, self.drafter), self.depth, rule, self.curve, self.level,
                      self.begin)

    @cached_property
    def quickest(self) -> Mapping[str, tuple[int, ...]]:
        """At every position, the draft length from which the rest of the text takes the least predicted time."""
        return {name: self.oracle_of(name).lengths for name in self.recordings}

    def _ms(self, round: ReplayedRound) -> float:
        drafting = self.begin + self.level * round.drafted if round.drafted else 0.0
        return 1000 * (self.curve(round.drafted + 1) + drafting * self.curve(1))

    @cached_property
    def oracle(self) -> ReplayOutcome:
        """The outcome of the quickest lengths; they use the future text, so no rule is predicted to be faster."""
        return self._counts([one for name, lengths in self.quickest.items() for one in self.rounds(name, lengths)])

    def oracle_from(self, shortest: int) -> ReplayOutcome:
        """The outcome of the quickest lengths of `shortest` or more: the bound of rules that may not draft fewer."""
        found = []
        for name, chains in self.chains.items():
            offer = self.oracle_of(name).offer
            lengths = quickest_lengths([[offer(max(shortest, n), place) for place in range(len(chains))]
                                        for n in range(self.depth + 1)])
            found += self.rounds(name, [min(max(shortest, n), len(chain))
                                        for n, chain in zip(lengths, chains, strict=True)])
        return self.total(found)

    def under(self, stop: Stop | None, depth: int | None = None) -> ReplayOutcome:
        """All texts under one stop rule for every round; None drafts to `depth`."""
        return self.total([one for name in self.recordings
                           for one in self.rounds(name, self.lengths(name, stop, depth))])

    def policy_outcome(self, when: When, dice: Dice | None = None) -> ReplayOutcome:
        """All texts under a policy that uses the history, each text with its own fork of `dice`."""
        return self.counted([self.walk_text(name, when, dice.fork(name) if dice else NO_DICE)
                             for name in self.recordings])

    def counted(self, sessions: Iterable[Session]) -> ReplayOutcome:
        """Counts and predictions of decodes of these texts."""
        return self.total([turn for session in sessions for turn in session_rounds(session)])

    @property
    def sample(self) -> str:
        """What a choice in hindsight rests on, in words."""
        texts, tokens = len(self.recordings), sum(len(one.output) for one in self.recordings.values())
        return f"chosen and judged on the same {texts} answer{'s' * (texts != 1)}, {tokens} tokens"

    def held_out(self, choices: Mapping[Value, Mapping[str, Sequence[ReplayedRound]]]
                 ) -> tuple[dict[str, Value], ReplayOutcome | None]:
        """For each text the choice that is predicted fastest on all others, and the outcome of the texts under these.

        `choices` holds the rounds of every text under every choice; of equal ones the first is taken. A single text
        leaves no other to choose on: then nothing is chosen, and there is no outcome.
        """
        if len(self.recordings) < 2:
            return {}, None
        chosen = {name: max(choices, key=lambda one, name=name: self._counts(
            [turn for other, rounds in choices[one].items() if other != name for turn in rounds]).speed)
            for name in self.recordings}
        return chosen, self.total([turn for name, one in chosen.items() for turn in choices[one][name]])

    def total(self, rounds: Sequence[ReplayedRound]) -> ReplayOutcome:
        """Counts and predictions of the rounds over all texts."""
        found = self._counts(rounds)
        return found._replace(regret=self.oracle.speed / found.speed - 1)

    def _counts(self, rounds: Sequence[ReplayedRound]) -> ReplayOutcome:
        drafted, kept, forwards = sum(t.drafted for t in rounds), sum(t.kept for t in rounds), len(rounds)
        tokens, spent = kept + forwards, sum(map(self._ms, rounds))
        return ReplayOutcome(drafted, kept, forwards, tokens / forwards, 1000 * tokens * self.curve(1) / spent, 0.0)


def session_rounds(session: Session) -> list[ReplayedRound]:
    """The rounds of a decode."""
    return [ReplayedRound(len(round.draft), len(round.verdict.path)) for round in session.rounds]


def held_out_table(replay: LengthReplay, rules: Mapping[str, Mapping[float, Mapping[str, Sequence[ReplayedRound]]]],
                   base: str) -> dict[str, dict]:
    """Rule -> predicted speed at its best value on all texts, and with each text's value chosen on the other texts.

    Both stand beside the speed of the rule `base`, whose value is chosen in the same way.
    """
    out: dict[str, dict] = {}
    for rule, choices in rules.items():
        speeds = {value: replay.total([turn for some in rounds.values() for turn in some]).speed
                  for value, rounds in choices.items()}
        best, (chosen, found) = max(speeds, key=speeds.__getitem__), replay.held_out(choices)
        out[rule] = {"best value": best, "speed": speeds[best],
                     "values held out": ", ".join(f"{one:g}" for one in sorted(set(chosen.values()))),
                     "held-out speed": found and found.speed}
    return {rule: row | {f"{kind} over {base}": row[kind] and row[kind] / out[base][kind]
                         for kind in ("speed", "held-out speed")} for rule, row in out.items()}


def stop_length(chain: Draft, stop: Stop | None) -> int:
    """Tokens of the chain up to and including the first at which the rule fires; all if it never does."""
    fires = (i for i in range(1, len(chain)) if stop and stop(chain.stats[:i]))
    return next(fires, len(chain))


def walk_lengths(offers: Sequence[Sequence[RoundOffer]], lengths: Sequence[int]) -> list[RoundOffer]:
    """The rounds that emit the text with drafts of `lengths[position]` tokens; the verdict adds one token to each.

    `offers[n][position]` is the round that a draft of `n` tokens gives at a position of the text.
    """
    places, place, out = len(offers[0]), 0, []
    while place < places:
        out.append(offers[min(lengths[place], places - place - 1, len(offers) - 1)][place])
        place += out[-1].tokens
    return out
