"""The command `specdec gpu`, apart from its body, so that help and refusals stay fast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specdec_lib.commands import arguments as opt
from specdec_lib.commands.exit_codes import Stopped, say

Steps = Annotated[str, typer.Option("--steps", help="Of tests,floor,cost,shapes,drafts,kernels,bench, in order.")]
Minutes = Annotated[float, typer.Option("--minutes", help="Time limit; the same command continues.")]
Shapes = Annotated[str | None, typer.Option("--shapes", help="Of random weights; default: llama-3-8b,qwen2.5-7b.")]
Peers = Annotated[str | None, typer.Option("--peers", help="Default: hf-generate,hf-prompt-lookup.")]


def gpu(out: Annotated[Path, opt.path_option("--out", "The folder of the results.")] = Path("results/gpu"),
        target: opt.Target = "smollm2-135m", device: opt.Device = "auto", dtype: opt.Dtype = "auto",
        minutes: Minutes = 30.0, steps: Steps = "tests,floor,cost,shapes,drafts,kernels,bench", limit: opt.Limit = 24,
        max_new_tokens: opt.MaxNew = 96, methods: opt.Methods = None, peers: Peers = None, shapes: Shapes = None,
        prompts: opt.Prompts = None,
        eager: Annotated[bool, typer.Option("--eager", help="The bench without captured steps.")] = False) -> None:
    """Measures a GPU: tests, memory floor, cost curves, larger shapes and all methods; resumable step by step."""
    from specdec_lib.commands.gpu import gpu_plan, run_gpu

    words = {"steps": steps, "methods": methods, "peers": peers, "shapes": shapes}
    plan = gpu_plan(out, target, device, dtype, minutes, limit, max_new_tokens, words, prompts)
    try:
        fine = run_gpu(plan, eager, say)
    except KeyboardInterrupt:
        raise Stopped(f"stopped: finished cells are kept in {out}, the same command continues from there") from None
    typer.echo(f"results in {out}")
    if not fine:
        raise typer.Exit(1)
