"""What a stack of drafters is chosen by: what each level costs, and how often one accepts another.

Acceptances are teacher-forced overlaps, alpha_ij = mean of sum_x min(p_i(x), p_j(x)) over the positions of texts that
the target wrote. Costs are seconds on one machine: forwards by width, and the terms of `cost.hierarchy.LevelTerms`;
`bench/level_times` measures them. `cost.hierarchy` reads both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from specdec_lib.cost import hierarchy
from specdec_lib.cost.curves import CostCurve, from_dict
from specdec_lib.cost.hierarchy import LevelCost, LevelTerms
from specdec_lib.files import write_text
from specdec_lib.lazy import torch
from specdec_lib.scores import Categorical
from specdec_lib.types import LM, Draft, Refusal

WIDE = 16                                          # rows of one teacher-forced forward
COMMAND = "python -c \"from specdec_lib.bench.level_run import measure_run_levels as m; m('{folder}')\""
MADE = f"in a run's folder it is measured with `{COMMAND.format(folder='FOLDER')}`"


class GivenText(NamedTuple):
    """Tokens that the target wrote, behind a prompt."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]


@dataclass(frozen=True)
class LevelMeasurements:
    """Costs and acceptances of models, the cheapest first and the target last.

    `alpha[i][j]` is the mean overlap of i and j over `positions` positions; `curves[i]` are seconds by width, and
    `terms[i]` what a level takes beyond its forwards, in seconds. No `terms` at all count as zeros.
    """

    names: tuple[str, ...]
    curves: tuple[CostCurve, ...]
    alpha: tuple[tuple[float, ...], ...]
    positions: int
    temperature: float = 0.0
    about: Mapping = field(default_factory=dict)
    terms: tuple[LevelTerms, ...] = ()

    def __post_init__(self):
        size = len(self.names)
        square = len(self.alpha) == size and all(len(row) == size for row in self.alpha)
        if size < 1 or len(set(self.names)) < size or len(self.curves) != size or not square:
            raise Refusal(f"levels have one name, one curve and one row of acceptances each: {MADE}")
        if self.terms and len(self.terms) != size or not all(value >= 0 for one in self.terms for value in one):
            raise Refusal(f"levels have terms of zero seconds or more each: {MADE}")
        if not all(0 <= value <= 1 for row in self.alpha for value in row):
            raise Refusal(f"acceptances are probabilities: {MADE}")

    @property
    def target(self) -> str:
        return self.names[-1]

    @property
    def costs(self) -> tuple[LevelCost, ...]:
        """What the formulas charge for each level."""
        terms = self.terms or (LevelTerms(),) * len(self.names)
        return tuple(LevelCost(curve, own) for curve, own in zip(self.curves, terms, strict=True))

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
        return hierarchy.stack_latency(self.costs, self.alpha, self.places(stack), blocks)

    def renewal(self, stack: Sequence[str], blocks: Sequence[int]) -> hierarchy.BlockTime:
        """Predicted tokens and seconds of a round of the target over this stack, with overshoot."""
        return hierarchy.renewal_round(self.costs, self.alpha, self.places(stack), blocks)

    def parts(self, stack: Sequence[str], blocks: Sequence[int]) -> dict[str, float]:
        """Seconds per token by `renewal` for the forwards and for each term; they add up to the whole."""
        def latency(terms: Sequence[LevelTerms]) -> float:
            turn = replace(self, terms=tuple(terms)).renewal(stack, blocks)
            return turn.time / turn.tokens

        own = [cost.terms for cost in self.costs]
        bare = latency([LevelTerms()] * len(own))
        each = {name: latency([LevelTerms(**{name: getattr(one, name)}) for one in own]) - bare
                for name in LevelTerms._fields}
        return {"forwards": bare} | each

    def best(self, longest: int = hierarchy.LONGEST) -> hierarchy.StackPlan:
        """The stack and blocks that the programme chooses."""
        return hierarchy.best_stack(self.costs, self.alpha, longest)

    def as_dict(self) -> dict:
        """For JSON."""
        return {"names": list(self.names), "curves": [curve.as_dict() for curve in self.curves],
                "alpha": [list(row) for row in self.alpha], "positions": self.positions,
                "temperature": self.temperature, "about": dict(self.about),
                "terms": [one._asdict() for one in self.terms]}

    def save(self, path: str | Path) -> None:
        """Writes one JSON file."""
        write_text(Path(path), json.dumps(self.as_dict(), indent=1) + "\n")


def load_levels(path: str | Path) -> LevelMeasurements:
    """Saved measurements; Refusal if the file is missing, holds none, or holds forwards without their terms."""
    try:
        saved = json.loads(Path(path).read_text(encoding="utf-8"))
        if "terms" not in saved and "curves" in saved:
            raise Refusal("it holds forwards alone, not what a level takes beyond them: measure it again with"
                          f" `{COMMAND.format(folder=Path(path).parent.as_posix())}`")
        return LevelMeasurements(tuple(saved["names"]), tuple(map(from_dict, saved["curves"])),
                                 tuple(tuple(map(float, row)) for row in saved["alpha"]), int(saved["positions"]),
                                 float(saved["temperature"]), saved["about"],
                                 tuple(LevelTerms(**{name: float(value) for name, value in one.items()})
                                       for one in saved["terms"]))
    except OSError as error:
        raise Refusal(f"the measured levels {path} cannot be read ({error.strerror}): {MADE}") from None
    except Refusal as why:
        raise Refusal(f"{path} holds no measured levels: {why}") from None
    except (ArithmeticError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise Refusal(f"{path} holds no measured levels ({error}): {MADE}") from None


def measured_levels(models: Mapping[str, LM], costs: Mapping[str, tuple[CostCurve, LevelTerms]],
                    texts: Sequence[GivenText], sampling=None, about: Mapping | None = None) -> LevelMeasurements:
    """These costs and the acceptances of the models, whose last is the target; drafters in the order of cost.

    The texts were written by the target under `sampling` (None is greedy, where alpha is how often both choose the
    same token).
    """
    if not texts or not models:
        raise Refusal("levels are measured with at least one model on at least one text")
    *drafters, target = models
    names = (*sorted(drafters, key=lambda name: LevelCost(*costs[name]).alone), target)
    alpha, positions = mean_overlaps([models[name] for name in names], texts, sampling)
    temperature = 0.0 if sampling is None else sampling.temperature
    curves, terms = zip(*(costs[name] for name in names), strict=True)
    return LevelMeasurements(names, curves, alpha, positions, temperature, about or {}, terms)


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
