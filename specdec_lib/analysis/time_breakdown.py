"""Why one method is slower than another: the difference in time per token as the sum of six causes.

A token takes calls x (ms of a call) + drafted x (ms of a drafted token) + choosing + checking, all measured. A changed
count is charged at the other side's price, a changed price at the own count, so the causes add up exactly. The
statistics that a stop rule needs (probabilities, entropy) are computed while drafting and count in the price of a
drafted token; `choosing` is the policy itself, called once a round.
"""

from __future__ import annotations

from typing import NamedTuple

from specdec_lib.analysis import compare
from specdec_lib.analysis.bench_report import Report
from specdec_lib.analysis.length_policies import PolicyResult, best_fixed, policies_by_drafter, policy_ratio
from specdec_lib.analysis.report_text import times_text

SMALL = 0.2                                        # causes below this share of the total loss are not named


class TokenTime(NamedTuple):
    """Mean counts and times (ms) per emitted token."""

    calls: float                                   # of the target, one a round
    drafted: float
    wasted: float                                  # drafted, not accepted
    when: float
    what: float
    target: float
    how: float


class Cause(NamedTuple):
    """One cause in words with its numbers, and the ms per token that it adds (or saves, below zero)."""

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
    """The causes of the difference between `one` and `base`, the costliest first; their ms add up to it."""
    call, step = base.target / base.calls, base.what / base.drafted if base.drafted else 0.0
    dearer_call, dearer_step = one.target - one.calls * call, one.what - one.drafted * step
    calls, drafted = (one.calls - base.calls) * call, (one.drafted - base.drafted) * step
    found = [
        Cause(f"{_way(calls, 'more', 'fewer')} calls of the target ({one.calls:.2f} a token against {base.calls:.2f})",
              calls),
        Cause(f"{_way(dearer_call, 'dearer', 'cheaper')} calls ({one.target / one.calls:.1f} ms against {call:.1f})",
              dearer_call),
        Cause(f"{_way(drafted, 'more', 'fewer')} drafted tokens ({one.drafted:.2f} a token, {one.wasted:.2f} of them "
              f"wasted, against {base.drafted:.2f} and {base.wasted:.2f})", drafted),
        Cause(f"{_way(dearer_step, 'dearer', 'cheaper')} drafted tokens ("
              f"{one.what / one.drafted if one.drafted else 0.0:.1f} ms against {step:.1f})", dearer_step),
        Cause(f"choosing ({one.when:.2f} ms a token against {base.when:.2f})", one.when - base.when),
        Cause(f"checking and bookkeeping ({one.how:.2f} ms a token against {base.how:.2f})", one.how - base.how)]
    return sorted(found, key=lambda cause: -cause.ms)


def why_slower(report: Report, one: PolicyResult, base: PolicyResult) -> str:
    """A sentence on a slower policy: by how much, and the measured causes."""
    mine, its = token_time(report, one.spec), token_time(report, base.spec)
    found = causes(mine, its)
    lost = sum(cause.ms for cause in found if cause.ms > 0)
    named = [cause for cause in found if cause.ms > SMALL * lost] or found[:1]
    step = policy_ratio(report, base, one)
    said = "; ".join(f"{cause.said}: {cause.ms:+.2f} ms" for cause in named)
    saved = f"; the largest saving is {found[-1].said}: {found[-1].ms:+.2f} ms" if found[-1].ms < 0 else ""
    return (f"{one.drafter} under {one.policy} is {times_text(step.ratio, step.interval)} as fast as under"
            f" {base.policy}, "
            f"{sum(cause.ms for cause in found):+.2f} ms a token, because of {said}{saved}. A round drafts "
            f"{mine.drafted / mine.calls:.2f} tokens, against {its.drafted / its.calls:.2f}.")


def slower_policies(report: Report) -> list[str]:
    """A sentence on every policy that is surely slower than the best fixed length of its drafter."""
    out = []
    for lines in policies_by_drafter(report).values():
        best = best_fixed(report, lines)
        out += [why_slower(report, one, best) for one in lines
                if one.length is None and policy_ratio(report, best, one).verdict == "slower"]
    return out


def _way(ms: float, more: str, less: str) -> str:
    return more if ms >= 0 else less
