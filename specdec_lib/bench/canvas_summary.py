"""The summary of a canvas run: per method the share of solved tasks, forwards, rows, time and identity, with intervals.

Intervals are 95 % bootstraps over tasks; there are none below five tasks. A lossless method is compared with its
reference and any other with the first method of the run, by the same tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from specdec_lib.bench.canvas_results import CanvasDecode
from specdec_lib.canvas.catalog import canvas_spec, reference_of
from specdec_lib.canvas.outcome import Corrections
from specdec_lib.intervals import bootstrap
from specdec_lib.specs import write_part

OF_A_FAMILY = ("tasks", "solved", "solved_ci", "forwards", "tokens_per_forward", "identical", "promised", "corrections")
Pair = tuple[float, float]                         # (part, whole) of a task


def method_entries(decodes: Sequence[CanvasDecode]) -> dict[str, dict]:
    """Method -> its numbers on all tasks, and by family under `by_family`."""
    groups: dict[str, list[CanvasDecode]] = {}
    for one in decodes:
        groups.setdefault(one.method, []).append(one)
    out = {}
    for method, own in groups.items():
        families = dict.fromkeys(one.family for one in own)
        base = groups[base_of(method, next(iter(groups)))]
        told = {family: entry(of(own, family), of(base, family)) for family in families}
        out[method] = {**entry(own, base), "by_family": {family: {name: told[family][name] for name in OF_A_FAMILY}
                                                          for family in families}}
    return out


def base_of(method: str, first: str) -> str:
    """What a method is compared with: a lossless one with its reference, any other with the run's first method."""
    reference = reference_of(canvas_spec(method))
    return first if reference is None else write_part(reference)


def of(decodes: Sequence[CanvasDecode], family: str) -> list[CanvasDecode]:
    return [one for one in decodes if one.family == family]


def entry(own: Sequence[CanvasDecode], base: Sequence[CanvasDecode]) -> dict:
    """The numbers of one method on these tasks; `base` is what it is compared with."""
    promised = [one for one in own if one.identical is not None]
    repaired = [one for one in promised if not one.identical]
    changes = Corrections(*(sum(column) for column in zip(*(one.corrections for one in own), strict=True)))
    known = [one for one in own if one.solved is not None]
    return {"tasks": len(own), **with_interval("solved", [(float(bool(one.solved)), 1.0) for one in known]),
            **with_interval("wrong_share", [(one.wrong, one.masks) for one in own if one.wrong is not None]),
            **with_interval("forwards", [(one.forwards, 1.0) for one in own]),
            **with_interval("tokens_per_forward", [(one.masks, one.forwards) for one in own]),
            **with_interval("rows_per_forward", [(one.rows, one.forwards) for one in own]),
            **with_interval("seconds", [(one.seconds, 1.0) for one in own]),
            **compared(own, base), "ties": sum(one.ties for one in own),
            "identical": sum(one.identical is True for one in own) if promised else None, "promised": len(promised),
            "identical_at_one_shape": sum(one.at_shape is True for one in repaired) if promised else None,
            "corrections": changes._asdict(), "quality": mean_quality(own)}


def with_interval(name: str, pairs: Sequence[Pair]) -> dict:
    """The ratio of totals under `name`, its interval under `name_ci`; None where there is no whole."""
    if not pairs:
        return {name: None, f"{name}_ci": None}
    part, whole = (sum(column) for column in zip(*pairs, strict=True))
    found = bootstrap([pairs], lambda totals: totals[:, 0] / totals[:, 1])
    return {name: rounded(part / whole) if whole else None, f"{name}_ci": interval(found)}


def compared(own: Sequence[CanvasDecode], base: Sequence[CanvasDecode]) -> dict:
    """Against `base` on the same tasks: forwards saved, time ratio, and the difference in solved tasks."""
    before = {one.task: one for one in base}
    pairs = [(before[one.task], one) for one in own if one.task in before]
    known = [(a, b) for a, b in pairs if a.solved is not None and b.solved is not None]
    time = bootstrap([[(a.seconds, b.seconds) for a, b in pairs]], lambda total: total[:, 0] / total[:, 1])
    gain = bootstrap([[(float(bool(b.solved)) - float(bool(a.solved)), 1.0) for a, b in known]],
                     lambda total: total[:, 0] / total[:, 1])
    whole, forwards = sum(b.seconds for _, b in pairs), sum(a.forwards for a, _ in pairs)
    more = sum(bool(b.solved) - bool(a.solved) for a, b in known)
    return {"times_as_fast": rounded(sum(a.seconds for a, _ in pairs) / whole) if whole else None,
            "times_as_fast_ci": interval(time),
            "forwards_saved": rounded(1 - sum(b.forwards for _, b in pairs) / forwards) if forwards else None,
            "solved_gain": rounded(more / len(known)) if known else None,
            "solved_gain_ci": interval(gain)}


def solved_difference(base: Sequence[CanvasDecode], own: Sequence[CanvasDecode]) -> tuple[float, list[float] | None]:
    """Share of solved tasks of `own` less that of `base`, on tasks that both have, with its paired interval."""
    told = compared(own, base)
    return told["solved_gain"], told["solved_gain_ci"]


def mean_quality(own: Sequence[CanvasDecode]) -> dict[str, float]:
    """Means of the world's own numbers over the tasks that have them."""
    names = dict.fromkeys(name for one in own for name in one.quality)
    return {name: rounded(float(np.mean([one.quality[name] for one in own if name in one.quality]))) for name in names}


def interval(found: Sequence[float] | None) -> list[float] | None:
    return None if found is None or not np.isfinite(found).all() else [rounded(value) for value in found]


def rounded(value: float) -> float:
    """Six significant digits."""
    return float(f"{value:.6g}")


def cost_ratios(costs: Mapping[int, float]) -> dict[str, float]:
    """Rows -> seconds of a forward of so many rows, in forwards of one row: what decides whether rows pay."""
    return {str(rows): rounded(seconds / costs[1]) for rows, seconds in costs.items()}


def summary_table(told: Mapping) -> str:
    """The summary for a terminal: one line per method."""
    head = ("method", "solved", "forwards", "tokens/forward", "rows/forward", "seconds", "identical")
    lines = [head] + [(name, *(shown(one[key]) for key in ("solved", "forwards", "tokens_per_forward",
                                                           "rows_per_forward", "seconds")),
                       "" if one["identical"] is None else f"{one['identical']} of {one['promised']}")
                      for name, one in told["methods"].items()]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = "\n".join("  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip()
                     for line in lines)
    costs = ", ".join(f"{rows}: {ratio:.2f}" for rows, ratio in told["row_cost"].items())
    return f"{rows}\ncost of a forward by its rows, in forwards of one row: {costs}"


def shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"
