"""A run of methods that draft while the target verifies: measured in turn, measured in parallel, and simulated.

The three kinds of time never share a column. Measured in turn: one process, drafter and target one after another.
Measured in parallel: a worker of its own, with the cores that it takes from the target. Simulated: the logged rounds
replayed by `schedules.simulate` at costs calibrated from the very rounds, as if neither took anything from the other
(kappa = 1) unless said otherwise. Before a simulated time is quoted, a simulation of what *was* measured must come
within GATE of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from specdec_lib.analysis.bench_report import Report, load_report, plain_part
from specdec_lib.analysis.parallel_published import PUBLISHED
from specdec_lib.analysis.report_text import interval_text
from specdec_lib.bench.results import select
from specdec_lib.bench.summary import in_parallel
from specdec_lib.measure import Row
from specdec_lib.schedules.simulate import Calibration, LaneTotals, Simulation
from specdec_lib.schedules.traces import TraceReader, guided_trace, pipeline_trace, replay, trace
from specdec_lib.types import Refusal

GATE = 0.15                                        # how far a simulated time may be from the measured one
COMMAND = ("specdec bench --limit 24 --max-new-tokens 64 --out data/results/parallel --methods"
           " \"ar,draft-model,pearl,specbranch,ppsd,duodecoding,double,hierarchical\"")
NO_WORK = LaneTotals(0.0, 0.0, 0.0, 0.0)
Decodes = Sequence[Sequence[Row]]                  # the rounds of each decode of one method


class TimeCheck(NamedTuple):
    """One method's measured seconds, and a simulation of the same schedule."""

    kind: str                                      # "in turn" or "in parallel"
    measured: float
    simulated: float

    @property
    def ratio(self) -> float:
        return self.simulated / self.measured

    @property
    def passes(self) -> bool:
        return abs(self.ratio - 1) <= GATE


def read_parallel(run: str) -> tuple[Report, str]:
    """The finished run in the folder `run`, and a sentence on where it comes from; `COMMAND` measures one.

    Refusal for a run without any method that drafts ahead.
    """
    report = load_report(run)
    if not any(drafts_ahead(report, spec) for spec in report.methods):
        raise Refusal(f"the run in {run} has no method that drafts while the target verifies: measure one, {COMMAND}")
    return report, f"Read from {run}."


def rounds_of(report: Report, spec: str) -> list[tuple[Row, ...]]:
    """The rounds of each decode of a method."""
    return [one.outcome.rows for one in select(report.decodes, method=spec) if one.outcome.rows]


def drafts_ahead(report: Report, spec: str) -> bool:
    """Whether the method drafts while the target verifies: in PEARL's two modes, or in PPSD's pipeline."""
    return any(row.ahead is not None for rows in rounds_of(report, spec) for row in rows)


def pipelined(spec: str) -> bool:
    """Whether the rounds of this method are tokens in a pipeline."""
    return spec.partition("(")[0].partition("@")[0] == "ppsd"


def guided(spec: str) -> bool:
    """Whether a guide's tokens stand beside the drafter's in the rounds of this method."""
    name, given = plain_part(spec.partition("@")[0]) or ("", {})
    return name == "double" and given.get("guide", True)


def reader_of(spec: str) -> TraceReader:
    """How the logged rounds of this method become a trace: counts of a pipeline, or with a guide, mean something else.
    """
    return pipeline_trace if pipelined(spec) else guided_trace if guided(spec) else trace


def calibrate(decodes: Decodes, read: TraceReader = trace) -> Calibration:
    """Median seconds of a drafted token, of drafts by their tokens, of forwards by their width, and of a round's rest.

    The rest is message and verdict: of a round in parallel its wall time less the drafting before the forward, and less
    the longer of the forward and the drafting beside it.
    """
    steps, others = list[float](), list[float]()
    drafts, forwards = dict[int, list[float]](), dict[int, list[float]]()
    for rows in decodes:
        for row, one in zip(rows, read(rows), strict=True):
            made = one.before.tokens + one.beside.tokens
            steps += [row.what / made] if made else []
            if made and made in (one.before.tokens, one.beside.tokens):        # one draft, not two
                drafts.setdefault(made, []).append(row.what)
            forwards.setdefault(one.width, []).append(row.target)
            alone = row.what * one.before.tokens / made if made else 0.0
            rest = row.seconds - alone - max(row.what - alone, row.target)
            others.append(row.when + row.how if row.wall is None else max(row.when + row.how, rest))
    if not others:
        raise Refusal("there are no rounds to calibrate from")
    return Calibration(median(steps) if steps else 0.0, medians(forwards), median(others), drafts=medians(drafts))


def medians(groups: Mapping[int, Sequence[float]]) -> dict[int, float]:
    return {name: median(some) for name, some in groups.items()}


def simulated(decodes: Decodes, costs: Calibration, kappa: float = 1.0, parallel: bool = True,
              read: TraceReader = trace) -> list[Simulation]:
    """Each decode in simulated time. `kappa` is for what was measured in turn: other costs include contention."""
    slower = 1.0 if in_parallel([row for rows in decodes for row in rows]) else kappa
    return [replay(rows, costs, slower, parallel, read) for rows in decodes]


def simulate_method(report: Report, spec: str, kappa: float = 1.0) -> list[Simulation]:
    """Each decode of a method in simulated time, at costs from its own rounds."""
    decodes, read = rounds_of(report, spec), reader_of(spec)
    return simulated(decodes, calibrate(decodes, read), kappa, read=read)


def measured_seconds(decodes: Decodes) -> float:
    """Seconds of all rounds, without the prefill."""
    return sum(row.seconds for rows in decodes for row in rows)


def check_time(decodes: Decodes, read: TraceReader = trace) -> TimeCheck:
    """The schedule that was measured, simulated: either half of the decodes at costs calibrated from the other half.

    The halves are every second decode. Costs of a run in parallel include contention. One decode alone is simulated at
    its own costs.
    """
    beside = in_parallel([row for rows in decodes for row in rows])
    even, odd = decodes[::2], decodes[1::2]
    folds = ((even, odd), (odd, even)) if odd else ((even, even),)
    seconds = sum(one.seconds for known, others in folds
                  for one in simulated(others, calibrate(known, read), parallel=beside, read=read))
    return TimeCheck("in parallel" if beside else "in turn", measured_seconds(decodes), seconds)


def check_method(report: Report, spec: str) -> TimeCheck:
    """`check_time` of a method's rounds."""
    return check_time(rounds_of(report, spec), reader_of(spec))


def simulated_speed(report: Report, spec: str, kappa: float = 1.0) -> float | None:
    """Times plain decoding, both simulated; None for a method that does not draft ahead."""
    if not drafts_ahead(report, spec):
        return None
    own, base = simulate_method(report, spec, kappa), simulate_method(report, "ar")
    rates = [sum(one.tokens for one in some) / sum(one.seconds for one in some) for some in (own, base)]
    return rates[0] / rates[1]


def time_table(report: Report, kappa: float = 1.0) -> dict[str, dict]:
    """Speeds over plain decoding, each kind of time in its own column; empty where there is none to quote."""
    return {spec: _times(report, spec, kappa) for spec in report.methods if rounds_of(report, spec)}


def _times(report: Report, spec: str, kappa: float) -> dict:
    entry, check = report.entries[spec], check_method(report, spec)
    beside = check.kind == "in parallel"
    return {"tokens per forward": entry["tokens_per_target_forward"],
            "measured in turn": None if beside else entry["speedup"],
            "measured in parallel": entry["speedup"] if beside else None,
            "95 % interval of the measured": interval_text(entry["speedup_ci"]),
            f"simulated in parallel, kappa {kappa:g}": simulated_speed(report, spec, kappa) if check.passes else None}


def gate_table(report: Report) -> dict[str, dict]:
    """Simulated beside measured seconds of the same schedule, on decodes that the costs were not calibrated from.

    A method that fails has no simulated time to quote.
    """
    checks = {spec: check_method(report, spec) for spec in report.entries if rounds_of(report, spec)}
    return {spec: {"schedule": one.kind, "measured (s)": one.measured, "simulated (s)": one.simulated,
                   "simulated / measured": one.ratio, f"within {GATE:.0%}": "yes" if one.passes else "no"}
            for spec, one in checks.items()}


def shares(simulations: Sequence[Simulation]) -> dict[str, LaneTotals]:
    """Where each lane's simulated time goes, as shares of the whole."""
    whole = sum(one.seconds for one in simulations)
    lanes = dict.fromkeys(lane for one in simulations for lane in one.totals)
    by_lane = {lane: [one.totals.get(lane, NO_WORK) for one in simulations] for lane in lanes}
    return {lane: LaneTotals(*(sum(part) / whole for part in zip(*some, strict=True)))
            for lane, some in by_lane.items()}


def measured_contention(in_turn: Decodes, beside: Decodes, read: TraceReader = trace) -> float:
    """kappa of this machine: how much dearer the same steps and forwards are in parallel, weighted by time; at least 1.

    It includes what the target loses to the cores that the worker takes.
    """
    alone, together = calibrate(in_turn, read), calibrate(beside, read)
    pairs = [(together.draft(one.before.tokens + one.beside.tokens) + together.forward(one.width),
              alone.draft(one.before.tokens + one.beside.tokens) + alone.forward(one.width))
             for rows in beside for one in read(rows)]
    return max(1.0, sum(one for one, _ in pairs) / sum(other for _, other in pairs))


def claims_beside(report: Report) -> list[dict]:
    """The claim of each paper whose method this run holds, once each: another machine's, and no comparison."""
    names = dict.fromkeys(spec.partition("(")[0].partition("@")[0] for spec in report.methods)
    return [{"method": name, "the paper claims": PUBLISHED[name].claim, "over": PUBLISHED[name].baseline,
             "source": PUBLISHED[name].source, "we read it in": PUBLISHED[name].read}
            for name in names if name in PUBLISHED]


def acceptance_and_ratio(report: Report, spec: str) -> tuple[float, float] | None:
    """This machine's point on the map: acceptance of a tested token, and draft steps in one forward, medians of both.

    None without drafted tokens, and for a pipeline, in which no forward tests a draft.
    """
    decodes = rounds_of(report, spec)
    if pipelined(spec):
        return None
    step = calibrate(decodes, reader_of(spec)).step
    rows = [row for some in decodes for row in some]
    tested = sum(row.offered for row in rows)
    if not tested or not step:
        return None
    return sum(row.accepted for row in rows) / tested, median(row.target for row in rows) / step
