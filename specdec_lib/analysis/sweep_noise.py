"""How far the times of a sweep's cells carry: settings that decode the same should take the same time."""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

from specdec_lib.analysis.sweep import AXES, SweepRun
from specdec_lib.analysis.sweep_measures import SPEED

COUNTS = ("tokens", "forwards", "drafted", "accepted")


class SameDecodes(NamedTuple):
    """Settings of one method that agree in every count on every prompt, the fastest first.

    Their speeds are over plain decoding.
    """

    labels: tuple[str, ...]
    speeds: tuple[float, ...]

    @property
    def spread(self) -> float:
        """The fastest over the slowest: what the machine's noise alone makes of equal work."""
        return self.speeds[0] / self.speeds[-1]


def same_decodes(run: SweepRun) -> list[SameDecodes]:
    """Groups of two and more settings that did the same work, the widest spread first; empty without times.

    Another method, target or dtype takes another time by right, whatever the counts.
    """
    if SPEED not in run.measures:
        return []

    def work(label: str) -> tuple:
        one = run.settings[label]
        return (one.method, *(one.parameters.get(axis) for axis in AXES),
                *(one.totals[question][name] for question in run.questions for name in COUNTS))

    found = []
    for _, group in groupby(sorted(run.settings, key=work), work):
        speeds = {label: speed for label in group if (speed := run.value(label, SPEED)) is not None}
        order = sorted(speeds, key=lambda label: -speeds[label])
        if len(order) > 1:
            found.append(SameDecodes(tuple(order), tuple(speeds[label] for label in order)))
    return sorted(found, key=lambda one: -one.spread)


def clock_factor(run: SweepRun, measure: str) -> float:
    """The widest factor between cells of equal work; 1 for what is counted, and where no two did the same."""
    found = same_decodes(run) if measure == SPEED else []
    return found[0].spread if found else 1.0


def noise_sentence(found: list[SameDecodes]) -> str:
    """What equal work says of the times: differences below that spread are no evidence, whatever their intervals."""
    if not found:
        return "No two settings did the same work in measured time, so nothing here says how far their times carry."
    widest, count = found[0], sum(len(one.labels) for one in found)
    fast, slow = (f"{widest.labels[at]} measured {widest.speeds[at]:.2f}" for at in (0, -1))
    return (f"{count} settings did the same work as another one: the same tokens, forwards and drafts on every prompt."
            f" Among them {fast} and {slow} times plain decoding. So the machine alone makes a factor of"
            f" {widest.spread:.2f} between cells, which intervals over prompts do not contain: a smaller difference of"
            " speed is no evidence. Settings that matter"
            " belong into one run of `specdec bench`, where methods take turns.")
