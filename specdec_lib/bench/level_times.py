"""What the levels of a stack cost, timed as a decode uses them: a block of one drafter, then a round of the target.

A model that runs again and again finds its weights in the processor's cache; in a decode the target's forward has
taken their place, and other work stands between two forwards. So the models take turns along texts that the target
wrote, on caches that hold these texts: between two rounds of the target a drafter either drafts a few tokens itself or
verifies a given draft twice, through the same code as in a decode. Forwards are timed one by one: the first of a block
apart from the later ones, and what is not spent in them belongs to the step or to the verification. Times are means,
as a decode's time per token is one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from statistics import fmean
from time import perf_counter

from specdec_lib.cost.curves import CostCurve, draft_after
from specdec_lib.cost.hierarchy import LevelTerms
from specdec_lib.cost.levels import GivenText
from specdec_lib.dice import Dice
from specdec_lib.how.rejection import Rejection
from specdec_lib.loop import step
from specdec_lib.scores import Scores
from specdec_lib.types import LM, Budget, Draft, Method, Refusal, Session
from specdec_lib.what.hierarchy import Hierarchy, Level, ModelDrafter

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
PASSES = 3                                         # over all texts
STEPS = 4                                          # tokens that a drafter drafts itself
ROOM = 1000                                        # tokens that may still be emitted: more than any block


@dataclass
class TimedForwards:
    """A model that notes the seconds of every forward, the transfer of the best tokens to the host included."""

    model: LM
    clock: Callable[[], float]
    took: list[float] = field(default_factory=list)

    @property
    def context(self) -> int | None:
        return self.model.context

    def __call__(self, tokens: tuple[int, ...], draft: Draft) -> Scores:
        start = self.clock()
        scores = self.model(tokens, draft)
        assert scores.best
        self.took.append(self.clock() - start)
        return scores

    def prefill(self, tokens: tuple[int, ...]) -> None:
        self.model.prefill(tokens)

    def fresh(self) -> TimedForwards:
        return TimedForwards(self.model.fresh(), self.clock)


@dataclass
class LevelSeconds:
    """All that was timed of one level."""

    first: list[tuple[int, float]] = field(default_factory=list)       # of a drafter's block: width and seconds
    later: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    steps: list[float] = field(default_factory=list)                   # beyond the forwards, each
    verifications: list[float] = field(default_factory=list)
    prompts: list[float] = field(default_factory=list)

    def cost(self, context: int, tokens: float) -> tuple[CostCurve, LevelTerms]:
        """Forwards by width at this context, and terms; the prompt is shared by the `tokens` of an answer."""
        mean = {width: fmean(self.later[width]) for width in sorted(self.later) if self.later[width]}
        over = [seconds - mean[width] for width, seconds in self.first if width in mean]
        terms = LevelTerms(*(max(0.0, fmean(some)) if some else 0.0
                             for some in (self.steps, self.verifications, over, self.prompts)))
        return (CostCurve(tuple(mean), (context,), (tuple(mean.values()),)),
                terms._replace(prompt=terms.prompt / tokens))


def level_times(opened: Callable[[], Mapping[str, LM]], texts: Sequence[GivenText], sampling=None,
                passes: int = PASSES, widths: Sequence[int] = WIDTHS,
                clock: Callable[[], float] = perf_counter) -> dict[str, tuple[CostCurve, LevelTerms]]:
    """Forwards by width and terms of every model that `opened` gives with new caches, the last being the target.

    A text is read from its prompt on, one token a turn, so every context of a decode occurs as often as there.
    """
    if not any(text.answer for text in texts):
        raise Refusal("levels are timed on texts with answers: at least one token that the target wrote")
    found: dict[str, LevelSeconds] = defaultdict(LevelSeconds)
    turns, seen = count(), []
    for text in [*texts] * passes:
        models = {name: TimedForwards(lm, clock) for name, lm in opened().items()}
        *drafters, target = models
        vocab = min(1000, *(getattr(one.model, "vocab", 1000) for one in models.values()))
        read_prompt(models, found, text.prompt[:-1])
        for place in range(len(text.answer)):
            turn = next(turns)
            session = Session(text.prompt + text.answer[:place], len(text.prompt), ROOM, sampling=sampling)
            if drafters:
                own, name = turn // len(drafters), drafters[turn % len(drafters)]
                time_block(models[name], found[name], session, own % 2 == 0, given(own // 2, widths[1:], vocab))
                models[drafters[(turn + 1) % len(drafters)]].prefill(session.tokens)     # its next turn reads no more
            time_round(models[target], found[target], session, given(turn, widths, vocab))
            seen.append(len(session.tokens))
    tokens = fmean(len(text.answer) for text in texts)
    return {name: one.cost(round(fmean(seen)), tokens) for name, one in found.items()}


def given(turn: int, widths: Sequence[int], vocab: int) -> Draft:
    """A draft that nobody had to draw, for a forward of the width whose turn it is."""
    return draft_after(turn, widths[turn % len(widths)], vocab)[1]


def read_prompt(models: Mapping[str, TimedForwards], found: Mapping[str, LevelSeconds],
                tokens: tuple[int, ...]) -> None:
    """Lets the target read a prompt, then every drafter, each from what its cache holds by then."""
    *drafters, target = models
    models[target].prefill(tokens)
    for name in drafters:
        start = models[name].clock()
        models[name].prefill(tokens)
        found[name].prompts.append(models[name].clock() - start)


def time_round(target: TimedForwards, seconds: LevelSeconds, session: Session, draft: Draft) -> None:
    """A round of the target with this draft; without one it is a step of plain decoding."""
    method = Method(lambda session, dice: Budget(len(draft)), lambda session, budget, dice: draft, Rejection())
    start = target.clock()
    step(session, target, method, Dice(0))
    rest = target.clock() - start - sum(target.took)
    seconds.later[1 + len(draft)] += target.took
    (seconds.verifications if len(draft) else seconds.steps).append(rest)
    target.took.clear()


def time_block(model: TimedForwards, seconds: LevelSeconds, session: Session, steps: bool, draft: Draft) -> None:
    """A drafter's block: `steps` of its own, or two verifications of this draft, one where it accepts a token."""
    what = ModelDrafter(model, "") if steps else \
        Hierarchy(lambda session, budget, dice: draft, len(draft), (Level("", model, 2),), Rejection())
    start = model.clock()
    what(session, Budget(STEPS if steps else 2 * len(draft) + 2), Dice(0))
    rest = model.clock() - start - sum(model.took)
    (first, *later), width = model.took, 1 if steps else 1 + len(draft)
    (seconds.steps if steps else seconds.verifications).extend([rest / len(model.took)] * len(model.took))
    seconds.first.append((width, first))
    seconds.later[width] += later
    model.took.clear()
