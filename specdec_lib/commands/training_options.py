"""The commands that train drafters, `answers`, `train` and `break-even`: their options, and what they call."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specdec_lib.commands import arguments as opt
from specdec_lib.commands.exit_codes import Stopped, say

CHECKPOINTS = Path("results/checkpoints")

Loss = Annotated[str | None, typer.Option("--loss", help="ce (the default), tv or mixed.")]
Depths = Annotated[str | None, typer.Option(
    "--depths", help="Depth weights: decay (the default, but not for diffusion-lm-aligned), dpace or streak.")]
Smooth = Annotated[float | None, typer.Option("--smooth", help="Smoothing for dpace, streak: 0 to 1.")]
Labels = Annotated[str | None, typer.Option(
    "--labels", help="What a slot learns: the target's distribution (the default) or the text's own token.")]
Steps = Annotated[int | None, typer.Option(
    "--steps", help="Train for so many steps instead of the minutes: the same on any machine.")]
Optimiser = Annotated[str | None, typer.Option("--optimiser", help="muon (the default) or adamw.")]
Attention = Annotated[str | None, typer.Option(
    "--attention", help="For diffusion-lm: causal (the default) or full, which makes diffusion-lm-full.")]
Rate = Annotated[float | None, typer.Option("--rate", help="Learning rate; 0.001 is usual for adamw.")]
Drafters = Annotated[str | None, typer.Option(
    "--drafters", help="For length-predictor: its drafters; default eagle,draft-lm,early-exit.")]
Longest = Annotated[int | None, typer.Option(
    "--longest", help="For length-predictor: longest draft; default 10. For h-rad: a pending draft; default 3.")]
Weight = Annotated[float | None, typer.Option(
    "--weight", help="For length-predictor: cost of too short over too long; default 3.")]
Positions = Annotated[int | None, typer.Option(
    "--positions", help="For length-predictor and h-rad: most training positions; default 100000.")]
Unroll = Annotated[int | None, typer.Option("--unroll", help="For eagle: steps unrolled in training; default 5.")]
Rows = Annotated[int, typer.Option("--rows", help="Tokens of the draft vocabulary.")]
Batch = Annotated[int | None, typer.Option(
    "--batch", help="Padded tokens of a step: 2048 on a CPU, 16384 elsewhere; for canvas-sudoku boards: 16.")]
Begin = Annotated[Path | None, opt.path_option(
    "--from", "A folder of checkpoints: go on from the trained NAME in it, on these data.")]
Watch = Annotated[list[Path] | None, opt.path_option(
    "--watch", "Answers whose greedy ones are measured beside the held-out ones; none is trained on.")]
LearnPrompts = Annotated[bool, typer.Option("--learn-prompts", help="Train on the text of the prompts too.")]
CacheGB = Annotated[float, typer.Option(
    "--cache-gb", help="Room for features in GB: on disk, or in the memory of a GPU.")]
Prompts = Annotated[list[Path] | None, opt.path_option("--prompts", f"Prompts to answer: {opt.PROMPT_LINES}.")]
Features = Annotated[Path | None, opt.path_option(
    "--features", "A folder of features that several fits on the same answers share.")]


def add_to(app: typer.Typer) -> None:
    """Adds these commands to the application."""
    app.command()(answers)
    app.command()(train)
    app.command("break-even")(break_even)


def answers(prompts: Prompts = None,
            forbid: Annotated[list[Path] | None, opt.path_option("--forbid", "Prompts never to answer.")] = None,
            out: Annotated[Path, opt.path_option("--out", "The folder of the answers.")] = Path("results/answers"),
            tokens: Annotated[int, typer.Option("--tokens", help="Output tokens to make, at most.")] = 1_000_000,
            minutes: Annotated[float, typer.Option("--minutes", help="Time limit.")] = 30.0,
            own: Annotated[float, typer.Option("--own", help="Share of prompts that the target makes up.")] = 0.5,
            temperatures: Annotated[str | None, typer.Option(
                "--temperatures", help="Of the answers from one source, in turn; default: 0 for half of them, 0.7 and "
                                       "1.")] = None,
            max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", help="Of an answer, at most.")] = 256,
            batch: Annotated[int | None, typer.Option("--batch", help="Answers at a time; default: 32 on a CPU, 1024 "
                                                      "elsewhere.")] = None,
            target: opt.Target = "smollm2-135m", device: opt.Device = "auto", dtype: opt.Dtype = "auto",
            threads: opt.Threads = None, system: opt.System = None, template_switches: opt.Switches = "",
            seed: opt.Seed = 0) -> None:
    """Answers prompts with the target, many at a time: what drafters are trained on with `train --data`."""
    from specdec_lib.bench.progress import bar
    from specdec_lib.commands.train import answer_prompts

    try:
        with bar("answers") as progress:
            told = answer_prompts(prompts or (), forbid or (), out, tokens, minutes, own, temperatures, max_new_tokens,
                                  batch, target, device, dtype, threads, seed, say, progress,
                                  opt.chat(system, template_switches))
    except KeyboardInterrupt:
        raise Stopped(f"stopped: finished answers are kept in {out}, the same command continues from there") from None
    typer.echo(told)


def train(names: Annotated[list[str], typer.Argument(
              help="One of eagle, draft-lm, diffusion-lm, diffusion-lm-aligned, diffusion-lm-full, early-exit, "
                   "block-diffusion, ngram, length-predictor, h-rad, or several, which share the loaded target and its "
                   "answers; or a model of its own: canvas-sudoku, digits, g2p, g2p-drafter.")],
          target: opt.Target = "smollm2-135m", device: opt.Device = "auto", dtype: opt.Dtype = "auto",
          threads: opt.Threads = None, system: opt.System = None, template_switches: opt.Switches = "",
          minutes: Annotated[float, typer.Option("--minutes", help="Time limit for all steps of a drafter.")] = 30.0,
          prompts: Prompts = None,
          data: Annotated[list[Path] | None, opt.path_option("--data", "Existing answers to train on.")] = None,
          forbid: Annotated[list[Path] | None, opt.path_option("--forbid", "Prompts never to train on.")] = None,
          out: Annotated[Path, opt.path_option("--out", "The folder of the checkpoints.")] = CHECKPOINTS,
          loss: Loss = None, depths: Depths = None, smooth: Smooth = None, labels: Labels = None,
          steps: Steps = None, optimiser: Optimiser = None, attention: Attention = None, rate: Rate = None,
          drafters: Drafters = None, longest: Longest = None, weight: Weight = None, positions: Positions = None,
          unroll: Unroll = None, rows: Rows = 8192, batch: Batch = None, watch: Watch = None, begin: Begin = None,
          learn_prompts: LearnPrompts = False, cache_gb: CacheGB = 10.0, features: Features = None,
          seed: opt.Seed = 0) -> None:
    """Trains drafters for a target: answers, features, a fit, a measurement and a card for each."""
    from specdec_lib.bench.progress import bar
    from specdec_lib.commands.train import train_by_names

    given = {"drafters": drafters and tuple(word.strip() for word in drafters.split(",")), "longest": longest,
             "weight": weight, "positions": positions}
    try:
        with bar(f"train {', '.join(names)}") as progress:
            cards = train_by_names(
                names, target=target, device=device, dtype=dtype, threads=threads, minutes=minutes,
                prompts=prompts or (), data=data or (), forbid=forbid or (), out=out, loss=loss, depths=depths,
                cache=cache_gb * 1e9, seed=seed, say=say, progress=progress, optimiser=optimiser, rate=rate,
                smooth=smooth, labels=labels, steps=steps, attention=attention, unroll=unroll, rows=rows, batch=batch,
                watch=watch or (), begin=begin, learn_prompts=learn_prompts, features=features,
                chat=opt.chat(system, template_switches),
                lengths={word: value for word, value in given.items() if value is not None})
    except KeyboardInterrupt:
        raise Stopped(f"stopped: finished work is kept in {out}, the same command continues from there") from None
    for card in cards:
        typer.echo(card)
    say(f"{'the checkpoint is' if len(names) == 1 else 'the checkpoints are'} in {out}: use"
        f" {'it' if len(names) == 1 else 'them'} with --checkpoints {out}")


def break_even(names: Annotated[list[str] | None, typer.Argument(help="Trained drafters; default: all.")] = None,
               checkpoints: opt.Shelf = None, target: opt.Target = "smollm2-135m", device: opt.Device = "auto",
               dtype: opt.Dtype = "auto", threads: opt.Threads = None,
               depth: Annotated[int, typer.Option("--depth", help="Tokens per draft; cards have rates for 5.")] = 5,
               context: Annotated[int, typer.Option("--context", help="Context length in tokens.")] = 256,
               repeats: Annotated[int, typer.Option("--repeats", help="Repeats per measurement.")] = 11,
               write: Annotated[bool, typer.Option("--write", help="Write it into their cards.")] = False) -> None:
    """Costs of trained drafters, computed and measured, and the tokens per forward needed to break even and reached."""
    from specdec_lib.bench.progress import bar
    from specdec_lib.checkpoints.card import shelf_at
    from specdec_lib.commands.break_even import break_even_table, break_evens

    with bar("break-even") as progress:
        found = break_evens(names or (), target, device, dtype, threads, shelf_at(checkpoints), depth, context, repeats,
                            write, say, progress)
    typer.echo(break_even_table(found))
