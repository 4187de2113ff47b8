"""Finished runs side by side, and what of them may be set against each other or averaged.

Three levels, each with the reason why a pair of runs does not reach it:
- *Side by side* is always allowed: each number stands beside its own run, its machine, date and commit.
- *Paired*: how many times as fast a method is in one run as in the first, with the bootstrap over shared prompts.
  Asks for the same prompts, decoding settings, target and dtype; machine, threads and commit may be what differs.
- *Averaged*: totals over all runs. Asks for that, and for one machine, one commit and one set of trained drafters.
Simulated times, in turn and in parallel are different quantities: a method is neither paired nor averaged across them.
Measures are recomputed from the decodes, so that runs of any age have the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec_lib import measure
from specdec_lib.analysis.bench_report import Report, load_report
from specdec_lib.bench.results import Decode
from specdec_lib.bench.summary import in_parallel, paired
from specdec_lib.measure import Cost
from specdec_lib.types import Refusal

DECODING = ("max_new_tokens", "temperature", "top_k", "top_p", "seed", "repeats", "batch", "system",
            "template_switches")
MEASURED = ("in turn", "in parallel")
PLACE = ("processor", "cores", "threads", "gpu")
Interval = Sequence[float] | None


@dataclass(frozen=True)
class ComparedRun:
    """A run with the name that a table gives it."""

    name: str
    report: Report

    def part(self, name: str) -> Mapping[str, Any]:
        """A part of the summary; empty where an older or damaged one lacks it."""
        found = self.report.summary.get(name)
        return found if isinstance(found, Mapping) else {}

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(one.method for one in self.report.decodes))

    def of(self, method: str) -> list[Decode]:
        return [one for one in self.report.decodes if one.method == method]

    def time(self, method: str) -> str:
        """How the method's seconds came about: in turn, in parallel, or what the summary says of it, as simulated."""
        entry = self.part("methods").get(method)
        said = entry.get("time") if isinstance(entry, Mapping) else None
        rows = [row for one in self.of(method) for row in one.outcome.rows]
        known = said in (None, *MEASURED) and (rows or said is None)       # a run without rounds is as it says
        return MEASURED[in_parallel(rows)] if known else str(said)


@dataclass(frozen=True)
class MethodInRun:
    """One method in one run; speed-ups are over the run's own plain decoding."""

    run: str
    method: str
    time: str
    tokens_per_forward: float | None
    tokens_per_second: float | None
    speedup: float | None
    interval: Interval
    against_first: float | None = None             # times as fast as in the first run, over shared prompts
    against_interval: Interval = None

    @property
    def measured(self) -> bool:
        return self.time in MEASURED


@dataclass(frozen=True)
class RunComparison:
    """The runs, their methods, what averages are allowed, and a sentence for everything that is not."""

    runs: tuple[ComparedRun, ...]
    rows: tuple[MethodInRun, ...]
    averaged: tuple[MethodInRun, ...]              # of all runs together
    sentences: tuple[str, ...]


def load_runs(folders: Sequence[Path]) -> tuple[ComparedRun, ...]:
    """Finished runs, named by their folders; Refusal for fewer than two, one named twice, and one without `ar`."""
    places = [folder.resolve() for folder in folders]
    if len(set(places)) < max(2, len(places)):
        raise Refusal("a comparison takes at least two different runs: name the folders of two or more")
    names = [folder.name for folder in places]
    names = [name if names.count(name) == 1 else f"{place.parent.name}/{name}"
             for name, place in zip(names, places, strict=True)]
    runs = tuple(ComparedRun(name, load_report(place, rounds=False)) for name, place in zip(names, places, strict=True))
    for run in runs:
        if "ar" not in run.methods:
            raise Refusal(f"the run {run.name} has no plain decoding (ar), so nothing in it has a speed-up")
    return runs


def compare_runs(runs: Sequence[ComparedRun]) -> RunComparison:
    """All runs against the first, and their average where it may be taken."""
    first, sentences = runs[0], []
    rows = [entry(run, method) for run in runs[:1] for method in run.methods]
    for run in runs[1:]:
        differ = unpairable(first, run)
        if differ:
            sentences.append(f"{run.name} is not set against {first.name}: {'; '.join(differ)}.")
        for method in run.methods:
            why = "" if differ else other_time(first, run, method)
            if why:
                sentences.append(why)
            rows.append(against(first, run, method) if not (differ or why) else entry(run, method))
    reasons = [f"{run.name} differs from {first.name}: {'; '.join(differ)}" for run in runs[1:]
               if (differ := [*unpairable(first, run), *unaveraged(first, run)])]
    if reasons:
        sentences.append(f"Nothing is averaged over these runs, since {', and '.join(reasons)}.")
    shared = [method for method in first.methods if all(method in run.methods for run in runs)
              and len({run.time(method) for run in runs}) == 1]
    averaged = () if reasons else tuple(together(runs, method) for method in shared)
    return RunComparison(tuple(runs), tuple(rows), averaged, tuple(sentences))


def unpairable(one: ComparedRun, two: ComparedRun) -> list[str]:
    """What keeps the prompts of two runs from being paired, as phrases; empty where nothing does."""
    out = [] if one.part("prompts").get("sha256") == two.part("prompts").get("sha256") else ["other prompts"]
    turns = [{(d.question_id, d.turn): d.prompt_tokens for d in run.of("ar")} for run in (one, two)]
    if not out and not turns[0].keys() & turns[1].keys():
        out.append("no prompt in common")
    elif not out and any(turns[0][key] != turns[1][key] for key in turns[0].keys() & turns[1].keys() if not key[1]):
        out.append("prompts of other lengths in tokens")
    return out + differences(one, two, "target", ("name", "dtype")) + differences(one, two, "settings", DECODING)


def unaveraged(one: ComparedRun, two: ComparedRun) -> list[str]:
    """What keeps two runs with the same prompts and settings from being averaged, as phrases."""
    out = differences(one, two, "machine", PLACE) + differences(one, two, "target", ("device", "threads"))
    if [d.question_id for d in one.of("ar")] != [d.question_id for d in two.of("ar")]:
        out.append("other prompts of the same file")
    return out + differences(one, two, "settings", ("commit", "draft", "checkpoints", "nodes"))


def differences(one: ComparedRun, two: ComparedRun, part: str, names: Sequence[str]) -> list[str]:
    """Facts of two summaries that differ, as phrases."""
    left, right = one.part(part), two.part(part)
    return [f"{name} is {shown(left.get(name))} there and {shown(right.get(name))} here" for name in names
            if left.get(name) != right.get(name)]


def shown(value: Any) -> str:
    """A value in few characters: commits and checksums by their beginning."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {str(digest)[:8]}" for name, digest in value.items()) or "none"
    text = "none" if value is None else str(value)
    return text[:10] if len(text) == 40 else text[:60]


def other_time(one: ComparedRun, two: ComparedRun, method: str) -> str:
    """Why a method of both runs is not paired although the runs may be; "" where it is."""
    if method not in one.methods:
        return ""
    times = one.time(method), two.time(method)
    if times[0] == times[1] and times[0] in MEASURED:
        return ""
    return (f"{method} is not set against {one.name}: its time is {times[1]} in {two.name} and {times[0]} in"
            f" {one.name}, and only times of one kind, measured, are compared.")


def entry(run: ComparedRun, method: str) -> MethodInRun:
    """A method's measures in its own run."""
    own = run.of(method)
    plain, mine = paired(run.of("ar"), own)
    return MethodInRun(run.name, method, run.time(method), per_forward(own), measure.tokens_per_second(mine),
                       measure.speedup(plain, mine), measure.speedup_interval(plain, mine))


def per_forward(own: Sequence[Decode]) -> float | None:
    """Tokens per target forward, counted in the rounds; of a peer, which has none, from its totals."""
    rows = [row for one in own for row in one.outcome.rows]
    return measure.tokens_per_target_forward(rows) if rows else measure.share(
        sum(one.outcome.bought for one in own), sum(one.outcome.forwards for one in own))


def against(first: ComparedRun, run: ComparedRun, method: str) -> MethodInRun:
    """The same with how many times as fast it is as in the first run, on the prompts that both have."""
    alone = entry(run, method)
    if method not in first.methods:
        return alone
    pair = paired(first.of(method), run.of(method))
    return MethodInRun(**{**vars(alone), "against_first": measure.speedup(*pair),
                          "against_interval": measure.speedup_interval(*pair)})


def together(runs: Sequence[ComparedRun], method: str) -> MethodInRun:
    """The method over all runs: a prompt is drawn once with its decodes in every run."""
    sides = [paired(run.of("ar"), run.of(method)) for run in runs]
    plain, mine = (total([side[place] for side in sides]) for place in (0, 1))
    own = [one for run in runs for one in run.of(method)]
    return MethodInRun(f"all {len(runs)}", method, runs[0].time(method), per_forward(own),
                       measure.tokens_per_second(mine), measure.speedup(plain, mine),
                       measure.speedup_interval(plain, mine))


def total(costs: Sequence[Sequence[Cost]]) -> list[Cost]:
    """Costs per prompt, summed over runs."""
    return [Cost(sum(one.tokens for one in some), sum(one.seconds for one in some))
            for some in zip(*costs, strict=True)]


def csv_rows(found: RunComparison) -> Iterator[dict[str, Any]]:
    """One row for each method in each run, then the averages; measured and other numbers in columns of their own."""
    runs = {run.name: run for run in found.runs}
    for row in (*found.rows, *found.averaged):
        facts = run_facts(runs[row.run]) if row.run in runs else dict.fromkeys(run_facts(found.runs[0]), "")
        facts["run"] = row.run
        low, high = row.interval or (None, None)
        first_low, first_high = row.against_interval or (None, None)
        speeds = {"tokens_per_second": row.tokens_per_second, "speedup": row.speedup, "speedup_low": low,
                  "speedup_high": high}
        yield {**facts, "method": row.method, "time": row.time, "tokens_per_forward": row.tokens_per_forward,
               **{f"measured_{name}": value if row.measured else None for name, value in speeds.items()},
               **{f"other_{name}": None if row.measured else value for name, value in speeds.items()},
               "times_first_run": row.against_first, "times_first_run_low": first_low,
               "times_first_run_high": first_high}


def run_facts(run: ComparedRun) -> dict[str, str]:
    """What a run is: target, machine, date, commit, prompts and settings."""
    machine, target, settings = run.part("machine"), run.part("target"), run.part("settings")
    which = "gpu" if machine.get("gpu") and target.get("device") != "cpu" else "processor"
    return {"run": run.name, "target": shown(target.get("name")), "dtype": shown(target.get("dtype")),
            "machine": shown(machine.get(which)), "threads": shown(target.get("threads")),
            "date": shown(run.report.summary.get("created"))[:10], "commit": shown(settings.get("commit")),
            "prompts": f"{len({d.question_id for d in run.of('ar')})} of {shown(run.part('prompts').get('file'))}",
            "max_new_tokens": shown(settings.get("max_new_tokens")), "temperature": shown(settings.get("temperature")),
            "warnings": str(len(settings.get("warnings") or ()))}
