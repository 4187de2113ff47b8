"""A cost curve after more forwards: what the machine does now, where it differs from when the curve was measured.

A machine changes while it decodes: other load, its clock, its memory. Where further rows become cheap or dear, a node
budget of the old curve is the wrong one. The forwards of a decode are measurements as well, at the widths that occur.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from specdec_lib.cost.curves import CostCurve, interpolated, lower_quartile

LATEST = 2000                                      # forwards that count: of half a minute or so
WEIGHT = 15                                        # forwards of each width that the curve itself stands for


def refitted(curve: CostCurve, forwards: Sequence[tuple[int, float]], latest: int = LATEST,
             weight: int = WEIGHT) -> CostCurve:
    """The curve corrected by the last of these forwards, each its width in tokens and its seconds, oldest first.

    A forward belongs to the nearest width of the curve, the narrower one of two, and gives a ratio: its seconds over
    the curve's. The ratio of a width is the lower quartile, as in a measurement; `weight` forwards of the ratio at
    width 1 join it, so that few forwards change little. Widths without any take the ratios of those beside them. All
    contexts change alike. Without a forward of width 1 nothing is known of the machine's speed: the curve is returned.
    """
    ratios: dict[int, list[float]] = {}
    for width, seconds in forwards[-latest:]:
        ratios.setdefault(nearest(curve.widths, width), []).append(seconds / curve(width))
    if 0 not in ratios:
        return curve
    plain, places = lower_quartile(ratios[0]), sorted(ratios)
    joined = [(len(ratios[place]) * lower_quartile(ratios[place]) + weight * plain) / (len(ratios[place]) + weight)
              for place in places]
    factors = [interpolated(places, joined, min(place, places[-1])) for place in range(len(curve.widths))]
    return replace(curve, seconds=tuple(tuple(s * factor for s, factor in zip(row, factors, strict=True))
                                        for row in curve.seconds))


def nearest(widths: Sequence[int], width: int) -> int:
    """The place of the nearest of these rising widths, the narrower one of two."""
    right = min(bisect_left(widths, width), len(widths) - 1)
    return right - 1 if right and width - widths[right - 1] <= abs(widths[right] - width) else right
