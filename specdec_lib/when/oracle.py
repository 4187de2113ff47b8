"""Oracle: the draft length that knowledge of the recorded answer gives. Works on recordings only.

Source: the draft-length oracle with which SVIP (arXiv 2411.18462) and AdaEAGLE (arXiv 2412.18910) compare their rules.
`rule="kept"` drafts exactly as many tokens as will be accepted. It wastes no draft, but it is not the fastest length: a
token can cost more than it gains, and a draft that is one token shorter can end the round where the drafter's next
draft is longer. `rule="quickest"` (ours) takes the lengths that produce the recorded answer in the least time, computed
backwards from its end under a cost for every forward and every draft; under those costs no policy for the same chains
is faster. The oracle is undefined for any other text. It changes no token, so it is lossless; it is a bound, not a rule
that can be run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from specdec_lib.cards import Card, Kit
from specdec_lib.cost.lengths import RoundOffer, quickest_lengths
from specdec_lib.trees import accepted_depth
from specdec_lib.types import NO_DICE, Budget, Draft, RandomNumbers, Refusal, Session, What

RULES = ("kept", "quickest")


@dataclass(frozen=True)
class Oracle:
    """The draft length at every position of a recording, from the chains of `drafts`; at most `longest` tokens."""

    recording: Any                                 # models.replay.Recording
    drafts: What                                   # what/recorded, of the drafter that will be used
    longest: int
    rule: str = "kept"
    seconds: Callable[[float], float] | None = None  # of a forward by its width; None for `kept`, which needs no costs
    per_token: float = 0.0                         # cost of the drafter in plain forwards: per token ...
    per_block: float = 0.0                         # ... and once per draft of any length

    def __post_init__(self):
        if self.rule not in RULES or min(self.longest, self.per_token, self.per_block) < 0:
            raise Refusal(f"rule must be one of {', '.join(RULES)}, and longest, per_token and per_block 0 or more, "
                          f"got {self.rule!r}, {self.longest}, {self.per_token} and {self.per_block}")
        if self.rule == "quickest" and self.seconds is None:
            raise Refusal("the rule quickest needs the cost of a forward: give a cost curve")

    def __call__(self, session: Session, dice: RandomNumbers) -> Budget:
        position = len(session.tokens) - self.recording.prompt
        if session.tokens != self.recording.tokens[:len(session.tokens)] or position < 0:
            raise Refusal("the oracle needs a beginning of the recorded answer, and this session is not one")
        return Budget(self.lengths[position] if position < len(self.lengths) else 0)

    @cached_property
    def chains(self) -> tuple[Draft, ...]:
        """The longest chain from every position of the answer; the answer's last token is never drafted."""
        recording, total = self.recording, len(self.recording.tokens)
        whole = Session(recording.tokens, recording.prompt, 0, recording.end)
        sessions = (replace(whole, tokens=recording.tokens[:n], remaining=total - n)
                    for n in range(recording.prompt, total))
        return tuple(self.drafts(one, Budget(self.longest).within(one), NO_DICE) for one in sessions)

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """How many tokens of the longest chain are accepted, at every position."""
        return tuple(accepted_depth(chain, self.recording.output[i:]) for i, chain in enumerate(self.chains))

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """The draft length at every position; `quickest` optimises over the recorded part of the answer."""
        if self.rule == "kept":
            return self.kept
        return quickest_lengths([[self.offer(n, position) for position in range(len(self.kept))]
                                 for n in range(self.longest + 1)])

    def offer(self, n: int, position: int) -> RoundOffer:
        """A round that drafts `n` tokens at a position, or all that exist; forwards cost by width alone."""
        drafted, seconds = min(n, len(self.chains[position])), self.seconds
        assert seconds is not None                 # the rule is not `kept`
        drafting = (self.per_block + self.per_token * drafted) * seconds(1) if drafted else 0.0
        spent = drafting + seconds(drafted + 1)
        return RoundOffer(drafted, min(drafted, self.kept[position]) + 1, spent)


def make(kit: Kit, drafter: str = "suffix-automaton", rule: str = "kept", longest: int = 16,
         per_token: float = 0.1, per_block: float = 0.0) -> Oracle:
    """`drafter` is the recorded drafter that the run uses; 16 is the longest chain in a recording.

    Costs come from the kit's curve, or without one are 1 + `kit.price` per further token. A step of a small drafter
    costs about a tenth of a plain forward, a block filled in one forward about a quarter.
    """
    if kit.recording is None:
        raise Refusal("the oracle reads the recorded answer, so it works on recordings only")
    seconds = kit.cost or (lambda width: 1 + kit.price * (width - 1))
    return Oracle(kit.recording, kit.part("recorded", drafter=drafter), longest, rule, seconds, per_token, per_block)


CARD = Card("oracle", idea="draft length from knowledge of the recorded answer",
            source="the oracle of SVIP, arXiv 2411.18462, and AdaEAGLE, arXiv 2412.18910", make=make,
            needs=("recording",), parts=("recorded",), notebook="19_when_cost_optimal")
