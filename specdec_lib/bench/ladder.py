"""The ladder of ReSpec: one part more a rung, and every rung held against the one below it, in one interleaved run.

`METHODS` is what such a run measures. Rungs that a run lacks are left out. A side is "faster" where the whole interval
lies above 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from specdec_lib import catalog
from specdec_lib.bench import setting, summary
from specdec_lib.bench.decodes import of
from specdec_lib.bench.progress import bar
from specdec_lib.bench.reading import QUALITIES, Report, load, span, times
from specdec_lib.measure import Row

METHODS = ("ar,eagle2,sam,sam+eagle2,sam+eagle2+trigger(theta=1.5),respec(theta=1.5),respec,respec-relaxed,"
           "respec+token-recycling")               # 1.5 nats: the threshold known of the paper
TRIGGER, CANDIDATES, THRESHOLD, RELAXATION = "+ trigger", "+ candidates", "+ our threshold", "+ relaxation"
RUNGS = {"sam+eagle2+trigger": TRIGGER, "respec": THRESHOLD, "respec-relaxed": RELAXATION}     # method -> its rung
ORDER = ("ar", "eagle2", "sam", "sam+eagle2", TRIGGER, CANDIDATES, THRESHOLD, RELAXATION, "respec+token-recycling")
CLIMB = ("ar", "eagle2", "sam+eagle2", TRIGGER, CANDIDATES, THRESHOLD, RELAXATION)
CLAIMED = {"eagle2": 1.33, "sam": 1.25, "sam+eagle2": 1.25}            # "more than", abstract of arXiv 2511.01282


class Step(NamedTuple):
    """How many times as fast `rung` is as `base`, with the interval of their own ratio."""

    rung: str
    base: str
    ratio: float | None
    interval: Sequence[float] | None

    @property
    def verdict(self) -> str:
        """What the interval allows to say."""
        if self.interval is None:
            return "a point: fewer than five prompts"
        return "faster" if self.interval[0] > 1 else "slower" if self.interval[1] < 1 else "not told apart"


class Part(NamedTuple):
    """What one drafter did in its rounds: the share of rounds and of time, the rest as means over its rounds."""

    share: float
    drafted: float                                 # nodes
    accepted: float
    tokens: float                                  # emitted
    ms: float                                      # of the whole round
    time: float                                    # share of the method's decode time

    @property
    def rate(self) -> float:
        """Tokens per millisecond."""
        return self.tokens / self.ms


def read_or_measure(run: str, out: str = "", **options) -> Report:
    """The finished run in the folder `run`; where that is "", the options are measured into `out`, or read there."""
    if run:
        return load(run)
    here = setting.setting(**options)
    with bar("bench") as progress:
        setting.bench(here, Path(out), progress, lambda line: None)
    return load(out)


def rung(spec: str) -> str:
    """How the ladder calls a method: its name, or the part that it adds; one with a policy of its own by its spec.

    `respec` with a threshold of its own stands one rung lower than with our default.
    """
    if "@" in spec:
        return spec
    name, values = catalog.parse(spec)
    return CANDIDATES if name == "respec" and "theta" in values else RUNGS.get(name, name)


def rungs(methods: Iterable[str]) -> dict[str, str]:
    """Rung -> spec, from the ground up, of the rungs that these methods hold; the first spec of a rung counts."""
    found: dict[str, str] = {}
    for spec in methods:
        found.setdefault(rung(spec), spec)
    return {name: found[name] for name in ORDER if name in found}


def versus(report: Report, base: str, other: str, family: str | None = None) -> Step:
    """Two methods against each other, on one family or on all prompts."""
    decodes = [d for d in report.decodes if family is None or d.family == family]
    return Step(rung(other), rung(base), *summary.versus(decodes, base, other))


def steps(report: Report) -> list[Step]:
    """Every rung of the climb against the one below it."""
    held = rungs(report.entries)
    climb = [held[name] for name in CLIMB if name in held]
    return [versus(report, base, other) for base, other in zip(climb, climb[1:], strict=False)]


def better(report: Report, specs: Sequence[str], family: str | None = None) -> str:
    """The faster of these methods, on one family or on all prompts; a tie goes to the earlier one."""
    at = [report.entries[spec] if family is None else report.entries[spec]["by_family"][family] for spec in specs]
    return specs[max(range(len(specs)), key=lambda place: at[place]["speedup"] or 0.0)]


def judged(report: Report, spec: str, rivals: Sequence[str]) -> dict[str, Step]:
    """`spec` against the faster of its rivals, chosen anew for all prompts (key "all prompts") and for each family."""
    return {family or "all prompts": versus(report, better(report, rivals, family), spec, family)
            for family in (None, *report.families)}


def lines(found: dict[str, Step]) -> dict[str, dict]:
    """Comparisons as a table."""
    return {name: {"against": one.base, "times as fast": one.ratio, "95 % interval": span(one.interval),
                   "so it is": one.verdict} for name, one in found.items()}


def claims(report: Report) -> list[dict]:
    """The relaxed method against what its paper claims, each baseline a line; empty where the run has it not."""
    held = rungs(report.entries)
    if RELAXATION not in held:
        return []
    return [{"respec-relaxed over": base, "claimed (another target, other hardware)": f"more than {claim:.2f} times",
             "measured here": times(*versus(report, held[base], held[RELAXATION])[2:])}
            for base, claim in CLAIMED.items() if base in held]


def rows(report: Report, spec: str) -> list[Row]:
    """All rounds of a method."""
    return [row for one in of(report.decodes, method=spec) for row in one.outcome.rows]


def split(report: Report, spec: str) -> dict[str, float]:
    """Milliseconds per emitted token, by the part of the round that took them."""
    own = rows(report, spec)
    emitted = sum(row.emitted for row in own)
    return {part: 1000 * sum(getattr(row, part) for row in own) / emitted for part in ("when", "what", "target", "how")}


def parts(report: Report, spec: str) -> dict[str, Part]:
    """What each source of a method's rounds did, the busiest first; "nobody" drafted nothing."""
    own, groups = rows(report, spec), {}
    for row in own:
        groups.setdefault(row.source or "nobody", []).append(row)
    whole = sum(row.seconds for row in own)
    return {name: Part(len(some) / len(own), *(sum(getattr(row, key) for row in some) / len(some)
                                              for key in ("drafted", "accepted", "emitted")),
                       1000 * sum(row.seconds for row in some) / len(some), sum(row.seconds for row in some) / whole)
            for name, some in sorted(groups.items(), key=lambda pair: -len(pair[1]))}


def level(report: Report) -> float:
    """Seconds of drafting per level of a submitted tree, of rounds that `eagle2` drafted; 0 where it drafted none."""
    own = [row for spec in report.entries for row in rows(report, spec) if row.source == "eagle2"]
    return sum(row.what for row in own) / max(1, sum(row.depth for row in own))


def reason(report: Report, one: Step) -> str:
    """A step in a sentence: what it won, and from how many tokens a round in how much time."""
    held = rungs(report.entries)
    (tokens, ms), (had, took) = (_round(report, held[name]) for name in (one.rung, one.base))
    return (f"{one.rung} is {times(one.ratio, one.interval)} as fast as {one.base}: {one.verdict}. A round emits"
            f" {tokens:.2f} tokens in {ms:.1f} ms, against {had:.2f} in {took:.1f} ms.")


def quality(report: Report, specs: Sequence[str]) -> dict[str, dict]:
    """The four measures of each method with their intervals over prompts, and prompts with plain decoding's ids."""
    return {rung(spec): {said: _with_span(report.entries[spec], key) for key, said in QUALITIES.items()}
            | {"same ids": "{identical_prompts} of {prompts}".format(**report.entries[spec])} for spec in specs}


def changes(report: Report, base: str, other: str) -> list[str]:
    """Each measure of quality from one method to the other, and whether the two intervals keep apart."""
    one, two = report.entries[base], report.entries[other]
    out = []
    for key, said in QUALITIES.items():
        if one[key] is not None and two[key] is not None:
            spans = sorted(filter(None, (one["quality_ci"][key], two["quality_ci"][key])))
            apart = "no intervals" if len(spans) < 2 else "apart" if spans[0][1] < spans[1][0] else "overlapping"
            out.append(f"{said}: {one[key]:.3f} for {rung(base)}, {two[key]:.3f} for {rung(other)} ({apart})")
    return out


def _with_span(entry: dict, key: str) -> str:
    value = entry[key]
    return "–" if value is None else f"{value:.3f} ({span(entry['quality_ci'][key])})"


def _round(report: Report, spec: str) -> tuple[float, float]:
    own = rows(report, spec)
    return sum(row.emitted for row in own) / len(own), 1000 * sum(row.seconds for row in own) / len(own)
