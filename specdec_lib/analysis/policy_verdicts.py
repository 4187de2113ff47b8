"""Many policies against one fixed length each: verdicts for all together, and predictions beside them.

`steps` are the comparisons of a run by name, each of a policy with the best fixed length of its drafter. Of many 95 %
intervals some leave 1 out by chance; here they are widened until 95 % holds for all together (Bonferroni, by
Student's t on a logarithmic scale: `prompts` is how many each interval draws).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from statistics import fmean

from specdec_lib.analysis import compare, length_policies
from specdec_lib.analysis.bench_report import Report
from specdec_lib.analysis.compare import Comparison
from specdec_lib.analysis.length_policies import PolicyResult
from specdec_lib.analysis.report_text import counted_text, interval_text, times_text
from specdec_lib.analysis.wording import how_many, verdict
from specdec_lib.bench import summary
from specdec_lib.intervals import students_t
from specdec_lib.measure import Cost

NONE_KNOWN = "No policy has an interval: that takes five prompts."


def joint_intervals(steps: Mapping[str, Comparison], prompts: int) -> dict[str, tuple[float, float]]:
    """The intervals widened until 95 % holds for all of them together; comparisons without one are left out."""
    known = {name: (one.ratio, *one.interval) for name, one in steps.items() if one.interval and one.ratio}
    if not known:
        return {}
    wider = students_t(prompts - 1, 1 - .025 / len(known)) / students_t(prompts - 1)
    return {name: (ratio * (low / ratio) ** wider, ratio * (high / ratio) ** wider)
            for name, (ratio, low, high) in known.items()}


def joint_text(steps: Mapping[str, Comparison], prompts: int) -> str:
    """Which policies are faster or slower by their intervals when all comparisons are taken together, by name."""
    wide = joint_intervals(steps, prompts)
    if not wide:
        return NONE_KNOWN
    named = {word: [f"{name}, {steps[name].ratio:.2f} times" for name, span in wide.items() if verdict(span) == word]
             for word in ("faster", "slower")}
    return (f"At 95 % each, {.05 * len(wide):.1f} of {len(wide)} would lie outside by chance. At 95 % for all"
            f" together, faster: {'; '.join(named['faster']) or 'none'}. Slower: "
            f"{'; '.join(named['slower']) or 'none'}.")


def answer_text(report: Report, measured: Mapping[str, Sequence[PolicyResult]]) -> str:
    """For each drafter its best fixed length, and how many of its policies are faster, with the fastest of them."""
    told = []
    for name, lines in measured.items():
        best = length_policies.best_fixed(report, lines)
        steps = [length_policies.policy_ratio(report, best, one) for one in lines if one.length is None]
        quick = [one for one in steps if one.verdict == "faster"]
        most = max(quick, key=lambda one: one.ratio or 0.0, default=None)
        told.append(f"{counted_text(best.length or 0, 'token')} with {name}, where"
                    f" {how_many(one in quick for one in steps)} rules {'are' if quick else 'is'} faster"
                    + (f", at most {times_text(most.ratio, most.interval)}" if most else ""))
    return f"The best fixed draft length, chosen in hindsight, is {'; '.join(told)}."


def joint_counts_text(steps: Mapping[str, Comparison], prompts: int) -> str:
    """How many policies are faster and how many slower when all comparisons are taken together."""
    wide = [verdict(span) for span in joint_intervals(steps, prompts).values()]
    if not wide:
        return NONE_KNOWN
    return (f"With intervals that hold for all {len(wide)} comparisons together, {wide.count('faster')} are faster and"
            f" {wide.count('slower')} slower.")


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


def hindsight(lengths: Sequence[Sequence[Cost]], splits: int = 1000, seed: int = 0) -> float:
    """Speed of the length chosen on one half of the prompts over that of the best one of the other half, judged there.

    `lengths` has the cost of every prompt under each fixed length. The mean over `splits` random halves.
    """
    draws, order, found = random.Random(seed), list(range(len(lengths[0]))), []
    for _ in range(splits):
        draws.shuffle(order)
        half, other = order[:len(order) // 2], order[len(order) // 2:]
        chosen = min(lengths, key=lambda own, half=half: _seconds_a_token(own, half))
        found.append(min(_seconds_a_token(own, other) for own in lengths) / _seconds_a_token(chosen, other))
    return fmean(found)


def _seconds_a_token(costs: Sequence[Cost], prompts: Sequence[int]) -> float:
    return sum(costs[i].seconds for i in prompts) / sum(costs[i].tokens for i in prompts)


def hindsight_text(report: Report, name: str, lines: Sequence[PolicyResult]) -> str:
    """How much of the speed of a drafter's best fixed length is hindsight, from halves of the prompts."""
    decodes = [[d for d in report.decodes if d.method == one.spec] for one in lines if one.length is not None]
    lengths = [summary.paired(decodes[0], own)[1] for own in decodes]
    prompts = len(lengths[0])
    if len(lengths) < 2 or prompts < 2 or any(len(own) != prompts for own in lengths):
        return f"{name}: the run leaves no choice between fixed lengths to judge."
    return (f"{name}: a fixed length chosen on half of the {prompts} prompts has, on the other half, "
            f"{hindsight(lengths):.0%} of the speed of the best one there.")


def caps_text(report: Report, name: str, lines: Sequence[PolicyResult]) -> str:
    """The longest draft of each policy of a drafter, and its longest fixed length, in tokens."""
    longest: dict[int, list[str]] = {}
    for one in lines:
        if one.length is None:
            drafted = max(row.drafted for row in compare.method_rounds(report, one.spec))
            longest.setdefault(drafted, []).append(one.policy)
    told = "; ".join(f"{most} tokens under {', '.join(some)}" for most, some in sorted(longest.items()))
    return f"{name}: drafts reach {told or 'no policy'}; fixed lengths go to {max(one.length or 0 for one in lines)}."


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
    return (f"{name}: predicted faster than the best fixed length {guessed} policies, faster in the run by"
            f" their intervals {how_many(won)}. Predictions above the measured interval: {above}. Of {apart} pairs that"
            f" the run tells apart, {alike} were predicted in the measured order.")
