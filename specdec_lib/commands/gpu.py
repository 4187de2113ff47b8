"""The body of `specdec gpu`: all that is asked of a GPU, in steps that a cut does not lose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from specdec_lib.bench.environment import device_of, dtype_of
from specdec_lib.bench.gpu_cells import OutOfTime
from specdec_lib.bench.gpu_run import GpuPlan, GpuRun, Say
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.specs import split_specs


def gpu_plan(out: Path, target: str, device: str, dtype: str, minutes: float, limit: int | None, max_new_tokens: int,
             words: dict[str, str | None], prompts: Path | None) -> GpuPlan:
    """The plan of these options; `words` are comma-separated lists, None where the option was not given."""
    device = device_of(device)
    plan = GpuPlan(out, target, device, dtype_of(dtype, device), minutes=minutes, limit=limit,
                   max_new_tokens=max_new_tokens, prompts=prompts)
    return replace(plan, **{name: tuple(split_specs(word)) for name, word in words.items() if word is not None})


def run_gpu(plan: GpuPlan, eager: bool, say: Say) -> bool:
    """Runs the plan; whether nothing failed. Says what failed and what is left."""
    before, Transformer.capture = Transformer.capture, not eager
    run = GpuRun(plan, say)
    try:
        run.run()
    except OutOfTime:
        say(f"the minutes are used up: what is measured is in {plan.out}, the same command continues from there")
    finally:
        Transformer.capture = before
    for line in run.failed:
        say(line)
    return not run.failed
