"""Why one method is faster or slower than another: the difference in time per token as the sum of seven causes.

A token takes calls x (ms of a call) + drafts begun x (ms to begin one) + drafted x (ms of a drafted token) + the rest
of drafting + choosing + checking. Times are measured, and the two prices of a draft are those of the drafter's fixed
lengths in the run: a short draft is not charged for being short. A changed count of calls is charged at the other
side's price, a changed price at the own count, so the causes add up exactly. The statistics that a stop rule needs
(probabilities, entropy) are computed while drafting and count in the rest of it; `choosing` is the policy itself,
called once a round.
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
    begun: float                                   # drafts that are not empty
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
    begun = sum(row.drafted > 0 for row in own)
    return TokenTime(len(own) / emitted, begun / emitted, drafted / emitted, wasted / emitted, *spent)


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
    """The predicted `ratios` of policies to the best fixed length beside measured intervals, and what limits both.

    `best` is the replay's best fixed length.
    """
    measured = policies_by_drafter(report)
    name, lines = next(iter(measured.items()))
    said = [line for policy, ratio in ratios.items()
            for line in length_policies.prediction_sentences(report, policy, ratio, best)]
    price, mine = drafter_price(report, name), DraftPrice(replay.begin, replay.level)
    return [*said, *length_policies.edge_sentences(report),
            f"A draft of {name} costs, in plain forwards, {price.said if price else 'an unknown price'} in the run, "
            f"and {mine.said} in the replay. Best fixed length: {best_fixed(report, lines).length} in the run, "
            f"{best} in the replay."]


def causes(one: TokenTime, base: TokenTime, price: DraftPrice) -> list[Cause]:
    """The causes of the difference between `one` and `base`, the costliest first; their ms add up to it.

    `price` is that of a draft in ms.
    """
    call = base.target / base.calls
    dearer, calls = one.target - one.calls * call, (one.calls - base.calls) * call
    begun, drafted = (one.begun - base.begun) * price.begin, (one.drafted - base.drafted) * price.token
    rest, its_rest = (each.what - each.begun * price.begin - each.drafted * price.token for each in (one, base))
    found = [
        Cause(f"{_way(calls, 'more', 'fewer')} calls of the target ({one.calls:.2f} a token against {base.calls:.2f})",
              calls),
        Cause(f"{_way(dearer, 'dearer', 'cheaper')} calls ({one.target / one.calls:.2f} ms against {call:.2f})",
              dearer),
        Cause(f"{_way(begun, 'more', 'fewer')} drafts begun ({one.begun:.2f} a token against {base.begun:.2f})", begun),
        Cause(f"{_way(drafted, 'more', 'fewer')} drafted tokens ({one.drafted:.2f} a token, {one.wasted:.2f} of them "
              f"wasted, against {base.drafted:.2f} and {base.wasted:.2f})", drafted),
        Cause(f"drafting beyond its prices ({rest:z.2f} ms a token against {its_rest:z.2f})", rest - its_rest),
        Cause(f"choosing ({one.when:.2f} ms a token against {base.when:.2f})", one.when - base.when),
        Cause(f"checking and bookkeeping ({one.how:.2f} ms a token against {base.how:.2f})", one.how - base.how)]
    return sorted(found, key=lambda cause: -cause.ms)


def price_ms(report: Report, drafter: str) -> DraftPrice:
    """The price of a draft in ms, from the fixed lengths of this drafter in the run; nothing where it has none."""
    price, plain = drafter_price(report, drafter), [row.target for row in compare.method_rounds(report, "ar")]
    ms = 1000 * sum(plain) / len(plain) if plain else 0.0
    return DraftPrice(price.begin * ms, price.token * ms) if price else DraftPrice(0.0, 0.0)


def why(report: Report, one: PolicyResult, base: PolicyResult) -> str:
    """A sentence on a policy beside a fixed length: its speed, and the measured causes of the difference."""
    mine, its = token_time(report, one.spec), token_time(report, base.spec)
    found = causes(mine, its, price_ms(report, one.drafter))
    slower = sum(cause.ms for cause in found) > 0
    if not slower:
        found.reverse()
    pushed = sum(abs(cause.ms) for cause in found if (cause.ms > 0) == slower)
    named = [cause for cause in found if (cause.ms > 0) == slower and abs(cause.ms) > SMALL * pushed] or found[:1]
    step, last = policy_ratio(report, base, one), found[-1]
    said = "; ".join(f"{cause.said}: {cause.ms:+.2f} ms" for cause in named)
    against = "saving" if slower else "loss"
    other = f"; the largest {against} is {last.said}: {last.ms:+.2f} ms" if last.ms and (last.ms > 0) != slower else ""
    return (f"{one.drafter} under {one.policy} is {times_text(step.ratio, step.interval)} as fast as under"
            f" {base.policy}, "
            f"{sum(cause.ms for cause in found):+.2f} ms a token, because of {said}{other}. A round drafts "
            f"{mine.drafted / mine.calls:.2f} tokens, against {its.drafted / its.calls:.2f}.")


def slower_policies(report: Report) -> list[str]:
    """A sentence on every policy that is surely slower than the best fixed length of its drafter."""
    out = []
    for lines in policies_by_drafter(report).values():
        best = best_fixed(report, lines)
        out += [why(report, one, best) for one in lines
                if one.length is None and policy_ratio(report, best, one).verdict == "slower"]
    return out


def fastest_policies(report: Report) -> list[str]:
    """A sentence on the fastest policy of each drafter, if it is surely faster than the best fixed length."""
    out = []
    for lines in policies_by_drafter(report).values():
        best, rules = best_fixed(report, lines), [one for one in lines if one.length is None]
        top = max(rules, key=lambda one: policy_ratio(report, best, one).ratio or 0.0, default=None)
        if top and policy_ratio(report, best, top).verdict == "faster":
            out.append(why(report, top, best))
    return out


def _way(ms: float, more: str, less: str) -> str:
    return more if ms >= 0 else less
