"""Why one method is slower than another: the difference in time per token as the sum of six causes.

A token takes calls x (ms of a call) + drafted x (ms of a drafted token) + choosing + checking, all measured. A changed
count is charged at the other side's price, a changed price at the own count, so the causes add up exactly. The
statistics that a stop rule needs (probabilities, entropy) are computed while drafting and count in the price of a
drafted token; `choosing` is the policy itself, called once a round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from specdec_lib.analysis import compare, length_policies
from specdec_lib.analysis.bench_report import Report
from specdec_lib.analysis.draft_prices import DraftPrice, drafter_price
from specdec_lib.analysis.length_policies import PolicyResult, best_fixed, policies_by_drafter, policy_ratio
from specdec_lib.analysis.length_replay import LengthReplay
from specdec_lib.analysis.report_text import times_text
from specdec_lib.heads.length import DRAFTERS

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


def replay_prices(report: Report, drafters: Iterable[str], target: str, level: float) -> dict[str, DraftPrice]:
    """The price of a draft of each recorded drafter: that of its fixed lengths in the run, else `level` a token.

    A run of another target than the recorded one has no price for it.
    """
    same = report.summary["target"]["name"] == target
    found = {name: drafter_price(report, DRAFTERS.get(name, name)) if same else None for name in drafters}
    return {name: price or DraftPrice(0.0, level) for name, price in found.items()}


def replay_and_run(report: Report, replays: Mapping[str, LengthReplay]) -> dict[str, dict]:
    """What each replay assumes and finds beside what the run measured; drafters that the run lacks are left out."""
    out, measured = {}, policies_by_drafter(report)
    for name, replay in replays.items():
        lines = measured.get(DRAFTERS.get(name, name), ())
        speeds = {length: replay.under(None, length).speed for length in range(replay.depth + 1)}
        for one in [one for one in lines if one.length][:1]:
            found, kept = replay.under(None, one.length), f"kept of {one.policy}"
            price = drafter_price(report, one.drafter)
            out[f"{name}, replayed"] = {"best fixed length": max(speeds, key=speeds.__getitem__),
                                        kept: found.kept / found.drafted,
                                        "price of a draft": DraftPrice(replay.begin, replay.level).said}
            out[f"{name}, measured"] = {"best fixed length": best_fixed(report, lines).length,
                                        kept: 1 - (length_policies.wasted_tokens(report, one.spec) or 0.0),
                                        "price of a draft": price and price.said}
    return out


def beside_replay(report: Report, replay: LengthReplay, best: int, ratios: Mapping[str, float]) -> list[str]:
    """The measured verdicts on policies, their predicted `ratios` to the best fixed length, and what limits both.

    `best` is the replay's best fixed length.
    """
    measured = policies_by_drafter(report)
    name, lines = next(iter(measured.items()))
    said = [line for policy, ratio in ratios.items()
            for line in (*length_policies.verdicts(report, [policy]),
                         *length_policies.prediction_sentences(report, policy, ratio, best))]
    price, mine = drafter_price(report, name), DraftPrice(replay.begin, replay.level)
    return [*said, *length_policies.edge_sentences(report),
            f"A draft of {name} costs, in plain forwards, {price.said if price else 'an unknown price'} in the run, "
            f"and {mine.said} in the replay. Best fixed length: {best_fixed(report, lines).length} in the run, "
            f"{best} in the replay."]


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
