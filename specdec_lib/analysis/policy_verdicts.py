"""Many policies against one fixed length each: verdicts for all together, and predictions beside them.

`steps` are the comparisons of a run by name, each of a policy with the best fixed length of its drafter. Of many 95 %
intervals some leave 1 out by chance; here they are widened until 95 % holds for all together (Bonferroni, on a
logarithmic scale).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import NormalDist

from specdec_lib.analysis import length_policies
from specdec_lib.analysis.bench_report import Report
from specdec_lib.analysis.compare import Comparison
from specdec_lib.analysis.length_policies import PolicyResult
from specdec_lib.analysis.report_text import interval_text
from specdec_lib.analysis.wording import how_many, verdict

NONE_KNOWN = "No policy has an interval: that takes five prompts."


def joint_intervals(steps: Mapping[str, Comparison]) -> dict[str, tuple[float, float]]:
    """The intervals widened until 95 % holds for all of them together; comparisons without one are left out."""
    known = {name: (one.ratio, *one.interval) for name, one in steps.items() if one.interval and one.ratio}
    normal = NormalDist()
    wider = normal.inv_cdf(1 - .025 / max(1, len(known))) / normal.inv_cdf(.975)
    return {name: (ratio * (low / ratio) ** wider, ratio * (high / ratio) ** wider)
            for name, (ratio, low, high) in known.items()}


def joint_text(steps: Mapping[str, Comparison]) -> str:
    """Which policies are surely faster or slower when all comparisons are taken together, by name."""
    wide = joint_intervals(steps)
    if not wide:
        return NONE_KNOWN
    named = {word: [f"{name}, {steps[name].ratio:.2f} times" for name, span in wide.items() if verdict(span) == word]
             for word in ("faster", "slower")}
    return (f"At 95 % each, {.05 * len(wide):.1f} of {len(wide)} would lie outside by chance. At 95 % for all"
            f" together surely faster: {'; '.join(named['faster']) or 'none'}. Surely slower: "
            f"{'; '.join(named['slower']) or 'none'}.")


def not_equal_text(steps: Mapping[str, Comparison]) -> str:
    """How much slower a policy that is not told apart may be: the one whose interval reaches down most."""
    known = {name: (one.verdict, one.interval) for name, one in steps.items() if one.interval}
    if not known:
        return NONE_KNOWN
    even = {name: interval for name, (said, interval) in known.items() if said == "not told apart"}
    if not even:
        return "Every policy with an interval is told apart from its fixed length at 95 %."
    least = min(even, key=lambda name: even[name][0])
    return (f"Not told apart at 95 % is not equal: {least} may be slower by {1 - even[least][0]:.0%}, its interval is "
            f"{interval_text(even[least])}.")


def agreement_text(report: Report, name: str, lines: Sequence[PolicyResult], speeds: Mapping[str, float]) -> str:
    """For one drafter: how many of its policies were predicted and how many measured as faster, and in which order.

    `speeds` are predicted, by policy, as in `length_policies.predicted_ratios`; other policies are left out.
    """
    rows = length_policies.predicted_ratios(report, lines, speeds)
    best, own = length_policies.best_fixed(report, lines), {one.policy: one for one in lines}
    won = [length_policies.policy_ratio(report, best, own[policy]).verdict == "faster" for policy in rows]
    above = sum(row["the prediction is"] == "above it" for row in rows.values())
    alike, apart = length_policies.order_agreement(report, lines, speeds)
    guessed = how_many(row["predicted"] > 1 for row in rows.values())
    return (f"{name}: predicted faster than the best fixed length {guessed} policies, surely faster in the run"
            f" {how_many(won)}. Predictions above the measured interval: {above}. Of {apart} pairs that the run"
            f" tells apart, {alike} were predicted in the measured order.")
