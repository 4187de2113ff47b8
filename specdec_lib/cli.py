"""The command `specdec`. Wrong input gives one sentence on stderr and exit code 2.

Heavy modules are imported by the command that needs them, so that help and refusals are fast.
"""

from __future__ import annotations

from specdec_lib.commands import ctrl_c  # first: it answers Ctrl-C while the rest loads

# isort: split
import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from specdec_lib.commands import arguments as opt
from specdec_lib.commands.exit_codes import Stopped, exit_code, say
from specdec_lib.types import Refusal

OUT = Path("results")
app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None,
                  help="Speculative decoding, measured. README.md shows how to start.")


@app.command("methods")
def list_methods(as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
                 checkpoints: opt.Shelf = None) -> None:
    """Lists the methods, and what is missing for those that cannot run."""
    from specdec_lib.checkpoints.card import shelf_at
    from specdec_lib.commands.methods import list_methods, show_listing

    show_listing(list_methods(shelf_at(checkpoints)), as_json)


@app.command("parts")
def list_parts(as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
               checkpoints: opt.Shelf = None) -> None:
    """Lists the parts of the rooms when, what and how."""
    from specdec_lib.checkpoints.card import shelf_at
    from specdec_lib.commands.methods import list_parts, show_listing

    show_listing(list_parts(shelf_at(checkpoints)), as_json)


@app.command()
def generate(prompt: Annotated[str, typer.Argument(help="The prompt; - reads it from stdin.")],
             method: opt.Method = "ar",
             target: opt.Target = "smollm2-135m", device: opt.Device = "auto", dtype: opt.Dtype = "auto",
             threads: opt.Threads = None,
             max_new_tokens: opt.MaxNew = 128, temperature: opt.Temperature = 0.0, seed: opt.Seed = 0,
             store: opt.Store = None,
             cost: opt.Curve = None, draft: opt.Draft = None, checkpoints: opt.Shelf = None,
             diffusion: opt.Diffusion = None) -> None:
    """Streams an answer, then one line of statistics."""
    options = locals()
    from specdec_lib.bench.options import RunOptions, prepare
    from specdec_lib.commands.generate import read_prompt, stream_answer

    prompt = read_prompt(prompt, sys.stdin)
    here = prepare(RunOptions.of(options, methods=method))
    try:
        for piece in stream_answer(here.plan, method, here.environment(say), here.saved_curve, prompt):
            typer.echo(piece, nl=False)
            sys.stdout.flush()
    except KeyboardInterrupt:
        raise Stopped("\nstopped: nothing is kept, the same command starts over") from None


@app.command("bench")
def run_bench(out: Annotated[Path, opt.path_option("--out", "The folder of the results.")] = OUT / "bench",
              methods: opt.Methods = None,
              prompts: opt.Prompts = None, target: opt.Target = "smollm2-135m", device: opt.Device = "auto",
              dtype: opt.Dtype = "auto", threads: opt.Threads = None, max_new_tokens: opt.MaxNew = 128,
              limit: opt.Limit = None,
              repeats: opt.Repeats = 1, temperature: opt.Temperature = 0.0, seed: opt.Seed = 0, store: opt.Store = None,
              cost: opt.Curve = None, peers: opt.Peers = "", draft: opt.Draft = None, checkpoints: opt.Shelf = None,
              orders: opt.Orders = "file", diffusion: opt.Diffusion = None) -> None:
    """Measures methods and peers prompt by prompt; writes rounds.parquet, decodes.parquet and summary.json."""
    measured(out, locals())
    typer.echo(f"results in {out}")


@app.command()
def report(out: Annotated[Path, opt.path_option("--out", "The folder of the results.")] = OUT / "report",
           methods: opt.Methods = None,
           prompts: opt.Prompts = None, target: opt.Target = "smollm2-135m", device: opt.Device = "auto",
           dtype: opt.Dtype = "auto", threads: opt.Threads = None, max_new_tokens: opt.MaxNew = 96,
           limit: opt.Limit = 12,
           repeats: opt.Repeats = 1, temperature: opt.Temperature = 0.0, seed: opt.Seed = 0, store: opt.Store = None,
           cost: opt.Curve = None, peers: opt.Peers = "hf-generate,hf-prompt-lookup", draft: opt.Draft = None,
           checkpoints: opt.Shelf = None, orders: opt.Orders = "file", diffusion: opt.Diffusion = None) -> None:
    """Runs a bench, then the report notebook on it; writes report.html into the folder."""
    options = locals()
    from specdec_lib.commands.report import report_notebook, write_report

    report_notebook()                              # refused before minutes of bench, not after
    measured(out, options)
    say("writing the report")
    typer.echo(f"report in {write_report(out)}")


@app.command("cost")
def cost_curve(out: Annotated[Path, opt.path_option("--out", "JSON file for the curve.")],
               target: opt.Target = "smollm2-135m", device: opt.Device = "auto", dtype: opt.Dtype = "auto",
               threads: opt.Threads = None,
               contexts: Annotated[str, typer.Option("--contexts", help="Context lengths, comma-separated.")] = "256",
               repeats: Annotated[int, typer.Option("--repeats", help="Forwards per width.")] = 11) -> None:
    """Measures the cost of a forward by its width on this machine; saves the curve."""
    from specdec_lib.bench.options import RunOptions, measured_curve, prepare
    from specdec_lib.bench.progress import bar

    if repeats < 1:
        raise Refusal(f"repeats is at least 1, got {repeats}")
    sizes = opt.whole_numbers(contexts, "--contexts")
    here = prepare(RunOptions(target=target, device=device, dtype=dtype, threads=threads))
    with bar("cost curve") as progress:
        curve = measured_curve(here, tuple(sorted(set(sizes))), repeats, progress,
                               here.environment(say))
    curve.save(out)
    typer.echo(f"{curve.nodes()} draft nodes cost at most 1.25 plain forwards here; the curve is in {out}")


@app.command()
def overhead(method: Annotated[str, typer.Option("--method", callback=opt.known_method,
                                                 help="respec, or a method with its trigger.")] = "respec",
             tokens: Annotated[str, typer.Option(help="Context lengths, comma-separated.")] = "500,1000,2000,4000",
             nodes: Annotated[int, typer.Option("--nodes", help="Nodes per draft.")] = 8, seed: opt.Seed = 0,
             out: Annotated[Path | None, opt.path_option("--out", "JSON file for the result.")] = None) -> None:
    """Measures the time per round of trigger, scores and trie as a text grows, without a model."""
    from specdec_lib.bench import overhead
    from specdec_lib.bench.progress import bar
    from specdec_lib.bench.provenance import provenance
    from specdec_lib.files import write_text

    sizes = opt.whole_numbers(tokens, "--tokens")
    with bar("overhead") as progress:
        found = overhead.overheads(method, sizes, nodes, seed=seed,
                                   progress=progress)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        kept = overhead.as_dict(found, method, nodes, seed, provenance())
        write_text(out, json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    typer.echo(f"{overhead.overhead_table(found)}\nmilliseconds a round: {overhead.verdict(found)}")


@app.command()
def record(out: Annotated[Path, opt.path_option("--out", "The folder of the recordings.")] = OUT / "recordings",
           drafters: Annotated[str, typer.Option("--drafters", callback=opt.known_parts,
                                                 help="Parts, or NAME=PART; comma-separated.")] = "",
           prompts: opt.Prompts = None, target: opt.Target = "smollm2-135m", device: opt.Device = "auto",
           dtype: opt.Dtype = "auto",
           threads: opt.Threads = None, max_new_tokens: opt.MaxNew = 128, limit: opt.Limit = 6, draft: opt.Draft = None,
           checkpoints: opt.Shelf = None, diffusion: opt.Diffusion = None,
           add: Annotated[bool, typer.Option("--add", help="Add missing drafters to existing recordings; the "
                                             "target has to generate the same text again.")] = False) -> None:
    """Records greedy decodes with every drafter's proposals, for notebooks to replay without a model."""
    options = locals()
    from specdec_lib.bench.options import RunOptions, prepare
    from specdec_lib.commands.record import DRAFTERS, record_all
    from specdec_lib.recordings.record import drafter_names

    names = [name.strip() for name in drafters.split(",") if name.strip()]
    here = prepare(RunOptions.of(options, parts=tuple(drafter_names(names or DRAFTERS).values())))
    try:
        for path in record_all(here.prompts, here.environment(say), out, names, max_new_tokens, say, add):
            typer.echo(str(path))
    except KeyboardInterrupt:
        raise Stopped(f"stopped: finished recordings stay in {out}, the same command continues from there") from None


@app.command()
def train(name: Annotated[str, typer.Argument(
              help="eagle, draft-lm, diffusion-lm, diffusion-lm-aligned, diffusion-lm-full, early-exit, "
                   "block-diffusion, ngram or length-predictor.")],
          target: opt.Target = "smollm2-135m", device: opt.Device = "auto", dtype: opt.Dtype = "auto",
          threads: opt.Threads = None,
          minutes: Annotated[float, typer.Option("--minutes", help="Time limit for all steps.")] = 30.0,
          prompts: Annotated[list[Path] | None, opt.path_option("--prompts", "Prompts to generate from.")] = None,
          data: Annotated[list[Path] | None, opt.path_option("--data", "Existing answers to train on.")] = None,
          forbid: Annotated[list[Path] | None, opt.path_option("--forbid", "Prompts never to train on.")] = None,
          out: Annotated[Path, opt.path_option("--out", "The folder of the checkpoints.")] = OUT / "checkpoints",
          loss: Annotated[str | None, typer.Option("--loss", help="ce (the default), tv or mixed.")] = None,
          depths: Annotated[str | None, typer.Option("--depths", help="Depth weights: decay (the default, but not "
                                                            "for diffusion-lm-aligned), dpace or streak.")] = None,
          smooth: Annotated[float | None, typer.Option("--smooth", help="Smoothing for dpace, streak: 0 to 1.")] = None,
          optimiser: Annotated[str | None, typer.Option("--optimiser", help="muon (the default) or adamw.")] = None,
          attention: Annotated[str | None, typer.Option("--attention", help="For diffusion-lm: causal (the default) "
                                                        "or full, which makes diffusion-lm-full.")] = None,
          rate: Annotated[float | None, typer.Option("--rate", help="Learning rate; 0.001 is usual for adamw.")] = None,
          drafters: Annotated[str | None, typer.Option("--drafters", help="For length-predictor: its drafters; default "
                                                       "eagle,draft-lm,early-exit.")] = None,
          longest: Annotated[int | None, typer.Option("--longest", help="For length-predictor: longest draft; "
                                                      "default 10.")] = None,
          weight: Annotated[float | None, typer.Option("--weight", help="For length-predictor: cost of too short over "
                                                       "too long; default 3.")] = None,
          positions: Annotated[int | None, typer.Option("--positions", help="For length-predictor: most training "
                                                        "positions; default 100000.")] = None,
          cache_gb: Annotated[float, typer.Option("--cache-gb", help="Disk for features, in GB.")] = 10.0,
          seed: opt.Seed = 0) -> None:
    """Trains a drafter for a target: answers, features, a fit, a measurement and a card."""
    from specdec_lib.bench.progress import bar
    from specdec_lib.commands.train import train_by_name

    given = {"drafters": drafters and tuple(word.strip() for word in drafters.split(",")), "longest": longest,
             "weight": weight, "positions": positions}
    try:
        with bar(f"train {name}") as progress:
            card = train_by_name(name, target=target, device=device, dtype=dtype, threads=threads, minutes=minutes,
                                 prompts=prompts or (), data=data or (), forbid=forbid or (), out=out, loss=loss,
                                 depths=depths, cache=cache_gb * 1e9, seed=seed, say=say, progress=progress,
                                 optimiser=optimiser, rate=rate, smooth=smooth, attention=attention,
                                 lengths={word: value for word, value in given.items() if value is not None})
    except KeyboardInterrupt:
        raise Stopped(f"stopped: finished work is kept in {out}, the same command continues from there") from None
    typer.echo(card)
    say(f"the checkpoint is in {out}: use it with --checkpoints {out}")


@app.command("break-even")
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


@app.command()
def store(sources: Annotated[list[Path], opt.path_option("--from", "A text file, JSON lines (output or text), a "
                                                         "folder of answers; may be repeated.")],
          out: Annotated[Path, opt.path_option("--out", "The file of the store.")],
          target: opt.Target = "smollm2-135m",
          threads: Annotated[int | None, typer.Option("--threads", help="Threads that encode; default: all cores.")]
          = None) -> None:
    """Builds a static store from texts and answers, for methods that retrieve from one: `--store FILE`."""
    from specdec_lib.bench.progress import bar
    from specdec_lib.commands.store import build_from

    try:
        with bar("store") as progress:
            built = build_from(sources, out, target, say, progress, threads)
    except KeyboardInterrupt:
        raise Stopped(f"stopped: {out} is as it was before, the same command starts over") from None
    typer.echo(f"{built.tokens:,} tokens, documents: {built.documents:,}; use them with --store {out}")


@app.command()
def lab() -> None:
    """Opens the tour in JupyterLab."""
    from specdec_lib.commands.report import notebook

    tour = notebook("00_tour")
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", str(tour)])


def measured(out: Path, options: dict) -> None:
    """Runs or resumes the bench that the command's options describe, with a bar; prints its warnings at the end."""
    from specdec_lib.bench.options import RunOptions, bench_prepared, prepare
    from specdec_lib.bench.progress import bar

    here = prepare(RunOptions.of(options))
    try:
        with bar("bench") as progress:
            summary = bench_prepared(here, out, progress, say)
    except KeyboardInterrupt:
        raise Stopped(f"stopped: finished prompts are kept in {out}, the same command continues from there") from None
    for warning in summary.get("settings", {}).get("warnings", []):
        say(warning)


def run(words: list[str] | None = None) -> int:
    """Runs these words; every expected failure is one sentence on stderr and an exit code."""
    return exit_code(app, words)


def main() -> None:
    sys.exit(run())


ctrl_c.loaded()
if __name__ == "__main__":
    main()
