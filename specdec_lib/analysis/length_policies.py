"""Draft-length policies of one measured run, each compared with the best fixed length of its drafter.

A spec names a drafter and a policy: `eagle(depth=3)` is a fixed length, `eagle@svip` a policy, `eagle@tapout (warm)` a
policy that has seen earlier prompts. The best fixed length is chosen in hindsight on the same prompts on which it is
compared. That favours it over the policies, the more so the fewer prompts there are.
Two methods are compared by the interval of their own ratio, paired over prompts.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from specdec_lib import catalog
from specdec_lib.analysis import compare
from specdec_lib.analysis.bench_report import Report, load_report
from specdec_lib.analysis.compare import Comparison
from specdec_lib.analysis.report_text import interval_text
from specdec_lib.analysis.result_row import place, result_rows
from specdec_lib.analysis.run_place import chip, sure_word
from specdec_lib.analysis.sweep_close import close_to
from specdec_lib.analysis.wording import ends, number, over, placed
from specdec_lib.bench import summary
from specdec_lib.bench.runners import WARM
from specdec_lib.specs import parse_part
from specdec_lib.types import Refusal

POLICIES = ("confidence(of='best')", "heuristic", "svip", "adaedl", "svip-difference", "margin", "path-chance",
            "cost-optimal", "tapout")                  # that need only the drafter's probabilities and the history
TRAINED = ("adaeagle", "adaeagle(combined=True)")  # that read the target's hidden state as well
LENGTHS = range(1, 9)                              # a longer one may be best (`edge_sentences`); 0 is plain decoding


class PolicyResult(NamedTuple):
    """The drafter and the policy of a spec; `length` is set for a fixed length."""

    spec: str
    drafter: str
    policy: str
    length: int | None = None


def methods_to_run(drafters: Iterable[str]) -> str:
    """The methods of such a run, as the command line takes them."""
    behind = [*(f"(depth={n})" for n in LENGTHS), *(f"@{policy}" for policy in (*POLICIES, *TRAINED))]
    return ", ".join(["ar", *(name + one for name in drafters for one in behind)])


COMMAND = ("specdec bench --dtype bfloat16 --cost data/cost/smollm2-135m-cpu2-bf16.json --limit 24"
           f" --max-new-tokens 96 --out data/results/policies --methods \"{methods_to_run(('eagle', 'draft-model'))}\"")


def read_policies(run: str) -> tuple[Report, str]:
    """The finished run in the folder `run`, and a sentence on where it comes from; `COMMAND` measures one.

    Refusal for a run without any fixed length.
    """
    report = load_report(run)
    if not policies_by_drafter(report):
        raise Refusal(f"the run in {run} has no fixed length of any drafter to compare a policy with: measure one,"
                      " such as eagle(depth=2)")
    return report, whence(report, run)


def whence(report: Report, run: str) -> str:
    """A sentence on where and when the run in the folder `run` was measured, as far as its summary says."""
    named, date = chip(report.summary), report.summary.get("created", "")[:10]
    return (f"The run in {run.removeprefix('../')}, measured"
            + (f" on {named}" if named else "") + (f" on {date}" if date else "") + ".")


def policy_result(spec: str) -> PolicyResult:
    """Drafter and policy of a spec; a method of fixed length has its default where the spec names none."""
    warm = next((f" ({said})" for said in WARM.values() if spec.endswith(f" ({said})")), "")
    method, _, policy = spec.removesuffix(warm).partition("@")
    name, values = parse_part(method)
    depth = values.pop("depth", None)
    inside = ",".join(f"{key}={value!r}" for key, value in values.items())
    drafter = f"{name}({inside})" if inside else name
    if policy:
        fixed, its = parse_part(policy) if "@" not in policy else ("", {})
        length = its["depth"] if fixed == "fixed" and set(its) == {"depth"} else None
        return PolicyResult(spec, drafter, f"fixed {length}" if length is not None else policy + warm, length)
    length = _fixed(name, depth)
    return PolicyResult(spec, drafter, "its own" + warm if length is None else f"fixed {length}", length)


def _fixed(method: str, depth: int | None) -> int | None:
    """The length that a method drafts every round: `depth`, or its default; None if its length varies."""
    card = catalog.methods().get(method)
    if card is None or "fixed" not in card.parts:
        return None
    known = inspect.signature(card.make).parameters
    return known["depth"].default if depth is None and "depth" in known else depth


def policies_by_drafter(report: Report) -> dict[str, list[PolicyResult]]:
    """Drafter -> its policies, fixed lengths first and in order; drafters without a fixed length are left out."""
    found: dict[str, list[PolicyResult]] = {}
    for one in map(policy_result, report.methods):
        found.setdefault(one.drafter, []).append(one)
    return {name: sorted(own, key=lambda one: (one.length is None, one.length or 0)) for name, own in found.items()
            if any(one.length is not None for one in own)}


def best_fixed(report: Report, lines: Sequence[PolicyResult]) -> PolicyResult:
    """The fixed length that was fastest over all prompts, in hindsight; the shorter one in a tie."""
    return max((one for one in lines if one.length is not None), key=lambda one: report.entries[one.spec]["speedup"])


def edge_sentences(report: Report) -> list[str]:
    """A sentence on each drafter whose best fixed length is the longest one measured."""
    said = []
    for name, lines in policies_by_drafter(report).items():
        best, longest = best_fixed(report, lines).length, max(one.length or 0 for one in lines)
        if best == longest:
            far = max(row.drafted for one in lines for row in compare.method_rounds(report, one.spec))
            said.append(f"The best fixed length of {name}, {best}, is the longest one measured. A longer one may be "
                        f"faster: then the verdicts here favour its policies. Drafts reach {far} tokens.")
    return said


def policy_ratio(report: Report, base: PolicyResult, other: PolicyResult) -> Comparison:
    """The ratio of speeds, paired over prompts."""
    return Comparison(other.policy, base.policy, *summary.speed_ratio(report.decodes, base.spec, other.spec))


def wasted_tokens(report: Report, spec: str) -> float | None:
    """Share of the drafted tokens that were not accepted; None if nothing was drafted."""
    own = compare.method_rounds(report, spec)
    drafted = sum(row.drafted for row in own)
    return 1 - sum(row.accepted for row in own) / drafted if drafted else None


def policy_measures(report: Report, spec: str) -> dict[str, float | str | None]:
    """The measures of a method: speed, tokens, drafts, and the drafter's share of the time."""
    own, entry = compare.method_rounds(report, spec), report.entries[spec]
    shares = entry["time_share"]
    return {"speed-up": entry["speedup"], "95 % of speed-up": interval_text(entry["speedup_ci"]),
            "tokens per forward": entry["tokens_per_target_forward"],
            "drafted a round": sum(row.drafted for row in own) / len(own), "wasted drafts": wasted_tokens(report, spec),
            "drafter's share": shares and shares["drafter"]}


def policy_table(report: Report, lines: Sequence[PolicyResult]) -> dict[str, dict]:
    """The policies of one drafter: their measures, and each compared with the best fixed length."""
    best = best_fixed(report, lines)
    out = {}
    for one in lines:
        step = policy_ratio(report, best, one)
        said = {"over the best fixed": step.ratio, "95 %": interval_text(step.interval), "so it is": step.verdict}
        out[one.policy] = policy_measures(report, one.spec) | (said if one != best else {
            "over the best fixed": 1.0, "95 %": "–", "so it is": "the best fixed"})
    return out


def rule_rows(report: Report, rules: Iterable[str]) -> list[dict]:
    """The rows of the policies that `rules` names, below the best fixed length of their drafter; of none named, the
    rows of all fixed lengths."""
    named, shown = set(rules), []
    for lines in policies_by_drafter(report).values():
        best = best_fixed(report, lines)
        shown += [one.spec for one in lines
                  if one.policy in named or (one == best if named else one.length is not None)]
    return result_rows(report, shown)


def policy_steps(report: Report, policy: str, base: str = "") -> dict[str, Comparison]:
    """Drafter -> the policy over its best fixed length, or over `base`; drafters without both are left out."""
    found = {}
    for drafter, lines in policies_by_drafter(report).items():
        own = {one.policy: one for one in lines}
        held = own.get(base) if base else best_fixed(report, lines)
        if policy in own and held:
            found[drafter] = policy_ratio(report, held, own[policy])
    return found


def verdicts(report: Report, policies: Iterable[str], base: str = "") -> list[str]:
    """A sentence on each of these policies over the best fixed length of each drafter, or over the policy `base`."""
    sure, said = sure_word(report), []
    for policy in policies:
        steps = policy_steps(report, policy, base)
        said += [over(f"With {name}, {policy}", step.ratio, step.interval, step.base, sure=sure) + "."
                 for name, step in steps.items()]
        said += [] if steps else [f"The run has no {policy} beside {base or 'a fixed length'}."]
    return said


def fixed_sentences(report: Report) -> list[str]:
    """Which fixed lengths of each drafter are told apart from its fastest one, and which are not (`close_lengths`)."""
    said = []
    for name, lines in policies_by_drafter(report).items():
        best, groups = best_fixed(report, lines), dict[str, list[str]]()
        close, alone = close_lengths(report, lines), False
        for one in lines:
            if one.length is not None and one != best:
                step = policy_ratio(report, best, one)
                told = number(step.ratio) + (f", {ends(step.interval)}" if step.interval else "")
                said_of = "not told apart" if step.interval and str(one.length) in close else step.verdict
                alone |= said_of != step.verdict
                groups.setdefault(said_of, []).append(f"{one.length} ({told})")
        known = ", ".join(str(one.length) for one in lines if one.length is not None)
        said.append(f"With {name}, {best.length} is the fastest of the fixed lengths {known}. "
                    + "".join(f"{word[0].upper()}{word[1:]}: {', '.join(some)}. " for word, some in groups.items())
                    + alone * ("An interval is of its length alone; all are judged at once, since the fastest was "
                               "chosen here."))
    return [one.rstrip() for one in said]


def length_sentence(report: Report, drafter: str) -> str:
    """The fastest fixed length of this drafter and those not told apart from it, as a clause; empty without one."""
    lines = [one for one in policies_by_drafter(report).get(drafter, ()) if one.length is not None]
    if not lines:
        return ""
    best, close = best_fixed(report, lines), close_lengths(report, lines)
    known = f"{lines[0].length} to {lines[-1].length}" if lines[1:] else f"{best.length} alone"
    said = f", not told apart from {', '.join(close)}" if close else ", faster than all others" if lines[1:] else ""
    return f"drafts of {best.length} tokens are the fastest of fixed lengths {known}{said}"


def fastest_lengths(report: Report) -> str:
    """`4 with eagle (not told apart: 2, 6)`: the fastest fixed length of each drafter and those that may be as fast."""
    said = []
    for name, lines in policies_by_drafter(report).items():
        close = close_lengths(report, lines)
        said.append(f"{best_fixed(report, lines).length} with {name}"
                    + (f" (not told apart: {', '.join(close)})" if close else ""))
    return " and ".join(said)


def close_lengths(report: Report, lines: Sequence[PolicyResult]) -> list[str]:
    """The fixed lengths among these policies of a drafter that are not told apart from the fastest of them.

    That one was chosen on these prompts, so all others are judged at once, by `sweep_close`: of eight equal lengths
    one interval for each tells 13 % apart.
    """
    best, fixed = best_fixed(report, lines), [one for one in lines if one.length is not None]
    plain, *own = ([d for d in report.decodes if d.method == one.spec] for one in (best, *fixed))
    costs = [np.array(summary.paired(plain, some)[1], float) for some in own]
    rivals = {one: found for one, found in zip(fixed, costs, strict=True) if one != best}
    near = close_to(costs[fixed.index(best)], {one.spec: found for one, found in rivals.items()},
                    lambda total: total[..., 0] / total[..., 1])
    return [str(one.length) for one in rivals
            if one.spec in near or policy_ratio(report, best, one).verdict not in ("faster", "slower")]


def prediction_sentences(report: Report, policy: str, predicted: float, length: int) -> list[str]:
    """Where the interval of a policy lies beside its `predicted` ratio to the fixed `length`, for the first drafter."""
    for name, lines in policies_by_drafter(report).items():
        for one in [each for each in lines if each.policy == policy]:
            step = policy_ratio(report, best_fixed(report, lines), one)
            if step.interval:
                low, high = step.interval
                there = placed(step.interval, predicted).replace("contains", "holds")
                word = (f"{there} this" if there != "holds" or not low <= 1 <= high else
                        "holds both this and 1, so the run cannot decide")
                return [f"Predicted for {policy} was {predicted:.3f} times fixed {length}. The measured interval with "
                        f"{name}, {low:.3f} to {high:.3f} over {step.base}, {word}."]
    return []


def predicted_ratios(report: Report, lines: Sequence[PolicyResult], speeds: Mapping[str, float]) -> dict[str, dict]:
    """Policy -> its speed over the best fixed length, predicted and measured; `speeds` are predicted, by policy.

    Each side has its own best fixed length. Policies without a prediction are left out.
    """
    best, held = best_fixed(report, lines), max(value for name, value in speeds.items() if name.startswith("fixed "))
    out = {}
    for one in lines:
        if one.policy in speeds and one.length is None:
            step, predicted = policy_ratio(report, best, one), speeds[one.policy] / held
            out[one.policy] = {"predicted": predicted, "measured": step.ratio, "95 %": interval_text(step.interval),
                               "the prediction is": place(predicted, list(step.interval) if step.interval else None)}
    return out


def order_agreement(report: Report, lines: Sequence[PolicyResult], speeds: Mapping[str, float]) -> tuple[int, int]:
    """(pairs of policies that the run and `speeds` order alike, pairs that the run tells apart).

    `speeds` are predicted, by policy; policies without a prediction are left out. Equal predictions are no order.
    """
    known = [one for one in lines if one.policy in speeds]
    apart = [(step.ratio - 1) * (speeds[other.policy] - speeds[one.policy]) for one, other in combinations(known, 2)
             if (step := policy_ratio(report, one, other)).verdict in ("faster", "slower") and step.ratio is not None]
    return sum(product > 0 for product in apart), len(apart)
