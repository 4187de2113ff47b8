"""A finished run and its repetition: method by method, whether speed-up and answers came out again.

Only the turns that both runs have are compared, so a repetition may take fewer prompts. It is read from the decodes
alone, since some kept runs have no rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specdec_lib import measure
from specdec_lib.analysis.bench_report import Report
from specdec_lib.analysis.run_comparison import PLACE, ComparedRun, differences
from specdec_lib.bench.results import Decode
from specdec_lib.bench.summary import paired
from specdec_lib.intervals import bootstrap
from specdec_lib.measure import Cost

Interval = Sequence[float] | None


@dataclass(frozen=True)
class MethodTwice:
    """One method in both runs, over the turns that both have; speed-ups are over each run's own plain decoding."""

    method: str
    per_forward: tuple[float | None, float | None]         # tokens per target forward: kept, here
    speedup: tuple[float | None, float | None]
    interval: tuple[Interval, Interval]
    ratio: float | None                            # the speed-up here over the kept one
    ratio_interval: Interval                       # paired bootstrap over prompts; None below five
    same: int                                      # turns with equal ids
    turns: int

    @property
    def agrees(self) -> bool | None:
        """Whether 1 lies in the interval of the ratio; None without one, and for plain decoding itself."""
        if self.ratio_interval is None or self.method == "ar":
            return None
        low, high = self.ratio_interval
        return low <= 1 <= high


def methods_twice(kept: Sequence[Decode], here: Sequence[Decode]) -> tuple[MethodTwice, ...]:
    """Every method and peer that both runs have, in the order of the kept one; empty where they share no turn."""
    keys = {key_of(one) for one in kept if one.method == "ar"} & {key_of(one) for one in here if one.method == "ar"}
    shared = [[one for one in run if key_of(one) in keys] for run in (kept, here)]
    names = [dict.fromkeys(one.method for one in side) for side in shared]
    return tuple(method_twice(shared[0], shared[1], name) for name in names[0] if name in names[1])


def method_twice(kept: Sequence[Decode], here: Sequence[Decode], name: str) -> MethodTwice:
    """One method of two runs with the same turns; prompts are paired by name, whatever a run's order was."""
    kept, here = (sorted(side, key=lambda one: str(one.question_id)) for side in (kept, here))
    own = [[one for one in side if one.method == name] for side in (kept, here)]
    costs = [paired([one for one in side if one.method == "ar"], mine)
             for side, mine in zip((kept, here), own, strict=True)]
    speeds = [measure.speedup(*pair) for pair in costs]
    ratio = speeds[1] / speeds[0] if speeds[0] and speeds[1] else None
    said = {key_of(one): one.outcome.tokens for one in own[0]}
    both = [(said[key_of(one)], one.outcome.tokens) for one in own[1] if key_of(one) in said]
    return MethodTwice(name, (per_forward(own[0]), per_forward(own[1])), (speeds[0], speeds[1]),
                       (measure.speedup_interval(*costs[0]), measure.speedup_interval(*costs[1])), ratio,
                       ratio_interval(costs) if ratio else None, sum(one == two for one, two in both), len(both))


def key_of(one: Decode) -> tuple:
    """Which turn of which prompt this is; questions are numbers in one file and texts in another."""
    return str(one.question_id), one.turn, one.repeat


def per_forward(own: Sequence[Decode]) -> float | None:
    return measure.share(sum(one.outcome.bought for one in own), sum(one.outcome.forwards for one in own))


def ratio_interval(costs: Sequence[tuple[list[Cost], list[Cost]]]) -> Interval:
    """95 % bootstrap over prompts of the second speed-up over the first; None where prompts differ or are too few."""
    sides = [side for pair in costs for side in pair]
    if len({len(side) for side in sides}) > 1:
        return None

    def ratio(plain, mine, plain_here, mine_here):
        before, now = (base[:, 1] * own[:, 0] / (base[:, 0] * own[:, 1])
                       for base, own in ((plain, mine), (plain_here, mine_here)))
        return now / before

    return bootstrap(sides, ratio)


def changed_places(kept: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """What of machine, versions, commit, checkpoints and node budgets differs between two summaries, as phrases."""
    one, two = (ComparedRun(name, Report(dict(summary), ())) for name, summary in (("kept", kept), ("here", here)))
    found = [phrase for part, names in (("machine", PLACE), ("target", ("device", "threads")), ("versions", ("torch",)),
                                        ("settings", ("commit", "checkpoints")))
             for phrase in differences(one, two, part, names)]
    refitted = [bool(summary.get("settings", {}).get("refitted_nodes")) for summary in (kept, here)]
    return found + ["node budgets were refitted there and are fixed here"] * (refitted == [True, False])


def verdict(rows: Sequence[MethodTwice], name: str) -> list[str]:
    """What came out again and what did not, one sentence each."""
    judged = [row for row in rows if row.agrees is not None]
    agreed = sum(bool(row.agrees) for row in judged)
    out = [f"Speed-ups: {agreed} of {len(judged)} methods agree with {name}, their 95 % interval of here over "
           "kept holding 1." if judged else "Speed-ups are not judged: that takes five prompts that both runs have."]
    out += [f"{row.method} is {'faster' if row.ratio > 1 else 'slower'} here against plain decoding than it was: "
            f"{row.ratio:.2f} times." for row in judged if not row.agrees and row.ratio is not None]
    other = [f"{row.method} on {row.turns - row.same} of {row.turns}" for row in rows if row.same < row.turns]
    turns = max((row.turns for row in rows), default=0)
    if not turns:
        return [*out, "Answers are not compared: the runs have no turn of the same prompt."]
    out.append(f"Answers: other ids than kept are written by {', '.join(other)} turns." if other else
               f"Answers: the ids are the kept ones, of every method on all {turns} turns.")
    return out
