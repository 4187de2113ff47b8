"""Why one method is slower than another: the time of a token taken apart into six causes that add up to the difference.

A token takes calls x (ms of a call) + drafted x (ms of a drafted token) + choosing + checking, all measured. A number
that changed is charged at the other side's price, a price that changed at the own number, so nothing is left over. What
a stop rule has to see of a drafted token (its chances, its entropy) is worked out while drafting, so it counts as part
of a drafted token's price; `choosing` is the policy itself, asked once a round.
"""

from __future__ import annotations

from typing import NamedTuple

from specdec_lib.analysis import compare
from specdec_lib.analysis.bench_report import Report
from specdec_lib.analysis.length_policies import PolicyResult, best_fixed, policies_by_drafter, policy_ratio
from specdec_lib.analysis.report_text import times

SMALL = 0.2                                        # share of all that was lost below which a cause is not named


class TokenTime(NamedTuple):
    """What one emitted token took, on average; times in ms."""

    calls: float                                   # of the target, one a round
    drafted: float
    wasted: float                                  # drafted and never emitted
    when: float
    what: float
    target: float
    how: float


class Cause(NamedTuple):
    """One reason, in words with its numbers, and the ms a token that it costs more (or saves, below zero)."""

    said: str
    ms: float


def token_time(report: Report, spec: str) -> TokenTime:
    """The mean token of a method."""
    own = compare.method_rounds(report, spec)
    emitted = sum(row.emitted for row in own)
    drafted = sum(row.drafted for row in own)
    spent = (1000 * sum(getattr(row, part) for row in own) / emitted for part in ("when", "what", "target", "how"))
    wasted = drafted - sum(row.accepted for row in own)
    return TokenTime(len(own) / emitted, drafted / emitted, wasted / emitted, *spent)


def causes(one: TokenTime, base: TokenTime) -> list[Cause]:
    """What makes `one` take longer than `base`, the costliest first; their ms add up to the difference."""
    call, step = base.target / base.calls, base.what / base.drafted if base.drafted else 0.0
    dearer_call, dearer_step = one.target - one.calls * call, one.what - one.drafted * step
    calls, drafted = (one.calls - base.calls) * call, (one.drafted - base.drafted) * step
    found = [
        Cause(f"{_way(calls, 'more', 'fewer')} calls of the target ({one.calls:.2f} a token against {base.calls:.2f})",
              calls),
        Cause(f"{_way(dearer_call, 'dearer', 'cheaper')} calls ({one.target / one.calls:.1f} ms against {call:.1f})",
              dearer_call),
        Cause(f"{_way(drafted, 'more', 'fewer')} drafted tokens ({one.drafted:.2f} a token, {one.wasted:.2f} of them "
              f"in vain, against {base.drafted:.2f} and {base.wasted:.2f})", drafted),
        Cause(f"{_way(dearer_step, 'dearer', 'cheaper')} drafted tokens ("
              f"{one.what / one.drafted if one.drafted else 0.0:.1f} ms against {step:.1f})", dearer_step),
        Cause(f"choosing ({one.when:.2f} ms a token against {base.when:.2f})", one.when - base.when),
        Cause(f"checking and bookkeeping ({one.how:.2f} ms a token against {base.how:.2f})", one.how - base.how)]
    return sorted(found, key=lambda cause: -cause.ms)


def why_slower(report: Report, one: PolicyResult, base: PolicyResult) -> str:
    """A slower policy in a sentence: by how much, and from which of the measured causes."""
    mine, its = token_time(report, one.spec), token_time(report, base.spec)
    found = causes(mine, its)
    lost = sum(cause.ms for cause in found if cause.ms > 0)
    named = [cause for cause in found if cause.ms > SMALL * lost] or found[:1]
    step = policy_ratio(report, base, one)
    said = "; ".join(f"{cause.said}: {cause.ms:+.2f} ms" for cause in named)
    saved = f"; the largest saving is {found[-1].said}: {found[-1].ms:+.2f} ms" if found[-1].ms < 0 else ""
    return (f"{one.drafter} under {one.policy} is {times(step.ratio, step.interval)} as fast as under {base.policy}, "
            f"{sum(cause.ms for cause in found):+.2f} ms a token, because of {said}{saved}. A round drafts "
            f"{mine.drafted / mine.calls:.2f} tokens, against {its.drafted / its.calls:.2f}.")


def slower_than(report: Report) -> list[str]:
    """The reason of every policy that is surely slower than the best fixed length of its drafter, a sentence each."""
    out = []
    for lines in policies_by_drafter(report).values():
        best = best_fixed(report, lines)
        out += [why_slower(report, one, best) for one in lines
                if one.length is None and policy_ratio(report, best, one).verdict == "slower"]
    return out


def _way(ms: float, more: str, less: str) -> str:
    return more if ms >= 0 else less
