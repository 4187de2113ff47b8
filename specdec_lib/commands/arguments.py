"""Options shared by several commands, with their help. Imports nothing heavy: help and refusals are fast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_METHODS = "ar,prompt-lookup,sam,token-recycling,sam+token-recycling,draft-model"      # as in bench/plan.py
Methods = Annotated[str | None, typer.Option("--methods", help="Names, separated by commas, as `specdec methods` lists "
                                             "them; by default those of these that the target can run.",
                                             show_default=DEFAULT_METHODS)]
Prompts = Annotated[Path | None, typer.Option("--prompts", help="Spec-Bench's JSON lines; default: the shipped file.")]
Target = Annotated[str, typer.Option("--target", help="A hub name, a local folder, or the default model.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
Dtype = Annotated[str, typer.Option("--dtype", help="auto (bf16 where kernels exist), float32, bfloat16, ...")]
Threads = Annotated[int | None, typer.Option("--threads", help="torch threads; default: all cores.")]
MaxNew = Annotated[int, typer.Option("--max-new-tokens", help="Maximum output tokens.")]
Limit = Annotated[int | None, typer.Option("--limit", help="At most this many, spread evenly over the families.")]
Repeats = Annotated[int, typer.Option("--repeats", help="Measurements of each decode.")]
Temperature = Annotated[float, typer.Option("--temperature", help="0 is greedy.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of all random numbers.")]
Store = Annotated[Path | None, typer.Option("--store", help="A file that `specdec store` made, for retrieval.")]
Curve = Annotated[Path | None, typer.Option("--cost", help="A saved cost curve; default: measured at the start.")]
Peers = Annotated[str, typer.Option("--peers", help="Of transformers: hf-generate,hf-prompt-lookup,hf-assisted.")]
Draft = Annotated[str | None, typer.Option("--draft", help="A folder, a hub name, draft-lm, ngram or first-layers; "
                                           "default: draft-lm if it fits the target, else first-layers.")]
Diffusion = Annotated[str | None, typer.Option("--diffusion", help="A folder or hub name of a Dream or LLaDA model, "
                                               "instead of diffusion-lm.")]
Shelf = Annotated[Path | None, typer.Option("--checkpoints", help="Folder of trained drafters; default: the shipped.")]
Orders = Annotated[str, typer.Option("--orders", help="Prompt orders for methods that learn across prompts: file, "
                                     "shuffled or file,shuffled.")]
