"""What a notebook on a rule of draft length concludes, each in one sentence that needs no table beside it.

Measured ratios are paired over prompts, with the best fixed length of each drafter chosen in hindsight on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from specdec_lib.analysis.bench_report import Report
from specdec_lib.analysis.compare import Comparison
from specdec_lib.analysis.length_policies import policy_steps
from specdec_lib.analysis.run_place import measured_on
from specdec_lib.analysis.trigger_oracle import auc
from specdec_lib.analysis.wording import digits_beside_one, ends, number, percent, verdict

BEST = "the best fixed length"
BESIDE = {"faster": "faster than", "slower": "slower than", "not told apart": "not told apart from"}


def measured_answer(report: Report, policy: str, name: str, base: str = "", base_name: str = BEST,
                    where: bool = True) -> str:
    """The policy, called `name`, beside the best fixed length of each drafter of the run, or beside the policy `base`.

    Without `where` it does not say on what: for a sentence that follows another on the same run.
    """
    steps = policy_steps(report, policy, base)
    if not steps:
        return f"The run has no {name} beside {base_name}."
    told: list[str] = []
    for word, group in groupby(steps.items(), key=lambda one: one[1].verdict):
        spoken = word if told else f"{BESIDE.get(word, 'beside')} {base_name}"
        told.append(f"{spoken} {', and '.join(f'with {drafter}, {_times(step)}' for drafter, step in group)}")
    opening = f"{measured_on(report)}, {name}" if where else f"{name[0].upper()}{name[1:]}"
    return f"{opening} is {', and '.join(told)}."


def signal_answer(name: str, values: Sequence[float], right: Sequence[bool]) -> str:
    """How often a signal ranks a right draft token above a rejected one, beside the limits of chance at 95 %.

    The limits take tokens as independent.
    """
    rank, good = auc(values, right), sum(map(bool, right))
    if rank is None:
        return f"{name} cannot be judged here: no draft token was {'rejected' if good else 'right'}"
    chance = 1.96 * ((len(right) + 1) / (12 * good * (len(right) - good))) ** .5
    word = verdict((rank - chance, rank + chance), "better than", "worse than", "not told apart from", .5)
    return f"{name} ranks a right draft token above a rejected one in {percent(rank, 1)} of pairs, {word} chance"


def _times(step: Comparison) -> str:
    if step.interval is None:
        return f"{number(step.ratio)} times without an interval"
    return f"{number(step.ratio, digits_beside_one(step.interval))} times ({ends(step.interval)})"
