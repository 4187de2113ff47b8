"""Learning curves: tokens per target forward over the tokens seen, on held-out answers and on other people's prompts.

A curve comes from the log of one fit, whose learning rate falls as a cosine. Points in the middle of a run therefore
lie below what a run of that length would end with, and the curve says nothing about longer runs. A `PowerLaw` is fitted
to the ends of runs of different lengths.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot, inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from specdec_lib.analysis.guess_calibration import draft_deviation, guesses_by_depth, told_apart
from specdec_lib.analysis.shares import Z
from specdec_lib.analysis.wording import than
from specdec_lib.files import write_text
from specdec_lib.types import Refusal

SHIPPED = Path(__file__).parents[2] / "data" / "results" / "learning-curves.json"
TAU = "tokens_per_target_forward"
STARTS = ("from random weights", "as it starts")


class Look(NamedTuple):
    """One measurement: tokens seen so far, earlier fits included, and tokens per target forward of both kinds."""

    tokens: int
    held_out: float                                # answers of the kinds trained on
    watched: float                                 # answers to other people's prompts, never trained on


@dataclass(frozen=True)
class LearningCurve:
    """The looks of one fit in order, and its provenance."""

    name: str
    looks: tuple[Look, ...]
    made: Mapping[str, Any]

    @property
    def gain(self) -> Look:
        """What the fit added from its first look to its last."""
        first, last = self.looks[0], self.looks[-1]
        return Look(last.tokens - first.tokens, last.held_out - first.held_out, last.watched - first.watched)

    def points(self, kind: str) -> list[tuple[float, float]]:
        """(million tokens seen, tokens per target forward) of `held_out` or `watched`."""
        return [(look.tokens / 1e6, getattr(look, kind)) for look in self.looks]


class PowerLaw(NamedTuple):
    """tokens per target forward = ceiling - scale * n ** -power after n million tokens of training."""

    ceiling: float
    scale: float
    power: float

    def at(self, tokens: float) -> float:
        """Tokens per target forward after so many million tokens."""
        return self.ceiling - self.scale * tokens ** -self.power

    def tokens_for(self, goal: float) -> float:
        """The million tokens after which a goal is reached; infinite where the law never rises to it."""
        never = goal >= self.ceiling or self.scale <= 0
        return inf if never else (self.scale / (self.ceiling - goal)) ** (1 / self.power)


def fit_power_law(ends: Sequence[tuple[float, float]], most: float = 6.0) -> PowerLaw:
    """The law nearest to the ends of runs, (million tokens, tokens per target forward), by least squares.

    For a given power, ceiling and scale follow from a straight line, so powers are tried one by one. `most` is what a
    drafter reaches at best: its depth and the target's own token. Raises ValueError for fewer than three ends, which
    would not determine the law.
    """
    if len(ends) < 3:
        raise ValueError(f"a power law has three numbers and needs as many ends of runs, got {len(ends)}")
    tokens, values = np.array(ends, dtype=float).T
    laws = [line_for(power, tokens ** -power, values, most) for power in np.geomspace(0.02, 3, 2000)]
    return min(laws, key=lambda law: float(((law.ceiling - law.scale * tokens ** -law.power - values) ** 2).sum()))


def line_for(power: float, x: np.ndarray, values: np.ndarray, most: float) -> PowerLaw:
    """The best ceiling, `most` at the highest, and scale for this power, where x is the tokens ** -power."""
    off = x - x.mean()
    slope = float(off @ values / (off @ off)) if np.ptp(x) else 0.0
    ceiling = float(values.mean() - slope * x.mean())
    if ceiling > most:
        slope, ceiling = float(x @ (values - most) / (x @ x)), most
    return PowerLaw(ceiling, -slope, float(power))


def power_laws(ends: Sequence[tuple[float, float]]) -> tuple[PowerLaw, tuple[PowerLaw, ...]]:
    """The law of all ends, and those that leave out one end each (none of three): how far it depends on one run."""
    parts = ([*ends[:i], *ends[i + 1:]] for i in range(len(ends) if len(ends) > 3 else 0))
    return fit_power_law(ends), tuple(map(fit_power_law, parts))


def longest_predicted(ends: Sequence[tuple[float, float]], without: Sequence[PowerLaw],
                      near: float) -> tuple[str, bool | None]:
    """Whether the law of all but the longest run, the last, says where that one ends; None where there is no law."""
    if not without:
        return "too few fits to say where the longest would end", None
    (tokens, value), missed = ends[-1], without[-1].at(ends[-1][0]) - ends[-1][1]
    return (f"the law of the others predicts the longest of these {len(ends)} fits, after {tokens:.2g} million tokens, "
            f"to {near:g}: {value + missed:.2f} predicted, {value:.2f} measured", abs(missed) <= near)


def late_gain(points: Sequence[tuple[float, float]], share: float = 1 / 3) -> float:
    """What a curve gained over the last `share` of its tokens; straight lines join its looks."""
    tokens, values = zip(*points, strict=True)
    begin = tokens[0] + (1 - share) * (tokens[-1] - tokens[0])
    return float(values[-1] - np.interp(begin, tokens, values))


def tau_difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """How many tokens per forward one measurement has more than another; 0 where their 95 % interval holds 0.

    The interval is over rounds; prompts differ too, so it is the least that a difference has to exceed.
    """
    error = hypot(*(draft_deviation(told["conditional_acceptance"], told["rounds"]) for told in (one, other)))
    difference = one[TAU] - other[TAU]
    return difference if abs(difference) > Z * error else 0.0


def trained_text(name: str, trained: Mapping[str, Any], base: str, other: Mapping[str, Any]) -> str:
    """Whether a trained drafter has more tokens per forward than another, in words, or shows no difference."""
    one, two = trained[TAU], other[TAU]
    if not tau_difference(trained, other):
        return f"{name}, trained, and {base} show no difference: {one:.2f} against {two:.2f}"
    return than(f"{name}, trained,", one, base, two, "better", "worse")


def trained_texts(cards: Mapping[str, Mapping[str, Any]], parts: Mapping[str, tuple[str, str]]) -> list[str]:
    """For each part of a drafter that its card measured untrained: trained against the better of its two starts."""
    said = []
    for label, (name, part) in parts.items():
        told = {when: stage[part] for when, stage in cards[name]["measured"].items() if part in stage}
        if {*STARTS, "teacher-forced"} <= set(told):
            base = max(STARTS, key=lambda when, told=told: told[when][TAU])
            said.append(trained_text(label, told["teacher-forced"], f"untrained ({base})", told[base]))
    return said


def depth_texts(before: Mapping[str, Any], after: Mapping[str, Any], words: tuple[str, str], first: int = 1
                ) -> list[str]:
    """For each depth from `first` on the acceptance rates of two measurements, and whether they are told apart."""
    pairs = zip(*(guesses_by_depth(told["conditional_acceptance"], told["rounds"]) for told in (before, after)),
                strict=True)
    return [f"depth {depth}: {one.share:.2f} {words[0]} ({one.count:,} drafts), {other.share:.2f} {words[1]} "
            f"({other.count:,}), {'told apart' if told_apart(one, other) else 'not told apart'}"
            for depth, (one, other) in enumerate(pairs, 1) if depth >= first and one.count and other.count]


def text_needed(goal: float, law: PowerLaw, without: Sequence[PowerLaw] = ()) -> str:
    """The predicted tokens for a goal in words, and their range over the laws that leave out one end each."""
    if law.scale <= 0:
        return f"no text is predicted for {goal:.2f} tokens per forward: the fits do not rise with their text"
    found = sorted(one.tokens_for(goal) for one in without)
    span = f"; leaving out one fit changes that to between {amount(found[0])} and {amount(found[-1])}" if found else ""
    return f"predicted for {goal:.2f} tokens per forward: {amount(law.tokens_for(goal))}{span}"


def amount(millions: float) -> str:
    """So many million tokens in words, to two digits; never where they are infinite."""
    if millions >= 1e9:
        return "never" if millions == inf else "over a quadrillion tokens"
    size, unit = next((size, unit) for size, unit in ((1e6, "trillion"), (1e3, "billion"), (0, "million"))
                      if millions >= size)
    return f"{float(f'{millions / (size or 1):.2g}'):g} {unit} tokens"


def looks_of(log: Sequence[Mapping[str, Any]], name: str, before: int = 0) -> tuple[Look, ...]:
    """The looks in the log of a fit that watched answers; `before` are the tokens that its checkpoint had seen.

    Raises Refusal for a log without them: `--watch` was not given.
    """
    found = tuple(Look(before + line["tokens"], line["held_out"][name][TAU], line["watched"][name][TAU])
                  for line in log if name in line.get("held_out", {}) and name in line.get("watched", {}))
    if len(found) < 2:
        raise Refusal(f"this log of {name} watched no answers: train with --watch FILE")
    return found


def curves_of_shelf(shelf: Path, names: Iterable[str], kind: str = "watched") -> dict[str, list[tuple[float, float]]]:
    """(million tokens of the fit, tokens per target forward) from the kept log of each checkpoint, by drafter or part.

    Checkpoints whose fit kept no log, or measured no answers of this kind, are left out.
    """
    from specdec_lib.training.fit import KEPT_LOG, read_log

    curves: dict[str, list[tuple[float, float]]] = {}
    for name in names:
        path = shelf / name / KEPT_LOG
        for line in read_log(path) if path.is_file() else ():
            for part, told in line.get(kind, {}).items():
                label = part if part == name else f"{name}, {part}"
                curves.setdefault(label, []).append((line["tokens"] / 1e6, told[TAU]))
    return curves


def keep_curves(logs: Mapping[str, Sequence[Mapping[str, Any]]], made: Mapping[str, Mapping[str, Any]], out: Path,
                watched: Mapping[str, Any]) -> None:
    """Writes the curves of these logs as JSON; `made` is each fit's provenance, with `tokens_before` if it went on.

    It also names the `drafter` where the fit itself has another name.
    """
    runs = {name: {"made": dict(made[name]),
                   "looks": looks_of(log, made[name].get("drafter", name), made[name].get("tokens_before", 0))}
            for name, log in logs.items()}
    write_text(out, json.dumps({"watched": dict(watched), "runs": runs}, indent=1, ensure_ascii=False) + "\n")


def load_curves(path: Path = SHIPPED) -> tuple[LearningCurve, ...]:
    """The curves of a file that `keep_curves` wrote; Refusal for another one."""
    try:
        runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
        return tuple(LearningCurve(name, tuple(Look(*look) for look in run["looks"]), run["made"])
                     for name, run in runs.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refusal(f"{path} holds no learning curves ({type(error).__name__})") from None
