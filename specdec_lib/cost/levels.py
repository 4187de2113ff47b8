"""What a stack of drafters is chosen by: the cost of a forward of each level, and how often one accepts another.

Acceptances are teacher-forced overlaps, alpha_ij = mean of sum_x min(p_i(x), p_j(x)) over the positions of texts that
the target wrote, and costs are seconds by width on this machine. Both are read by `cost.hierarchy`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from specdec_lib.cost import hierarchy
from specdec_lib.cost.curves import CostCurve, from_dict, measure_curve
from specdec_lib.files import write_text
from specdec_lib.lazy import torch
from specdec_lib.scores import Categorical, Scores
from specdec_lib.types import LM, Draft, Refusal

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
WIDE = 16                                          # rows of one teacher-forced forward
MADE = "measure it again, see cost/levels"


class GivenText(NamedTuple):
    """Tokens that the target wrote, behind a prompt."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]


@dataclass(frozen=True)
class LevelMeasurements:
    """Costs and acceptances of models, the cheapest first and the target last.

    `alpha[i][j]` is the mean overlap of i and j over `positions` positions; `curves[i]` are seconds by width.
    """

    names: tuple[str, ...]
    curves: tuple[CostCurve, ...]
    alpha: tuple[tuple[float, ...], ...]
    positions: int
    temperature: float = 0.0
    about: Mapping = field(default_factory=dict)

    def __post_init__(self):
        size = len(self.names)
        square = len(self.alpha) == size and all(len(row) == size for row in self.alpha)
        if size < 1 or len(set(self.names)) < size or len(self.curves) != size or not square:
            raise Refusal(f"levels have one name, one curve and one row of acceptances each: {MADE}")
        if not all(0 <= value <= 1 for row in self.alpha for value in row):
            raise Refusal(f"acceptances are probabilities: {MADE}")

    @property
    def target(self) -> str:
        return self.names[-1]

    def places(self, stack: Iterable[str]) -> tuple[int, ...]:
        """The places of these drafters; Refusal for one that was not measured."""
        places = {name: place for place, name in enumerate(self.names[:-1])}
        wanted = tuple(stack)
        missing = [name for name in wanted if name not in places]
        if missing:
            raise Refusal(f"{', '.join(missing)} was not measured; there are: {', '.join(places)}")
        return tuple(places[name] for name in wanted)

    def simple(self, stack: Sequence[str], blocks: Sequence[int]) -> float:
        """Predicted seconds per token of the target over this stack, without overshoot."""
        return hierarchy.stack_latency(self.curves, self.alpha, self.places(stack), blocks)

    def renewal(self, stack: Sequence[str], blocks: Sequence[int]) -> hierarchy.BlockTime:
        """Predicted tokens and seconds of a round of the target over this stack, with overshoot."""
        return hierarchy.renewal_round(self.curves, self.alpha, self.places(stack), blocks)

    def best(self, longest: int = hierarchy.LONGEST) -> hierarchy.StackPlan:
        """The stack and blocks that the programme chooses."""
        return hierarchy.best_stack(self.curves, self.alpha, longest)

    def as_dict(self) -> dict:
        """For JSON."""
        return {"names": list(self.names), "curves": [curve.as_dict() for curve in self.curves],
                "alpha": [list(row) for row in self.alpha], "positions": self.positions,
                "temperature": self.temperature, "about": dict(self.about)}

    def save(self, path: str | Path) -> None:
        """Writes one JSON file."""
        write_text(Path(path), json.dumps(self.as_dict(), indent=1) + "\n")


def load_levels(path: str | Path) -> LevelMeasurements:
    """Saved measurements; Refusal if the file is missing or holds none."""
    try:
        saved = json.loads(Path(path).read_text(encoding="utf-8"))
        return LevelMeasurements(tuple(saved["names"]), tuple(map(from_dict, saved["curves"])),
                                 tuple(tuple(map(float, row)) for row in saved["alpha"]), int(saved["positions"]),
                                 float(saved["temperature"]), saved["about"])
    except OSError as error:
        raise Refusal(f"the measured levels {path} cannot be read ({error.strerror}): {MADE}") from None
    except (ArithmeticError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise Refusal(f"{path} holds no measured levels ({error}): {MADE}") from None


def measure_levels(models: Mapping[str, LM], texts: Sequence[GivenText], sampling=None, repeats: int = 11,
                   widths: Sequence[int] = WIDTHS, contexts: Sequence[int] = (256,),
                   clock: Callable[[], float] = perf_counter, about: Mapping | None = None) -> LevelMeasurements:
    """Costs and acceptances of these models, whose last is the target; the drafters are put in the order of cost.

    The texts were written by the target under `sampling` (None is greedy, where alpha is how often both choose the
    same token). A cost is that of a forward whose first row is read as a drafter reads it.
    """
    if not texts or not models:
        raise Refusal("levels are measured with at least one model on at least one text")
    vocab = min(1000, *(getattr(lm, "vocab", 1000) for lm in models.values()))
    curves = {name: measure_curve(Reading(lm), widths, contexts, repeats, vocab, clock)
              for name, lm in models.items()}
    *drafters, target = models
    names = (*sorted(drafters, key=lambda name: curves[name](1)), target)
    alpha, positions = mean_overlaps([models[name] for name in names], texts, sampling)
    temperature = 0.0 if sampling is None else sampling.temperature
    return LevelMeasurements(names, tuple(curves[name] for name in names), alpha, positions, temperature, about or {})


@dataclass(frozen=True)
class Reading:
    """A model whose every forward also reads the statistics of its first row, as a drafted token's are."""

    model: LM

    @property
    def context(self) -> int | None:
        return self.model.context

    def __call__(self, tokens: tuple[int, ...], draft: Draft) -> Scores:
        scores = self.model(tokens, draft)
        scores.stats(0, scores.best[0])
        return scores

    def prefill(self, tokens: tuple[int, ...]) -> None:
        self.model.prefill(tokens)

    def fresh(self) -> Reading:
        return Reading(self.model.fresh())


def mean_overlaps(models: Sequence[LM], texts: Sequence[GivenText],
                  sampling=None) -> tuple[tuple[tuple[float, ...], ...], int]:
    """Mean overlap of every two models over all positions of the answers, and how many positions there were."""
    sums = [[0.0] * len(models) for _ in models]
    positions = 0
    for text in texts:
        by_model = [answer_distributions(model, text, sampling) for model in models]
        positions += len(text.answer)
        for i in range(len(models)):
            for j in range(i, len(models)):
                total = sum(overlap(p, q) for p, q in zip(by_model[i], by_model[j], strict=True))
                sums[i][j] += total
                sums[j][i] += total * (i != j)
    if not positions:
        raise Refusal("the texts hold no answer: acceptances need at least one token that the target wrote")
    return tuple(tuple(min(1.0, value / positions) for value in row) for row in sums), positions


def answer_distributions(model: LM, text: GivenText, sampling=None) -> list[Categorical]:
    """The model's distribution of every token of the answer, given all tokens before it: WIDE rows a forward."""
    found: list[Categorical] = []
    starts = [*range(0, len(text.answer), WIDE), len(text.answer)]
    for start, end in pairwise(starts):
        given = text.answer[start:end - 1]         # the last token of a forward needs no row behind it
        scores = model(text.prompt + text.answer[:start], Draft(given, tuple(range(-1, len(given) - 1))))
        found += [scores.distribution(row, sampling) for row in range(end - start)]
    return found


def overlap(p: Categorical, q: Categorical) -> float:
    """sum_x min(p(x), q(x)): the probability that a token drawn from q is accepted by p."""
    if p.only is not None or q.only is not None:
        one, other = (p, q) if p.only is not None else (q, p)
        assert one.only is not None
        return other.probability(one.only)
    return float(torch.minimum(p.probs, q.onto(p.ids).to(p.probs)).sum())
