"""Options that several commands share, with their help. Imports nothing heavy: help and refusals come at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Methods = Annotated[str, typer.Option("--methods", help="Names, separated by commas, as `specdec methods` lists them.")]
Prompts = Annotated[Path | None, typer.Option("--prompts", help="JSON lines in Spec-Bench's shape; default: our own.")]
Target = Annotated[str, typer.Option("--target", help="A hub name, a local folder, or the default model.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
Dtype = Annotated[str, typer.Option("--dtype", help="auto (bf16 where it has kernels), float32, bfloat16, ...")]
Threads = Annotated[int | None, typer.Option("--threads", help="Threads of torch; default: all cores.")]
MaxNew = Annotated[int, typer.Option("--max-new-tokens", help="Tokens of output at most.")]
Limit = Annotated[int | None, typer.Option("--limit", help="Prompts, spread evenly over the families; default: all.")]
Repeats = Annotated[int, typer.Option("--repeats", help="Times every decode is measured.")]
Temperature = Annotated[float, typer.Option("--temperature", help="0 is greedy.")]
Seed = Annotated[int, typer.Option("--seed", help="Of the dice, where the temperature is above 0.")]
Store = Annotated[Path | None, typer.Option("--store", help="A static index, for methods that retrieve from one.")]
Curve = Annotated[Path | None, typer.Option("--cost", help="A saved cost curve; default: measured at the start.")]
Peers = Annotated[str, typer.Option("--peers", help="hf-generate, hf-prompt-lookup, hf-assisted; commas between.")]
Draft = Annotated[str | None, typer.Option("--draft", help="A folder, a hub name, draft-lm, ngram or first-layers; "
                                           "default: draft-lm where it fits the target, else its first layers.")]
Diffusion = Annotated[str | None, typer.Option("--diffusion", help="A folder or hub name of a Dream or LLaDA model, in "
                                               "the place of diffusion-lm.")]
Shelf = Annotated[Path | None, typer.Option("--checkpoints", help="The folder of trained drafters; default: our own.")]
Orders = Annotated[str, typer.Option("--orders", help="In which a method that learns across prompts meets them: file, "
                                     "shuffled or both; comma between.")]
