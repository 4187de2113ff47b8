"""A finished sweep in numbers: best settings, sensitivities, the Pareto front, and whether a choice holds elsewhere.

Pure functions of the rows of `cells.parquet`. A measure is a ratio of totals over prompts, so every interval is the
95 % bootstrap over prompts of `intervals.bootstrap`, paired wherever two settings are compared. Seeds of a setting are
pooled: the prompt is what is drawn. What was chosen on the same prompts that it is measured on looks better than it is;
`sweep_held_out` says how much, and `sweep_close` judges all rivals of the best one at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from specdec_lib import catalog
from specdec_lib.analysis.sweep_close import close_to
from specdec_lib.analysis.sweep_measures import MEASURES, SPEED, TOKENS
from specdec_lib.intervals import bootstrap
from specdec_lib.sweep.dataset import PARAMETER, read_dataset
from specdec_lib.types import Refusal

Interval = list[float] | None
Question = tuple[str, str]                         # file and question_id of a prompt
AXES = ("target", "dtype", "temperature", "max_new_tokens")       # settings besides the method's own; seeds are pooled


@dataclass(frozen=True)
class SweptSetting:
    """One setting with its totals by prompt, all seeds together."""

    label: str
    method: str
    parameters: Mapping[str, Any]
    totals: Mapping[Question, Mapping[str, float]]
    lossy: bool = False                            # by its card: it may write another text than plain decoding


@dataclass(frozen=True)
class SweepRun:
    """A finished sweep."""

    summary: dict
    rows: tuple[dict[str, Any], ...]

    @cached_property
    def settings(self) -> dict[str, SweptSetting]:
        """Every setting by its label, in the grid's order."""
        varied = [axis for axis in AXES if len({row[axis] for row in self.rows}) > 1]
        found: dict[str, SweptSetting] = {}
        for row in self.rows:
            label = ", ".join([row["spec"], *(f"{axis} {row[axis]}" for axis in varied)])
            one = found.setdefault(label, SweptSetting(label, row["method"], {
                **{name.removeprefix(PARAMETER): value for name, value in row.items()
                   if name.startswith(PARAMETER) and value is not None}, **{axis: row[axis] for axis in varied}}, {},
                is_lossy(row["spec"])))
            into: Any = one.totals
            sums = into.setdefault((row["prompts"], row["question_id"]), Counter())
            sums.update({name: value for name, value in row.items() if isinstance(value, int | float)})
            sums["scored"] += row.get("score") is not None
        return found

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(one.method for one in self.settings.values()))

    @cached_property
    def questions(self) -> list[Question]:
        """The prompts that every setting has."""
        first, *others = self.settings.values()
        return [question for question in first.totals if all(question in one.totals for one in others)]

    @property
    def measures(self) -> list[str]:
        """Measures that these rows have; a ratio that is 0 over 0 for every setting is none."""
        known = set(self.rows[0]) | {"scored"}
        return [name for name, one in MEASURES.items() if set(one.columns) <= known
                and any(self.value(label, name) is not None for label in self.settings)]

    @property
    def first_measure(self) -> str:
        """What settings are compared by: speed where the sweep was timed, else tokens per forward."""
        return next(name for name in (SPEED, TOKENS) if name in self.measures)

    def parameters(self, method: str) -> dict[str, list]:
        """The parameters of a method that have several values, with these in order."""
        some = [one.parameters for one in self.settings.values() if one.method == method]
        values = {name: distinct_values(one.get(name) for one in some) for name in dict.fromkeys(
            name for one in some for name in one)}
        return {name: known for name, known in values.items() if len(known) > 1}

    def numbers(self, labels: Iterable[str], measure: str, questions: Sequence[Question] | None = None) -> np.ndarray:
        """Totals [prompts, columns] of the measure, summed over these settings."""
        chosen = self.questions if questions is None else questions
        columns = MEASURES[measure].columns
        return np.array([[sum(self.settings[label].totals[question][name] for label in labels) for name in columns]
                         for question in chosen], float).reshape(len(chosen), len(columns))

    def value(self, label: str, measure: str) -> float | None:
        """A setting's measure over all prompts; None where it is undefined."""
        return ratio_of(self.numbers([label], measure).sum(0), measure)

    def interval(self, label: str, measure: str) -> Interval:
        return interval_of(measure, self.numbers([label], measure))


@cache
def is_lossy(spec: str) -> bool:
    """Whether the card of a method says so; not of a method that this package does not have (any more)."""
    try:
        return not catalog.card_of(catalog.method_spec(spec)).lossless
    except Refusal:
        return False


def load_sweep(folder: str | Path) -> SweepRun:
    """The finished sweep in a folder; Refusal where there is none."""
    summary, rows = read_dataset(folder)
    run = SweepRun(summary, tuple(rows))
    if not run.questions:
        raise Refusal(f"the settings of the sweep in {folder} have no prompt in common")
    return run


def distinct_values(values: Iterable[Any]) -> list:
    """The values without None, numbers by size, others as they come."""
    known = list(dict.fromkeys(value for value in values if value is not None))
    return sorted(known) if all(isinstance(value, int | float) for value in known) else known


def ratio_of(totals: np.ndarray, measure: str) -> float | None:
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(MEASURES[measure].ratio(totals))
    return value if np.isfinite(value) else None


def interval_of(measure: str, one: np.ndarray, other: np.ndarray | None = None) -> Interval:
    """The interval of a measure, or of how many times as large it is on the side `other`."""
    ratio = MEASURES[measure].ratio
    if other is None:
        return bootstrap([one.tolist()], ratio)
    return bootstrap([one.tolist(), other.tolist()], lambda a, b: ratio(b) / ratio(a))


class BestSetting(NamedTuple):
    """The best setting of a sweep, and what lies close to it."""

    label: str
    value: float
    interval: Interval
    second: str | None                             # the best of the others
    lead: float | None                             # how many times as good as it, at least 1; None where one is 0
    lead_interval: Interval
    not_told_apart: tuple[str, ...]                # settings that these prompts do not separate from the best


def ranked(run: SweepRun, measure: str, labels: Iterable[str] | None = None) -> list[str]:
    """Settings with the measure, the best first."""
    values = {label: run.value(label, measure) for label in (run.settings if labels is None else labels)}
    known = {label: value for label, value in values.items() if value is not None}
    return sorted(known, key=lambda label: known[label], reverse=MEASURES[measure].more_is_better)


def best_setting(run: SweepRun, measure: str, labels: Iterable[str] | None = None, clock: float = 1.0
                 ) -> BestSetting | None:
    """The best of these settings with its interval; None where none has the measure.

    A lead below `clock`, the factor between cells of equal work, tells nothing apart, whatever its interval.
    """
    order = ranked(run, measure, labels)
    if not order:
        return None
    best, others = order[0], order[1:]
    value = run.value(best, measure)
    assert value is not None                       # `ranked` leaves the others out
    leads = {label: lead_over(run, measure, best, label) for label in others}
    near = close_to(run.numbers([best], measure), {label: run.numbers([label], measure) for label in others},
                    MEASURES[measure].ratio, MEASURES[measure].more_is_better)
    close = tuple(label for label, (lead, span) in leads.items() if label in near or not (
        surely_better(run, measure, best, label) if lead is None else span and span[0] > 1 and lead > clock))
    second = others[0] if others else None
    return BestSetting(best, value, run.interval(best, measure), second, *(leads[second] if second else (None, None)),
                       close)


def lead_over(run: SweepRun, measure: str, best: str, other: str) -> tuple[float | None, Interval]:
    """How many times as good `best` is as `other`, with the paired interval."""
    return times_as_good(measure, run.numbers([other], measure), run.numbers([best], measure))


def surely_better(run: SweepRun, measure: str, best: str, other: str) -> bool:
    """Whether the paired interval of the difference says so: for measures of which one is 0, which have no ratio."""
    ratio, sign = MEASURES[measure].ratio, 1 if MEASURES[measure].more_is_better else -1
    span = bootstrap([run.numbers([label], measure).tolist() for label in (other, best)],
                     lambda one, two: sign * (ratio(two) - ratio(one)))
    return span is not None and span[0] > 0


def times_as_good(measure: str, one: np.ndarray, other: np.ndarray) -> tuple[float | None, Interval]:
    """How many times as good the totals of `other` are as those of `one`: above 1 is better, whatever the measure.

    None where only one of the two measures is 0.
    """
    if not MEASURES[measure].more_is_better:
        one, other = other, one
    below, above = ratio_of(one.sum(0), measure), ratio_of(other.sum(0), measure)
    if below == above == 0:
        return 1.0, None
    return (None, None) if not below or above is None else (above / below, interval_of(measure, one, other))


class Sensitivity(NamedTuple):
    """What one parameter changes, the others averaged over."""

    parameter: str
    best: Any
    worst: Any
    effect: float | None                           # times that the best value is as good as the worst; None: one is 0
    interval: Interval                             # of that pair of values, which was chosen on these prompts
    values: dict[Any, float]                       # value -> measure


def sensitivities(run: SweepRun, method: str, measure: str) -> list[Sensitivity]:
    """The parameters of a method by effect, the largest first, before them those whose effect has no number.

    A value's measure is that of the totals over all settings with it whose other parameters occur with every value,
    so that like is compared with like.
    """
    found = []
    for name in run.parameters(method):
        groups = balanced_groups(run, method, name)
        totals = {value: run.numbers(labels, measure) for value, labels in groups.items()}
        numbers = {value: ratio_of(some.sum(0), measure) for value, some in totals.items()}
        known = {value: number for value, number in numbers.items() if number is not None}
        if len(known) < 2:
            continue
        order = sorted(known, key=lambda value: known[value], reverse=MEASURES[measure].more_is_better)
        effect, span = times_as_good(measure, totals[order[-1]], totals[order[0]])
        found.append(Sensitivity(name, order[0], order[-1], effect, span, known))
    return sorted(found, key=lambda one: -inf if one.effect is None else -one.effect)


def balanced_groups(run: SweepRun, method: str, parameter: str) -> dict[Any, list[str]]:
    """Value -> labels of settings, only of those whose other parameters occur with every value of this one."""
    by_rest: dict[tuple, dict[Any, str]] = {}
    values = run.parameters(method)[parameter]
    for label, one in run.settings.items():
        if one.method == method and parameter in one.parameters:
            rest = tuple(sorted((name, str(value)) for name, value in one.parameters.items() if name != parameter))
            by_rest.setdefault(rest, {})[one.parameters[parameter]] = label
    whole = [labels for labels in by_rest.values() if len(labels) == len(values)]
    return {value: [labels[value] for labels in whole] for value in values} if whole else {}


def parameter_plane(run: SweepRun, method: str, x: str, y: str, measure: str) -> tuple[list, list, list[list]]:
    """Values of two parameters, and the measure [y][x] of all settings with both; None where there is none."""
    xs, ys = (run.parameters(method)[name] for name in (x, y))

    def at(a: Any, b: Any) -> float | None:
        some = [label for label, one in run.settings.items() if one.method == method
                and (one.parameters.get(x), one.parameters.get(y)) == (a, b)]
        return ratio_of(run.numbers(some, measure).sum(0), measure) if some else None

    return xs, ys, [[at(a, b) for a in xs] for b in ys]


def largest_plane(run: SweepRun, method: str, measure: str, of: str = ""
                  ) -> tuple[tuple[str, str], list, list, list[list]] | None:
    """The plane of the two parameters with the largest effects on a measure, with their names; None without two.

    With `of` the plane holds that other measure; None where it is nowhere defined.
    """
    names = [one.parameter for one in sensitivities(run, method, measure)][:2]
    if len(names) < 2:
        return None
    xs, ys, values = parameter_plane(run, method, names[0], names[1], of or measure)
    return ((names[0], names[1]), xs, ys, values) if any(v is not None for row in values for v in row) else None


def pareto_front(run: SweepRun, x: str, y: str) -> list[str]:
    """Settings that no other one beats in one measure without losing in the other, from the best in `x` on."""
    signs = [1 if MEASURES[name].more_is_better else -1 for name in (x, y)]
    points: dict[str, tuple[float, float]] = {}
    for label in run.settings:
        one, two = run.value(label, x), run.value(label, y)
        if one is not None and two is not None:
            points[label] = (signs[0] * one, signs[1] * two)
    front = [label for label, point in points.items()
             if not any(other != point and all(a >= b for a, b in zip(other, point, strict=True))
                        for other in points.values())]
    return sorted(front, key=lambda label: points[label], reverse=True)
