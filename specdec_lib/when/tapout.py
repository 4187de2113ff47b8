"""TapOut: a bandit learns which stop rule to use.

Source: arXiv 2511.02017, known to us at second hand: the five arms, the two levels, the blended reward and the three
bandits. A round drafts under an arm's rule, up to `depth` tokens, and earns the reward
blend * m / depth + (1 - blend) * m / n, with m accepted of n drafted. Level `sequence`: one arm for the whole round.
Level `depth`: one bandit per depth of the draft chooses the arm that decides there, and every depth that was reached
earns the round's reward. That last rule is ours, as are the values of depth and blend, which we did not find. Cost: no
model pass.

The session's rounds record in their budgets which arms were pulled, so the tallies are computed from the history. They
persist across prompts, including the last round of a decode. An adaptive arm reads only the rounds of this decode in
which it was pulled. The choice depends on earlier rounds alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import log, sqrt
from typing import Any, NamedTuple, cast

from specdec_lib.cards import Card, Kit, naming
from specdec_lib.lazy import torch
from specdec_lib.memory.value import carried_value
from specdec_lib.running_fold import RunningFold
from specdec_lib.scores import Categorical
from specdec_lib.types import NO_DICE, Budget, RandomNumbers, Refusal, Round, Session, Stop, Trail, When

ARMS = {"confidence": {"of": "best"}, "svip": {}, "adaedl": {}, "svip-difference": {}, "margin": {}}
LEVELS = ("sequence", "depth")
NOISE = 0.5                                        # largest standard deviation of a reward between 0 and 1
GRID = 256                                         # points of the grid on which posteriors are compared

ARMS_NOTE = "tapout"                               # of a budget: the arms that were pulled, by position of the draft


class Arm(NamedTuple):
    """Pulls and rewards of one arm so far."""

    pulls: int = 0
    total: float = 0.0
    squares: float = 0.0

    @property
    def mean(self) -> float:
        return self.total / self.pulls

    def paid(self, reward: float) -> Arm:
        return Arm(self.pulls + 1, self.total + reward, self.squares + reward * reward)


def ucb1(arms: Sequence[Arm], dice: RandomNumbers, level: str, exploration: float = 2.0) -> int:
    """The arm with the highest mean + sqrt(exploration * ln t / n) (Auer et al. 2002); a tie goes to the first."""
    t = sum(arm.pulls for arm in arms)
    return _best([arm.mean + sqrt(exploration * log(t) / arm.pulls) for arm in arms])


def ucb_tuned(arms: Sequence[Arm], dice: RandomNumbers, level: str, exploration: float = 2.0) -> int:
    """UCB1 with min(1/4, V) for `exploration`, where V = variance + sqrt(2 ln t / n) (Auer et al. 2002)."""
    t = sum(arm.pulls for arm in arms)
    bound = [max(0.0, arm.squares / arm.pulls - arm.mean ** 2) + sqrt(2 * log(t) / arm.pulls) for arm in arms]
    return _best([arm.mean + sqrt(log(t) / arm.pulls * min(.25, v)) for arm, v in zip(arms, bound, strict=True)])


def thompson(arms: tuple[Arm, ...], dice: RandomNumbers, level: str, exploration: float = 2.0) -> int:
    """An arm drawn with the probability that it is the best one, from one random number (Thompson 1933 sampling).

    Posteriors are Gaussian around the mean for `sequence`, with the largest standard deviation a reward can have, and
    Beta(1 + total, 1 + n - total) for `depth`. The choice of posterior is ours.
    """
    return dice.choose(Categorical(torch.arange(len(arms)), best_arm_probabilities(arms, level)))


BANDITS: Mapping[str, Callable[..., int]] = {"ucb1": ucb1, "ucb-tuned": ucb_tuned, "thompson": thompson}


@lru_cache(256)                                    # a round adds to some depths' arms alone
def best_arm_probabilities(arms: tuple[Arm, ...], level: str) -> torch.Tensor:
    """Probability [arms] that each arm's true mean is the highest, by comparing posteriors on a grid."""
    pulls, total = torch.tensor([(arm.pulls, arm.total) for arm in arms], dtype=torch.float64).T[:, :, None]
    if level == "depth":
        at = (torch.arange(GRID, dtype=torch.float64) + .5) / GRID
        density = total * at.log() + (pulls - total) * (1 - at).log()
    else:
        mean, wide = total / pulls, NOISE / pulls.sqrt()
        at = torch.linspace(float((mean - 5 * wide).min()), float((mean + 5 * wide).max()), GRID, dtype=torch.float64)
        density = -((at - mean) / wide) ** 2 / 2
    mass = torch.softmax(density, -1)                              # [arms, grid]
    below = mass.cumsum(-1) - mass / 2                             # half of a shared point counts as below
    own = torch.eye(len(arms), dtype=torch.bool)[:, :, None]
    probs = (mass * torch.where(own, 1.0, below).prod(1)).sum(-1)                            # all others are below
    return probs / probs.sum()


def _best(values: Sequence[float]) -> int:
    return max(range(len(values)), key=values.__getitem__)


@dataclass(frozen=True)
class PulledArm:
    """The stop rule of the pulled arm: at level `sequence` one for all depths of the draft, else one per depth."""

    rules: tuple[Stop, ...]

    def __call__(self, trail: Trail) -> bool:
        return bool(trail and self.rules) and self.rules[min(len(trail), len(self.rules)) - 1](trail)


ArmTallies = Mapping[tuple[int, str], Arm]         # by depth index (0 = first, or all) and name of the arm


@dataclass(frozen=True)
class TapOut:
    """Up to `depth` tokens under the stop rule of the arm that the bandit pulls; each of `arms` is a policy."""

    depth: int
    arms: Mapping[str, When]
    past: ArmTallies                               # of earlier prompts
    level: str = "sequence"
    bandit: str = "ucb1"
    blend: float = 0.5                             # w: weight of m / depth; m / n has the rest
    exploration: float = 2.0                       # of ucb1
    fold: RunningFold = field(default_factory=RunningFold, init=False, repr=False, compare=False)
    shares: RunningFold = field(default_factory=RunningFold, init=False, repr=False, compare=False)

    def __call__(self, session: Session, dice: RandomNumbers) -> Budget:
        earned, own = self.after(self.past, session), dice.aside()
        pulled = tuple(self.pull(earned, place, own) for place in range(self.places))
        rules = {name: cast(Stop, self.arms[name](self.own(session, name), dice).stop) for name in set(pulled)}
        return Budget(self.depth, stop=PulledArm(tuple(rules[name] for name in pulled)), notes={ARMS_NOTE: pulled})

    @property
    def places(self) -> int:
        """Number of bandits: one, or one for each token after which another could be drawn."""
        return 1 if self.level == "sequence" else max(0, self.depth - 1)

    def pull(self, earned: ArmTallies, place: int, dice: RandomNumbers) -> str:
        """The arm for this depth index: each arm once, in order, then the bandit's choice."""
        names = tuple(self.arms)
        known = tuple(earned.get((place, name), Arm()) for name in names)
        new = next((name for name, arm in zip(names, known, strict=True) if not arm.pulls), None)
        return new or names[BANDITS[self.bandit](known, dice, self.level, self.exploration)]

    def after(self, earned: ArmTallies, session: Session) -> ArmTallies:
        """Tallies of all arms after this session's rounds, added to what they had `earned` before."""
        return self.fold(self.next, session.rounds, earned)

    def next(self, earned: ArmTallies, round: Round) -> ArmTallies:
        """Tallies after one more round; one without a draft, or under another policy, changes nothing."""
        arms = deciding_arms(round)
        return {**earned, **{key: earned.get(key, Arm()).paid(self.reward(round)) for key in enumerate(arms)}}

    def reward(self, round: Round) -> float:
        """Reward of a round with a draft, between 0 and 1."""
        kept, drafted = len(round.verdict.path), round.draft.depth
        return self.blend * kept / self.depth + (1 - self.blend) * kept / drafted

    def own(self, session: Session, name: str) -> Session:
        """The session with only those rounds in which this arm was pulled."""
        return replace(session, rounds=self.shares(shared_out, session.rounds, {}).get(name, ()))


def deciding_arms(round: Round) -> tuple[str, ...]:
    """The arms that decided in a round, by depth; empty without a draft or under another policy."""
    return round.budget.notes.get(ARMS_NOTE, ())[:round.draft.depth]


def shared_out(rounds: Mapping[str, tuple[Round, ...]], round: Round) -> Mapping[str, tuple[Round, ...]]:
    """The rounds of every arm, with one more round."""
    return {**rounds, **{name: (*rounds.get(name, ()), round) for name in deciding_arms(round)}}


def make(kit: Kit, depth: int | None = None, level: str = "sequence", bandit: str = "ucb1", blend: float = 0.5,
         exploration: float = 2.0, arms: Mapping[str, Mapping[str, Any]] | Sequence[str] = ARMS,
         remember: bool = True) -> TapOut:
    """`arms` names policies, as a dict with their parameters; `remember` carries the tallies across prompts.

    Depth defaults to the number of nodes that the measured cost curve allows.
    """
    depth = kit.nodes if depth is None else depth
    if level not in LEVELS or bandit not in BANDITS:
        raise Refusal(f"level must be one of {', '.join(LEVELS)} and bandit one of {', '.join(BANDITS)}, "
                      f"got {level!r} and {bandit!r}")
    if depth < 1 or not 0 <= blend <= 1 or not exploration >= 0 or not arms:
        raise Refusal(f"a bandit needs an arm, depth >= 1, blend in [0, 1] and exploration >= 0, got {list(arms)}, "
                      f"{depth}, {blend} and {exploration}")
    values = dict(arms) if isinstance(arms, Mapping) else {name: ARMS.get(name, {}) for name in arms}
    key = f"tapout {depth} {level} {bandit} {blend} {exploration} {sorted(map(repr, values.items()))}"
    made = {name: kit.part(name, **({"depth": depth} | dict(some))) for name, some in values.items()}
    refuse_endless(made)
    rule = TapOut(depth, made, {}, level, bandit, blend, exploration)
    return replace(rule, past=carried_value(kit, key, {}, rule.after)) if remember else rule


def refuse_endless(arms: Mapping[str, When]) -> None:
    """Refuses an arm that has no stop rule; they are asked about no text, which leaves nothing in an index."""
    for name, arm in arms.items():
        if arm(Session((), 0, 9), NO_DICE).stop is None:
            raise Refusal(f"tapout learns which rule stops a draft, and {name} has none: name policies such as "
                          f"{', '.join(ARMS)}")


CARD = Card("tapout", idea="a bandit learns which stop rule to use", source="TapOut, arXiv 2511.02017", make=make,
            parts=tuple(ARMS), named=naming(arms="when"), notebook="14_when_tapout", learns_across_prompts=True)
