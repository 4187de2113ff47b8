"""Numbers in words: every sentence about data takes its direction from here, so that other data give other sentences.

A ratio with an interval says something about 1 only where the whole interval lies on one side. Numbers without an
interval (counts, predictions) are compared as they are shown: equal after rounding means neither more nor less.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Interval = Sequence[float] | None


def verdict(interval: Interval, above: str = "faster", below: str = "slower", between: str = "not told apart",
            line: float = 1.0) -> str:
    """The word that a 95 % interval supports: `above` or `below` the line as a whole, or `between`."""
    if interval is None:
        return "no interval: fewer than five prompts"
    return above if interval[0] > line else below if interval[1] < line else between


def over(name: str, ratio: float | None, interval: Interval, base: str, above: str = "faster", below: str = "slower",
         sure: str = "surely ") -> str:
    """`x is surely faster than y: 1.04 times (1.02 to 1.07)`, or that it is not told apart from it.

    `sure` stands before a verdict that the interval supports; empty where the interval is known to be too narrow.
    """
    if ratio is None:
        return f"{name} and {base} have no ratio here"
    if interval is None:
        return f"no interval says whether {name} is {above} or {below} than {base}: {ratio:.2f} times"
    said = verdict(interval, f"{sure}{above} than", f"{sure}{below} than", "not told apart from")
    return f"{name} is {said} {base}: {ratio:.{digits_beside_one(interval)}f} times ({ends(interval)})"


def ends(interval: Sequence[float]) -> str:
    """`0.90 to 0.98`, with more digits where an interval that does not hold 1 would be shown as if it ended there."""
    low, high = interval
    digits = digits_beside_one(interval)
    return f"{low:z.{digits}f} to {high:z.{digits}f}"


def digits_beside_one(interval: Interval) -> int:
    """Digits of an interval and of the ratio inside it: two, or as many as show that an end beside 1 is not 1."""
    if interval is None:
        return 2
    low, high = interval
    beside = high if high < 1 else low
    return next((digits for digits in (2, 3, 4) if low <= 1 <= high or float(f"{beside:.{digits}f}") != 1), 5)


def placed(interval: Interval, value: float) -> str:
    """Where an interval lies: `contains`, `lies above` or `lies below` a value."""
    return "does not exist beside" if interval is None else verdict(interval, "lies above", "lies below", "contains",
                                                                     value)


def than(name: str, value: float | None, base: str, other: float | None, above: str = "faster", below: str = "slower",
         digits: int = 2, verb: str = "is") -> str:
    """`x is slower than y: 0.98 against 1.02`; `neither faster nor slower than` where both are shown alike."""
    if value is None or other is None:
        return f"{name} cannot be compared with {base}: {number(value, digits)} against {number(other, digits)}"
    one, two = (float(number(each, digits)) for each in (value, other))
    word = f"{above} than" if one > two else f"{below} than" if one < two else f"neither {above} nor {below} than"
    return f"{name} {verb} {word} {base}: {value:.{digits}f} against {other:.{digits}f}"


def how_many(flags: Iterable[object]) -> str:
    """`all 6`, `none of 6` or `4 of 6`: how many are true; `none of 0` of nothing."""
    some = [bool(flag) for flag in flags]
    if not any(some):
        return f"none of {len(some)}"
    return f"all {len(some)}" if all(some) else f"{sum(some)} of {len(some)}"


def percent(part: float, whole: float) -> str:
    """`33 %` of the whole, negative for a loss; a dash where there is no whole to take a share of."""
    return f"{part / whole:.0%}".replace("%", " %") if whole > 0 else "–"


def trend(values: Sequence[float | None]) -> str:
    """`rises`, `falls`, `stays the same`, or `rises and falls`; missing values are left out."""
    known = [value for value in values if value is not None]
    up = any(a < b for a, b in zip(known, known[1:], strict=False))
    down = any(a > b for a, b in zip(known, known[1:], strict=False))
    return "rises and falls" if up and down else "rises" if up else "falls" if down else "stays the same"


def answer(holds: object) -> str:
    """Whether a statement holds for the data at hand; None where they do not say."""
    return "no data here say whether" if holds is None else "holds here" if holds else "does not hold here"


def number(value: float | None, digits: int = 2) -> str:
    """The value rounded, a zero without a sign; a dash where there is none."""
    return "–" if value is None else f"{value:z.{digits}f}"
