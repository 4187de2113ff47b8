"""Sentences on a run of methods that draft while the target verifies: what a round consists of, and which are faster.

Every direction is taken from the numbers, so that another run on another machine gives other sentences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median

from specdec_lib.analysis.bench_report import Report, plain_part
from specdec_lib.analysis.parallel_runs import (
    NO_WORK,
    Decodes,
    TimeCheck,
    calibrate,
    drafts_ahead,
    measured_contention,
    pipelined,
    reader_of,
    rounds_of,
    shares,
    simulate_method,
    simulated_speed,
)
from specdec_lib.analysis.run_place import run_place, sure_word
from specdec_lib.analysis.wording import how_many, over, than
from specdec_lib.bench.summary import in_parallel, speed_ratio
from specdec_lib.cost.contention import load_contention
from specdec_lib.measure import Row
from specdec_lib.schedules.simulate import DRAFTER, TARGET, VERDICT, VERIFY, WAIT, Simulation
from specdec_lib.schedules.traces import pending

CONTENTION = "specdec cost --contention --threads 1"
FORWARD, WAITING, VERDICTS = PARTS = ("forward", "waiting for the drafter", "message and verdict")


def target_parts(decodes: Decodes, done: Sequence[Simulation]) -> dict[str, float]:
    """Mean simulated seconds of a round, by what the target does in it: PARTS."""
    spans = [span for one in done for span in one.intervals if span.lane == TARGET]
    return {name: sum(span.end - span.start for span in spans if span.kind == kind) / sum(map(len, decodes))
            for kind, name in zip((VERIFY, WAIT, VERDICT), PARTS, strict=True)}


def round_parts(report: Report, spec: str, kappa: float = 1.0) -> dict[str, float]:
    """The same of a method's mean round, in rounds of plain decoding."""
    unit, own = (target_parts(rounds_of(report, name), simulate_method(report, name, slower))
                 for name, slower in (("ar", 1.0), (spec, kappa)))
    return {name: seconds / sum(unit.values()) for name, seconds in own.items()}


def why(report: Report, spec: str, kappa: float = 1.0) -> str:
    """Sentences on a method that drafts ahead: tokens of a round, and what the round's simulated time consists of.

    The forward of a pipeline is that of the layers above its exit alone.
    """
    parts, decodes = round_parts(report, spec, kappa), rounds_of(report, spec)
    rows = [row for some in decodes for row in some]
    empty = [one.before.tokens > 0 if pipelined(spec) else not pending(row)
             for some in decodes for row, one in zip(some, reader_of(spec)(some), strict=True)]
    what = "under way, so the second stage waits for a token" if pipelined(spec) else "pending, so they emit one token"
    side = "the layers above the exit" if pipelined(spec) else "the target's forward"
    emitted, whole = sum(row.emitted for row in rows) / len(rows), sum(parts.values())
    drafter = shares(simulate_method(report, spec, kappa)).get(DRAFTER, NO_WORK)
    lost = drafter.rolled_back / (drafter.useful + drafter.rolled_back or 1.0)
    return (f"{spec} emits {emitted:.2f} tokens a round. A round takes as long as {whole:.2f} rounds of plain decoding:"
            f" {parts[FORWARD]:.2f} for {side}, {parts[WAITING]:.2f} waiting for the drafter and {parts[VERDICTS]:.2f}"
            f" for message and verdict. That is {emitted / whole:.2f} times plain decoding (simulated). In"
            f" {sum(empty) / len(rows):.0%} of its rounds nothing was {what}, and {lost:.0%} of the drafter's work is"
            " rolled back.")


def cores_sentence(report: Report) -> str:
    """How many cores the target has beside a drafting process in this run."""
    cores, worker = (report.summary.get("machine") or {}).get("cores"), report.summary["settings"].get("workers")
    device = report.summary["target"]["device"]
    if device != "cpu" or worker != "process" or not cores:
        return f"The target ran on {device}; the run does not say how many cores it had beside the drafter."
    return (f"Beside the drafting process the target has {max(1, cores - 1)} of {cores} cores in this run; plain"
            " decoding and methods in turn have all of them.")


def beyond_longer(rows: Sequence[Row]) -> float | None:
    """Median seconds by which rounds that drafted beside their forward exceed the longer of both sides."""
    some = [row.seconds - max(row.what, row.target) for row in rows if row.ahead]
    return median(some) if some else None


def overlap_sentence(report: Report, spec: str) -> str:
    """Whether the first rounds of the decodes overlap as much as the later ones."""
    decodes = rounds_of(report, spec)
    if not in_parallel([row for some in decodes for row in some]):
        return f"{spec} was measured in turn, so nothing overlaps."
    first, later = beyond_longer([some[0] for some in decodes]), beyond_longer([row for some in decodes
                                                                                for row in some[1:]])
    both = (None if one is None else 1000 * one for one in (first, later))
    said = than("the median over the first rounds of the decodes", next(both), "that over all later ones", next(both),
                "larger", "smaller", 1)
    return f"Time beyond the longer side, in ms: {said}."


def forward_rows(report: Report, specs: Sequence[str]) -> dict[str, dict]:
    """What the target's forwards take beside each drafter, in rounds of plain decoding: those of one row, and the mean.

    One row costs what the drafter takes from the target: cores, and bandwidth. The rest of the mean is rows of drafts.
    Both simulated at medians; a pipeline's forwards are left out, which are not the whole target's.
    """
    unit, out = sum(target_parts(rounds_of(report, "ar"), simulate_method(report, "ar")).values()), {}
    for spec in [spec for spec in specs if not pipelined(spec)]:
        decodes, read = rounds_of(report, spec), reader_of(spec)
        out[spec] = {"rows of a forward": fmean(one.width for rows in decodes for one in read(rows)),
                     "a forward of one row": calibrate(decodes, read).forward(1) / unit,
                     "a mean forward": round_parts(report, spec)[FORWARD]}
    return out


def slower_forwards(report: Report, specs: Sequence[str]) -> str:
    """How much of what forwards take beside a drafter they take with one row, and how much with the rows of drafts."""
    rows = forward_rows(report, specs)
    if not rows:
        return "No forward of the whole target runs beside a drafter in this run."
    one, mean = ([row[name] for row in rows.values()] for name in ("a forward of one row", "a mean forward"))
    return (f"Beside the drafter a forward of one row takes {min(one):.2f} to {max(one):.2f} rounds of plain decoding;"
            f" with the rows of drafts the mean forward takes {min(mean):.2f} to {max(mean):.2f}.")


def both_ways(report: Report) -> list[str]:
    """For each method that this run measured in turn and in parallel, all else alike: what the overlap gained."""
    found: dict[tuple, dict[bool, str]] = {}
    for spec in report.methods:
        part = plain_part(spec)
        if part and drafts_ahead(report, spec):
            same = part.name, *sorted((name, value) for name, value in part.values.items() if name != "workers")
            beside = in_parallel([row for rows in rounds_of(report, spec) for row in rows])
            found.setdefault(same, {})[beside] = spec
    return [both_sentence(report, one[False], one[True]) for one in found.values() if len(one) == 2] or [
        "No method was measured both in turn and in parallel."]


def both_sentence(report: Report, turned: str, beside: str) -> str:
    """What the overlap gained and cost, and what these rounds would gain if neither side took cores from the other."""
    kappa = measured_contention(rounds_of(report, turned), rounds_of(report, beside), reader_of(beside))
    return (f"{pair_sentence(report, beside, turned)} Its steps and forwards take kappa = {kappa:.2f} times as long as"
            " in turn, with the core that the worker takes. If both sides kept their times in turn while they overlap,"
            f" these rounds would have {simulated_speed(report, turned):.2f} times plain decoding's speed (simulated).")


def pair_sentence(report: Report, spec: str, base: str) -> str:
    """Whether one method is faster than another, paired by prompt."""
    ratio, span = speed_ratio(report.decodes, base, spec)
    return f"{over(spec, ratio, span, 'plain decoding' if base == 'ar' else base, sure=sure_word(report))}."


def measured_sentence(report: Report, spec: str, base: str = "ar") -> str:
    """`pair_sentence` with the kind of time that was measured, and on what; for a reader who knows nothing of the run.
    """
    kind = "in parallel" if in_parallel([row for rows in rounds_of(report, spec) for row in rows]) else "in turn"
    return f"Measured {kind} on {run_place(report, cores=True)}, {pair_sentence(report, spec, base)}"


def fastest_sentence(report: Report, kind: str, where: bool = True) -> str:
    """The fastest of the methods measured `in parallel`, or `in turn`, against plain decoding; empty without any."""
    def speed(spec: str) -> float:
        return report.entries[spec]["speedup"] or 0.0

    mine = [spec for spec in report.methods if rounds_of(report, spec)
            and in_parallel([row for rows in rounds_of(report, spec) for row in rows]) == (kind == "in parallel")]
    if not mine:
        return ""
    best = max(mine, key=speed)
    entry, named = report.entries[best], f"{best}, the fastest of {len(mine)}," if len(mine) > 1 else best
    said = over(named, entry["speedup"], entry["speedup_ci"], "plain decoding", sure=sure_word(report))
    return f"Measured {kind}{f' on {run_place(report, cores=True)}' if where else ''}, {said}."


def gate_sentence(checks: Mapping[str, TimeCheck]) -> str:
    """In how much less, or more, time than measured the methods inside of the gate are simulated, plain decoding aside.
    """
    off = [one.ratio - 1 for spec, one in checks.items() if spec != "ar" and one.passes]
    if not off:
        return "No drafting method is inside of the gate."
    said = []
    for word, sign in (("less", -1), ("more", 1)):
        gaps = [abs(gap) for gap in off if gap * sign > 0]
        ends = " to ".join(dict.fromkeys(f"{end:.1%}" for end in (min(gaps), max(gaps)))) if gaps else ""
        said += [f"{how_many(gap * sign > 0 for gap in off)} in {word} time than measured, by {ends}"] if gaps else []
    plain = checks["ar"].ratio - 1
    return (f"Simulated, of the drafting methods inside of the gate: {'; '.join(said) or 'all in the measured time'}."
            f" Plain decoding takes {abs(plain):.1%} {'less' if plain < 0 else 'more'} simulated than measured.")


def simulated_sentence(report: Report, specs: Sequence[str], kappa: float = 1.0) -> str:
    """How many of these methods are simulated to be faster than plain decoding."""
    speeds = [simulated_speed(report, spec, kappa) or 0.0 for spec in specs]
    return f"Simulated, faster than plain decoding: {how_many(speed > 1 for speed in speeds)}."


def contention_sentence(path: str) -> str:
    """What a measurement of contention alone says, and when it was made, or what measures one.

    Refusal for a file that holds none.
    """
    if not Path(path).is_file():
        return f"Contention alone was not measured here: `{CONTENTION} --out FILE` does it."
    found = load_contention(path)
    made = found.about.get("provenance") or {}
    day, processor = made.get("created", "")[:10], (made.get("machine") or {}).get("processor")
    alone = [1000 * pair.alone for pair in found.target]
    return (f"{found.told()} This is a session of its own ({day or 'no date'}, {processor or 'no processor'}), in"
            f" whose pairs a forward alone took {min(alone):.1f} to {max(alone):.1f} ms.")
