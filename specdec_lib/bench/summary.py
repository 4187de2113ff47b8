"""From decodes to `summary.json`: every rate per method and family, intervals, gates and warnings.

Pure: reads no file and no clock. Peers have no rounds, so what needs rounds is missing from their entries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from statistics import fmean, median
from typing import Any

from specdec_lib import measure
from specdec_lib.bench.results import Decode
from specdec_lib.cost.curves import CostCurve
from specdec_lib.measure import Cost, Divergence

SCHEMA = 1
GATES = ("target_nll", "ar_overlap", "reference_score", "repeated_4grams")
BUSY = 0.10                                        # spread of plain decoding's repeats; above it times mean little


def method_summaries(decodes: Sequence[Decode], lossless: dict[str, bool], curve: CostCurve | None,
                     resumed: Collection[str] = ()) -> dict[str, dict]:
    """The `methods` of a summary: name -> measures, with the same of each family under `by_family`.

    The curve predicts nothing of methods whose verification resumes rows: it is a part of a forward.
    """
    named = _named(decodes, peer=False)
    prices = {name: None if name in resumed else curve for name in named}
    return {name: _with_families(lambda base, own, name=name: method_summary(base, own, lossless.get(name),
                                                                             prices[name]), named["ar"], own)
            for name, own in named.items()}


def peer_summaries(decodes: Sequence[Decode]) -> dict[str, dict]:
    """The `peers` of a summary: name -> what can be measured from outside."""
    return {name: _with_families(peer_summary, _named(decodes, peer=False)["ar"], own)
            for name, own in _named(decodes, peer=True).items()}


def rounded(told: Any) -> Any:
    """The same with every float rounded to seven digits, finer than its noise: runs are committed."""
    if isinstance(told, dict):
        return {name: rounded(value) for name, value in told.items()}
    if isinstance(told, list | tuple):
        return [rounded(value) for value in told]
    return float(f"{told:.7g}") if isinstance(told, float) else told


def method_summary(base: Sequence[Decode], own: Sequence[Decode], lossless: bool | None,
                   curve: CostCurve | None) -> dict:
    """All measures of one method against plain decoding, `base`, on the same prompts."""
    rows = [row for one in own for row in one.outcome.rows]
    return {"lossless": lossless,
            "tokens_per_target_forward": measure.tokens_per_target_forward(rows),
            "acceptance_rate": measure.acceptance_rate(rows),
            "accepted_per_draft_round": measure.accepted_per_draft_round(rows),
            "draft_round_share": measure.draft_round_share(rows), "width": measure.width(rows),
            "conditional_acceptance": measure.conditional_acceptance(rows), **speeds(base, own),
            **overlap_measures(rows),
            "expected_speedup": predicted_speedup(rows, [row for one in base for row in one.outcome.rows], curve),
            "time_share": measure.time_share(rows),
            **identical_prompts(base, own), "target_nll": measure.target_nll(rows),
            "not_best_per_100": measure.not_best_per_100(rows), **quality_measures(base, own)}


def peer_summary(base: Sequence[Decode], own: Sequence[Decode]) -> dict:
    """The measures of a peer."""
    forwards = sum(one.outcome.forwards for one in own)
    return {"tokens_per_target_forward": measure.share(sum(one.outcome.bought for one in own), forwards),
            **speeds(base, own), **identical_prompts(base, own), **quality_measures(base, own)}


def speeds(base: Sequence[Decode], own: Sequence[Decode]) -> dict:
    plain, mine = paired(base, own, lambda one: one.cost)
    whole = paired(base, own, lambda one: one.cost_end_to_end)
    return {"speedup": measure.speedup(plain, mine), "speedup_ci": measure.speedup_interval(plain, mine),
            "speedup_end_to_end": measure.speedup(*whole), "tokens_per_second": measure.tokens_per_second(mine)}


def paired(base: Sequence[Decode], own: Sequence[Decode],
           cost: Callable[[Decode], Cost] = lambda one: one.cost) -> tuple[list[Cost], list[Cost]]:
    """Cost per prompt, all its turns and repeats together, of the prompts that both have, in the same order."""
    one, two = _per_prompt(base, cost), _per_prompt(own, cost)
    shared = [name for name in one if name in two]
    return [one[name] for name in shared], [two[name] for name in shared]


def speed_ratio(decodes: Sequence[Decode], base: str, other: str) -> tuple[float | None, list[float] | None]:
    """How many times as fast `other` is as `base`, methods or peers, with the interval of *their* ratio."""
    pair = paired([d for d in decodes if d.method == base], [d for d in decodes if d.method == other])
    return measure.speedup(*pair), measure.speedup_interval(*pair)


def overlap_measures(rows: Sequence[measure.Row]) -> dict:
    """How the time of a method that drafts ahead was measured, and what it drafted in vain; nothing for the others."""
    if all(row.ahead is None for row in rows):
        return {}
    return {"time": "in parallel" if in_parallel(rows) else "in turn", "discarded_share": measure.discarded_share(rows)}


def in_parallel(rows: Sequence[measure.Row]) -> bool:
    """Whether drafting and verifying overlapped while these rounds were measured."""
    return any(row.wall is not None for row in rows)


def predicted_speedup(rows: Sequence[measure.Row], plain: Sequence[measure.Row], curve: CostCurve | None
                      ) -> float | None:
    """Predicted from what the curve says of a forward of the mean width, in forwards of one row.

    All else is measured in this run: the seconds of such a forward, of drafting and of overhead. So a machine that is
    slower than when its curve was measured is slower in both. None where drafting and verifying overlapped: their
    seconds do not add up.
    """
    tokens, width = measure.tokens_per_target_forward(rows), measure.width(rows)
    if in_parallel(rows) or curve is None or tokens is None or width is None or not plain:
        return None
    forward = fmean(row.target for row in plain)
    other = fmean(row.what + row.when + row.how for row in rows)
    whole = forward + fmean(row.what + row.when + row.how for row in plain)
    return tokens * whole / (forward * curve(width) / curve(1) + other)


def identical_prompts(base: Sequence[Decode], own: Sequence[Decode]) -> dict:
    """Prompts whose ids equal plain decoding's in every turn and repeat; margins of the others' first difference."""
    firsts = divergences(base, own)
    return {"identical_prompts": sum(first is None for first in firsts.values()), "prompts": len(firsts),
            "first_divergence_margins": [first.margin for _, first in filter(None, firsts.values())]}


def divergences(base: Sequence[Decode], own: Sequence[Decode]
                ) -> dict[int | str, tuple[int, Divergence] | None]:
    """Per prompt the turn and position of the first difference from plain decoding, or None."""
    plain = {(d.question_id, d.turn, d.repeat): d.outcome for d in base}
    out: dict[int | str, tuple[int, Divergence] | None] = {}
    for one in sorted(own, key=lambda d: (d.repeat, d.turn)):
        at = plain[one.question_id, one.turn, one.repeat]
        margins = [m for row in at.rows for m in row.margins]
        first = measure.divergence(at.tokens, one.outcome.tokens, margins)
        if out.get(one.question_id) is None:
            out[one.question_id] = None if first is None else (one.turn, first)
    return out


def quality_measures(base: Sequence[Decode], own: Sequence[Decode]) -> dict:
    """The gates of methods that are not lossless, all turns and repeats of a prompt together.

    `quality_ci` holds the 95 % bootstrap over prompts of each; no interval below five prompts, nor where no prompt
    has that measure (a peer has no likelihoods, a prompt may have no reference). `quality_change` is each less plain
    decoding's, and `quality_change_ci` the paired bootstrap of that difference.
    """
    mine, moved = _quality_parts(base, own), quality_changes(base, base, own)
    whole = {name: measure.share(*map(sum, zip(*of_prompts.values(), strict=True))) if of_prompts else None
             for name, of_prompts in mine.items()}
    return {**{name: whole[name] for name in GATES if name != "target_nll"},
            "quality_ci": {name: measure.share_interval(list(mine[name].values())) for name in GATES},
            "quality_change": {name: value for name, (value, _) in moved.items()},
            "quality_change_ci": {name: interval for name, (_, interval) in moved.items()}}


def quality_changes(plain: Sequence[Decode], base: Sequence[Decode],
                    own: Sequence[Decode]) -> dict[str, tuple[float | None, list[float] | None]]:
    """Gate -> how much `own` exceeds `base`, with the paired interval; overlaps of both are with `plain`.

    Prompts that both have are compared, each on its own (a draw of the bootstrap is a prompt of both).
    """
    one, two = _quality_parts(plain, base), _quality_parts(plain, own)
    out = {}
    for name in GATES:
        shared = [prompt for prompt in one[name] if prompt in two[name]]
        sides = [one[name][prompt] for prompt in shared], [two[name][prompt] for prompt in shared]
        out[name] = measure.change(*sides), measure.change_interval(*sides)
    return out


def quality_change(decodes: Sequence[Decode], base: str, other: str) -> dict[str,
                                                                             tuple[float | None, list[float] | None]]:
    """The four gates of `other` less those of `base`, methods or peers, each with its paired interval."""
    return quality_changes(*([d for d in decodes if d.method == name] for name in ("ar", base, other)))


def _quality_parts(plain: Sequence[Decode], own: Sequence[Decode]) -> dict[str, dict[int | str, tuple[float, float]]]:
    """Gate -> prompt -> (part, whole), of the prompts that have it."""
    said = {(d.question_id, d.turn, d.repeat): d.outcome.tokens for d in plain}
    overlap = _means_of_prompts(own, lambda d: measure.rouge_l(said[d.question_id, d.turn, d.repeat],
                                                               d.outcome.tokens))
    score = _means_of_prompts(own, lambda d: d.score)
    seen = [d for d in own if d.outcome.rows]
    return {"target_nll": _totals_of_prompts(seen, lambda d: (sum(r.nll for r in d.outcome.rows),
                                                              sum(r.emitted for r in d.outcome.rows))),
            "ar_overlap": {prompt: (mean, 1.0) for prompt, mean in overlap.items()},
            "reference_score": {prompt: (mean, 1.0) for prompt, mean in score.items()},
            "repeated_4grams": _totals_of_prompts(own, lambda d: measure.counted_4grams(d.outcome.tokens))}


def spread_of_repeats(decodes: Sequence[Decode]) -> float | None:
    """Median over prompts of the spread, (largest - smallest) / median, of plain decoding's repeats; None with one."""
    times: dict[tuple, list[float]] = {}
    for one in decodes:
        if one.method == "ar" and one.outcome.bought:
            times.setdefault((one.question_id, one.turn), []).append(one.outcome.seconds / one.outcome.bought)
    spreads = [(max(t) - min(t)) / median(t) for t in times.values() if len(t) > 1]
    return median(spreads) if spreads else None


def spread_within_decode(decodes: Sequence[Decode]) -> float | None:
    """How unevenly plain decoding's forwards ran: the largest of three shares of their median.

    The middle half of the forwards within a decode, the middle half of the decodes' medians, and the excess of the
    mean over all forwards, which a few long waits raise. Longer contexts alone cause a few hundredths.
    """
    own = [[row.target for row in one.outcome.rows] for one in decodes if one.method == "ar"]
    own = [times for times in own if len(times) >= 8 and median(times)]
    if not own:
        return None
    pooled = [time for times in own for time in times]
    return max(median(middle_half(times) for times in own), middle_half([median(times) for times in own]),
               sum(pooled) / len(pooled) / median(pooled) - 1)


def middle_half(values: Sequence[float]) -> float:
    """Third quartile less first quartile, over the median."""
    ordered = sorted(values)
    return (ordered[3 * len(ordered) // 4] - ordered[len(ordered) // 4]) / median(ordered)


def warnings(decodes: Sequence[Decode]) -> list[str]:
    """Warnings about this run, one sentence each."""
    out = []
    between, within = spread_of_repeats(decodes), spread_within_decode(decodes)
    if between is not None and between > BUSY:
        out.append(f"The machine was busy: repeats of plain decoding differ by {between:.0%}.")
    elif within is not None and within > 2 * BUSY:
        out.append(f"The machine was busy: the times of plain decoding's forwards spread by {within:.0%} of their"
                   " median, so the speeds here are uncertain by more than their intervals say.")
    for name, own in _named(decodes, peer=False).items():
        rows = [row for one in own for row in one.outcome.rows]
        if sum(row.drafted for row in rows) and not sum(row.accepted for row in rows):
            out.append(f"{name} had no drafted token accepted on any prompt.")
    return out


def _named(decodes: Sequence[Decode], peer: bool) -> dict[str, list[Decode]]:
    out: dict[str, list[Decode]] = {}
    for one in decodes:
        if one.peer == peer:
            out.setdefault(one.method, []).append(one)
    return out


def _with_families(measures: Callable[..., dict], base: Sequence[Decode], own: Sequence[Decode]) -> dict:
    families = dict.fromkeys(one.family for one in own)
    inside = {f: measures([d for d in base if d.family == f], [d for d in own if d.family == f]) for f in families}
    return measures(base, own) | {"by_family": inside}


def _per_prompt(decodes: Sequence[Decode], cost: Callable[[Decode], Cost]) -> dict[int | str, Cost]:
    return {name: Cost(*total) for name, total in _totals_of_prompts(decodes, cost).items()}


def _totals_of_prompts(decodes: Sequence[Decode], pair: Callable[[Decode], tuple]) -> dict[int | str, tuple]:
    """Both numbers summed over the decodes of each prompt, in the order in which prompts first come."""
    out: dict[int | str, tuple[float, float]] = {}
    for one in decodes:
        (first, second), so_far = pair(one), out.get(one.question_id, (0, 0.0))
        out[one.question_id] = so_far[0] + first, so_far[1] + second
    return out


def _means_of_prompts(decodes: Sequence[Decode], value: Callable[[Decode], float | None]) -> dict[int | str, float]:
    """The mean over the decodes of each prompt that have a value."""
    means: dict[int | str, list[float]] = {}
    for one in decodes:
        found = value(one)
        if found is not None:
            means.setdefault(one.question_id, []).append(found)
    return {prompt: sum(v) / len(v) for prompt, v in means.items()}
