"""Oracle: the length that foresight would draft. For recordings only, since it reads the text to come.

Source: the draft-length oracle that SVIP (arXiv 2411.18462) and AdaEAGLE (arXiv 2412.18910) hold their rules against:
exactly as many tokens as would be kept, `rule="kept"`. That wastes no draft, but it is not the fastest: a token can
cost more than it brings, and one token less can end the round where the drafter's next guess is long.
`rule="quickest"` (ours) takes the lengths that write the recorded answer soonest, worked out backwards from its end
under a price for every forward and every draft; no policy for the same chains is faster under those prices. Whoever
writes another text has no oracle. Lengths touch no token, so it is lossless, and no rule that could be used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from specdec_lib.cost.lengths import RoundOffer, quickest_lengths
from specdec_lib.trees import accepted_depth
from specdec_lib.types import NO_DICE, Budget, Card, Draft, Kit, Refusal, Session, What

RULES = ("kept", "quickest")


@dataclass(frozen=True)
class Oracle:
    """The length for every place of a recording, from the chains that `drafts` has there; `longest` tokens at most."""

    recording: Any                                 # models.replay.Recording
    drafts: What                                   # what/recorded, of the drafter that will be asked
    longest: int
    rule: str = "kept"
    seconds: Callable[[int], float] | None = None  # of a forward by its width; None prices nothing, for `kept`
    per_token: float = 0.0                         # what the drafter costs, in plain forwards: for each token ...
    per_block: float = 0.0                         # ... and once for a draft of any length

    def __post_init__(self):
        if self.rule not in RULES or min(self.longest, self.per_token, self.per_block) < 0:
            raise Refusal(f"an oracle has a rule of {', '.join(RULES)}, and longest, per_token and per_block of 0 or "
                          f"more, got {self.rule!r}, {self.longest}, {self.per_token} and {self.per_block}")
        if self.rule == "quickest" and self.seconds is None:
            raise Refusal("the quickest lengths need the price of a forward: give a cost curve")

    def __call__(self, session: Session, dice) -> Budget:
        place = len(session.tokens) - self.recording.prompt
        if session.tokens != self.recording.tokens[:len(session.tokens)] or place < 0:
            raise Refusal("the oracle knows the recorded answer alone, and this is not the beginning of it")
        return Budget(self.lengths[place] if place < len(self.lengths) else 0)

    @cached_property
    def chains(self) -> tuple[Draft, ...]:
        """The longest chain from every place of the answer; its last token is never drafted."""
        recording, whole = self.recording, len(self.recording.tokens)
        first = Session(recording.tokens, recording.prompt, 0, recording.end)
        here = (replace(first, tokens=recording.tokens[:n], remaining=whole - n) for n in range(recording.prompt, whole))
        return tuple(self.drafts(one, Budget(self.longest).within(one), NO_DICE) for one in here)

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """How many tokens of the longest chain would be kept, at every place."""
        return tuple(accepted_depth(chain, self.recording.output[place:]) for place, chain in enumerate(self.chains))

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """What it drafts at every place; those of `quickest` are for the answer as far as it was recorded."""
        if self.rule == "kept":
            return self.kept
        return quickest_lengths([[self.offer(n, place) for place in range(len(self.kept))]
                                 for n in range(self.longest + 1)])

    def offer(self, n: int, place: int) -> RoundOffer:
        """A round that drafts `n` tokens at a place, or all that there are; forwards are priced by width alone."""
        drafted = min(n, len(self.chains[place]))
        drafting = (self.per_block + self.per_token * drafted) * self.seconds(1) if drafted else 0.0
        spent = drafting + self.seconds(drafted + 1)
        return RoundOffer(drafted, min(drafted, self.kept[place]) + 1, spent)


def make(kit: Kit, drafter: str = "suffix-automaton", rule: str = "kept", longest: int = 16,
         per_token: float = 0.1, per_block: float = 0.0) -> Oracle:
    """`drafter` is who was recorded and will be asked; 16 is the longest chain that is recorded.

    Forwards cost what the kit's curve says, or one and `kit.price` for each further token where nobody has measured. A
    step of a small drafter costs about a tenth of a plain forward, a block filled in one forward about a quarter.
    """
    if kit.recording is None:
        raise Refusal("the oracle reads the text to come, so it is for recordings only: no run has it")
    seconds = kit.cost or (lambda width: 1 + kit.price * (width - 1))
    return Oracle(kit.recording, kit.part("recorded", drafter=drafter), longest, rule, seconds,
                  per_token, per_block)


CARD = Card("oracle", idea="as many tokens as will be kept, by foresight",
            source="the oracle of SVIP, arXiv 2411.18462, and AdaEAGLE, arXiv 2412.18910", make=make,
            needs=("recording",), parts=("recorded",), notebook="19_when_cost_optimal")
