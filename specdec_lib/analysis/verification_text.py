"""Speed-up and quality loss of verification rules: sentences and tables of the points of `verification_tradeoff`.

Verdicts use the paired intervals alone. "Faster" means faster than the lossless rule of the same drafter by the whole
interval, which is too narrow where the run warns of a busy machine; "worse" means worse than plain decoding. Above
temperature 0 the overlap with plain decoding is not judged: a rule that uses other random numbers has less overlap
without any loss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from specdec_lib import measure
from specdec_lib.analysis.bench_report import QUALITIES, Report, load_report
from specdec_lib.analysis.report_text import counted_text, estimate_text, times_text
from specdec_lib.analysis.run_place import is_busy
from specdec_lib.analysis.verification_tradeoff import (
    RulePoint,
    drafters_with_lossy_rule,
    rule_curves,
    rule_point,
)
from specdec_lib.analysis.wording import verdict
from specdec_lib.bench.results import Decode, select

WORSE = {"target_nll": 1, "ar_overlap": -1, "reference_score": -1, "repeated_4grams": 1}       # 1: more of it is worse


def comparison_text(report: Report) -> str:
    """What the four measures are compared with in this run, and which differences chance alone would give."""
    heat = report.summary["settings"]["temperature"]
    if not heat:
        return ("At temperature 0 every lossless rule writes plain decoding's text (up to ties in rounded arithmetic),"
                " so the rule causes every difference of a lossy method.")
    return (f"At temperature {heat:g} plain decoding is one sample among many. match uses the same random numbers and"
            " writes the same text; rejection uses others and writes another text of the same distribution, so its"
            " differences are chance, and its overlap is that of two samples. Likelihood, reference and repetition are"
            " judged, overlap is not.")


def judged_measures(report: Report) -> tuple[str, ...]:
    """The measures whose change the rule causes, up to sampling noise, which the interval covers."""
    return tuple(gate for gate in QUALITIES if gate != "ar_overlap" or not report.summary["settings"]["temperature"])


def losses(one: RulePoint, gates: Sequence[str], way: int = 1) -> list[str]:
    """The measures in which it is surely worse than plain decoding; with `way` -1, surely better.

    Better is no merit: text likelier than the target's own samples comes from a narrower distribution.
    """
    return [gate for gate in gates if one.change[gate].sign() == way * WORSE[gate]]


def surely_faster_points(some: Iterable[RulePoint]) -> list[RulePoint]:
    """Lossy points that are surely faster than the lossless rule of their drafter."""
    return [one for one in some if not one.lossless and one.over.sign(1.0) > 0]


def verdicts(some: Sequence[RulePoint], gates: Sequence[str]) -> list[str]:
    """A sentence for each drafter and lossy rule, and a conclusion for each drafter with a lossless one."""
    out = []
    for drafter in drafters_with_lossy_rule(some):
        own = [one for one in some if one.drafter == drafter]
        lossy = {rule: curve for rule, curve in rule_curves(own, drafter).items()
                 if not all(one.lossless for one in curve)}
        out += [rule_sentence(curve, gates) for curve in lossy.values()]
        if any(one.lossless for one in own):
            out.append(" ".join(filter(None, (conclusion_text(own, gates), rivals_text(own, gates)))))
    return out


def conclusion_text(own: Sequence[RulePoint], gates: Sequence[str]) -> str:
    """The conclusion for one drafter: of its surely faster rules that lose in the fewest measures, the fastest."""
    ranked = with_fewest_losses(own, gates)
    if not ranked:
        return f"With {own[0].drafter} no rule is faster than its lossless one by its interval."
    best = ranked[0]
    lost = ", ".join(QUALITIES[gate] for gate in losses(best, gates))
    return (f"With {best.drafter}, {best.label} is the fastest of those worse in the fewest measures:"
            f" {times_text(*best.over)} as fast as its lossless rule, surely worse in"
            f" {lost or f'none of the {measured_gates(own, gates)} judged'}.")


def gains_sentence(some: Sequence[RulePoint], gates: Sequence[str], heat: float) -> str:
    """Whether the rules of the first drafter that gain speed lose quality, each at its fastest setting."""
    drafter = next(iter(drafters_with_lossy_rule(some)))
    own = [one for one in some if one.drafter == drafter]
    at = f"At temperature {heat:g} with {drafter}"
    if not any(one.base for one in own):
        return f"{at} the run has no lossless rule to compare with."
    quick: dict[str, RulePoint] = {}
    for one in sorted(surely_faster_points(own), key=lambda one: -(one.over.value or 0.0)):
        quick.setdefault(one.rule, one)
    if not quick:
        return f"{at} no rule is faster than the lossless one by its interval."
    worse, known = [len(losses(one, gates)) for one in quick.values()], measured_gates(own, gates)
    which = ("every rule faster than the lossless one loses" if all(worse) else
             "not every faster rule is shown to lose" if any(worse) else "no faster rule is shown to lose")
    told = [f"{rule} {times_text(*one.over)}, worse in {lost} of {known}" for (rule, one), lost
            in zip(quick.items(), worse, strict=True)]
    return f"{at} {which} quality: {'; '.join(told)}{' measures' * (known > 1)}."


def measured_gates(some: Iterable[RulePoint], gates: Iterable[str]) -> int:
    """In how many of these measures all points have a change: without references there is no reference score."""
    points = list(some)
    return sum(all(one.change[gate].value is not None for one in points) for gate in gates)


def lossy_speed_sentence(folders: Iterable[str | Path], base: str, spec: str) -> str:
    """A lossy method over a lossless one in kept runs: its speed, and in how many judged measures its text is worse."""
    told, prompts, of = [], "", ""
    for report in map(load_report, folders):
        point, gates = rule_point(report, spec, [base]), judged_measures(report)
        busy = " on a busy machine" * is_busy(report)
        prompts = prompts or counted_text(report.summary["prompts"]["count"], "prompt")
        of = point.label if point.values else f"{point.label} at its defaults"
        told.append(f"{times_text(*point.over)} at temperature {report.summary['settings']['temperature']:g}{busy}"
                    f" ({verdict(point.over.interval)}), its text worse in {len(losses(point, gates))} of"
                    f" {measured_gates([point], gates)}")
    return f"Measured speed of {of} over the lossless rule, with {base} on {prompts}: {'; '.join(told)} measures."


def with_fewest_losses(own: Sequence[RulePoint], gates: Sequence[str]) -> list[RulePoint]:
    """The surely faster settings that are surely worse in the fewest measures, the fastest of each rule, best first."""
    quick = sorted(surely_faster_points(own), key=lambda one: (len(losses(one, gates)), -(one.over.value or 0.0)))
    fewest = [one for one in quick if len(losses(one, gates)) == len(losses(quick[0], gates))]
    best: dict[str, RulePoint] = {}
    for one in fewest:
        best.setdefault(one.rule, one)
    return list(best.values())


def rivals_text(own: Sequence[RulePoint], gates: Sequence[str]) -> str:
    """The other rules that lose in as few measures as the one that is named; their intervals may overlap with its."""
    ranked = with_fewest_losses(own, gates)
    told = "; ".join(f"{one.label} {times_text(*one.over)}" for one in ranked[1:])
    return f"Also faster, and worse in as few: {told or 'no other rule'}." if ranked else ""


def rule_sentence(curve: Sequence[RulePoint], gates: Sequence[str]) -> str:
    """A sentence on a rule's fastest setting, surely faster ones first: its speed and its losses."""
    best = max((one for one in curve if not one.lossless),
               key=lambda one: (one.over.sign(1.0) > 0, one.over.value or 0.0))
    if not best.base:
        return f"{best.drafter}, {best.label}: the run has no lossless rule of this drafter to compare it with."
    verdict = {1: "faster", 0: "not told apart", -1: "slower"}[best.over.sign(1.0)]
    speed = verdict if best.over.interval else "no interval"
    said = f"{best.drafter}, {best.label}: {times_text(*best.over)} as fast as {best.base} ({speed})"
    worse, other = (", ".join(f"{QUALITIES[gate]} {estimate_text(*best.change[gate], signed=True)}"
                              for gate in losses(best, gates, way)) for way in (1, -1))
    return (f"{said}; surely worse than plain decoding in: {worse or 'nothing'}"
            + (f"; surely better in: {other}" if other else "")
            + ("." if best.not_best is None else f"; {best.not_best:.1f} of 100 tokens are not the target's best."))


def most_repetitive_pair(report: Report, spec: str) -> tuple[Decode, Decode]:
    """Plain decoding's output and this method's, for the prompt with the largest increase in repeated 4-grams.

    Of equals the pair with the lowest overlap.
    """
    plain = {(one.question_id, one.turn, one.repeat): one for one in select(report.decodes, method="ar")}
    pairs = [(plain[one.question_id, one.turn, one.repeat], one) for one in select(report.decodes, method=spec)]
    loops = [[measure.repeated_4grams([one.outcome.tokens]) or 0.0 for one in pair] for pair in pairs]
    alike = [measure.rouge_l(*(one.outcome.tokens for one in pair)) or 0.0 for pair in pairs]
    return pairs[max(range(len(pairs)), key=lambda place: (loops[place][1] - loops[place][0], -alike[place]))]


def row_names(some: Sequence[RulePoint]) -> dict[str, str]:
    """Spec -> the rule as the figures name its point, after the drafter if there are several.

    The spec itself where two methods would share a name.
    """
    several = len({one.drafter for one in some}) > 1
    names = {one.spec: f"{one.drafter}, {one.label}" if several else one.label for one in some}
    times = Counter(names.values())
    return {spec: name if times[name] == 1 else spec for spec, name in names.items()}


def speed_table(some: Sequence[RulePoint]) -> dict[str, dict]:
    """Every point: tokens per forward, its speed over plain decoding and over its lossless rule, with intervals."""
    names = row_names(some)
    return {names[one.spec]: {"tokens per forward": one.tokens, "speed-up": times_text(*one.speed),
                              "over its lossless rule": times_text(*one.over), "not the best, of 100": one.not_best}
            for one in some}


def change_table(some: Sequence[RulePoint]) -> dict[str, dict]:
    """Every point: the differences of the four measures from plain decoding, with intervals."""
    names = row_names(some)
    return {names[one.spec]: {f"{said}, minus plain decoding's": estimate_text(*one.change[gate], signed=True)
                              for gate, said in QUALITIES.items()} for one in some}
