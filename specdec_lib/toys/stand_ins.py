"""Runs for notebooks: the measured one, or a small run on the toy if the measured one is missing.

A toy run has the same tables as a measured one, so that a notebook runs everywhere. Its speeds are noise.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from specdec_lib.analysis import diffuspec_ablation, length_policies, parallel_runs, verification_tradeoff
from specdec_lib.analysis.bench_report import Report
from specdec_lib.analysis.length_policies import POLICIES
from specdec_lib.analysis.verification_tradeoff import COPY, HEAD
from specdec_lib.specs import split_specs
from specdec_lib.toys.toy_bench import toy_bench, toy_report, untrained_environment

LAYERS = 5                                         # of the toy's six, for its draft model
POLICY_SPECS = ("ar", *(f"draft-model(depth={n})" for n in (1, 2, 4)), *(f"draft-model@{name}" for name in POLICIES))
RULE_SPECS = ("ar", *(HEAD[place].replace("eagle", "draft-model") for place in (0, 1, 2, 4, 6, 9, 10, 12, 13)),
              COPY[0], COPY[2])
PARALLEL_SPECS = ("ar", "draft-model", "pearl", "pearl(depth=3,workers='thread')")


def read_or_toy(run: str, read: Callable[[], tuple[Report, str]], toy: Callable[[], Report],
                command: str = "") -> tuple[Report, str]:
    """What `read` returns; if there is no folder `run` or no name, the report of `toy` and a sentence that says so.

    The sentence ends with the `command` that measures the missing run, if there is one.
    """
    if run and Path(run).is_dir():
        return read()
    how = f" This measures one: `{command}`" if command else ""
    missing = f"No run lies at {run}" if run else "No run is named"
    return toy(), f"{missing}, so a toy stands in and its numbers are noise.{how}"


def ablation_or_toy(run: str, out: str = "", **options) -> tuple[Report, str]:
    """`diffuspec_ablation.read_ablation`, or a toy run of its methods if a folder `run` is named and missing."""
    def read() -> tuple[Report, str]:
        return diffuspec_ablation.read_ablation(run, out, **options)

    return read_or_toy(run, read, lambda: toy_bench(split_specs(diffuspec_ablation.METHODS))) if run else read()


def policies_or_toy(run: str) -> tuple[Report, str]:
    """`length_policies.read_policies`, or a toy run of the same policies if the folder `run` is missing."""
    return read_or_toy(run, lambda: length_policies.read_policies(run),
                       lambda: toy_report(untrained_environment(LAYERS), POLICY_SPECS, prompts=5, tokens=16),
                       length_policies.COMMAND)


def rules_or_toy(run: str, temperature: float = 0.0) -> tuple[Report, str]:
    """`verification_tradeoff.read_rules`, or a toy run at this temperature if the folder `run` is missing."""
    return read_or_toy(run, lambda: verification_tradeoff.read_rules(run, temperature),
                       lambda: toy_report(untrained_environment(LAYERS), RULE_SPECS, prompts=5,
                                          temperature=temperature),
                       verification_tradeoff.command_to_run(run, temperature))


def parallel_or_toy(run: str) -> tuple[Report, str]:
    """`parallel_runs.read_parallel`, or a toy run of PEARL in turn and in a thread if the folder `run` is missing."""
    return read_or_toy(run, lambda: parallel_runs.read_parallel(run),
                       lambda: toy_report(untrained_environment(LAYERS), PARALLEL_SPECS, prompts=5, tokens=24),
                       parallel_runs.COMMAND)
