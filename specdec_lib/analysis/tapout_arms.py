"""TapOut compared with its own arms: is the bandit as fast as the best rule among those it chooses from?

The best arm is the rule that is fastest when it runs alone, chosen in hindsight on the same prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import harmonic_mean

from specdec_lib.analysis.bench_report import Report, plain_part
from specdec_lib.analysis.length_policies import PolicyResult, policy_ratio
from specdec_lib.analysis.report_text import interval_text
from specdec_lib.when.tapout import ARMS

NEAR = 0.05                                        # how much slower than its best arm TapOut may be


def arms_alone(lines: Sequence[PolicyResult]) -> dict[str, PolicyResult]:
    """Arm -> the policy of the run that is this arm alone."""
    named = {one: part for one in lines if one.length is None and (part := plain_part(one.policy))}
    return {name: one for one, (name, values) in named.items()
            if name in ARMS and {key: value for key, value in values.items() if key != "depth"} == ARMS[name]}


def bandit_table(report: Report, lines: Sequence[PolicyResult], near: float = NEAR) -> dict[str, dict]:
    """Each TapOut of a drafter compared with the fastest of its arms alone; empty if the run lacks one of the two.

    `within` uses the ratio, `surely` its whole interval. `equal shares` is the speed, relative to the best arm, of a
    bandit that has learned nothing: every arm emits the same number of tokens.
    """
    alone = arms_alone(lines)
    found = [one for one in lines if one.policy.partition("(")[0].strip() == "tapout"]
    if not alone:
        return {}
    speeds = {name: report.entries[one.spec]["speedup"] for name, one in alone.items()}
    best = max(speeds, key=speeds.__getitem__)
    shares = harmonic_mean(speeds.values()) / speeds[best]
    out = {}
    for one in found:
        step = policy_ratio(report, alone[best], one)
        assert step.ratio is not None              # the run has measured both
        out[one.policy] = {
            "best single arm": best, "of arms": f"{len(alone)} of {len(ARMS)}", "times as fast": step.ratio,
            "95 %": interval_text(step.interval), "equal shares": shares,
            f"within {near:.0%}": "yes" if step.ratio >= 1 - near else "no",
            "surely": "–" if step.interval is None else
            "yes" if step.interval[0] >= 1 - near or step.interval[1] < 1 - near else "no"}
    return out
