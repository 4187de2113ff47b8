"""The command `specdec`. Wrong input gives one sentence on stderr and exit code 2.

Heavy modules are imported by the command that needs them, so that help and refusals are fast.
"""

from __future__ import annotations

from specdec_lib.commands import ctrl_c  # first: it answers Ctrl-C while the rest loads

# isort: split
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from specdec_lib.commands import arguments as opt
from specdec_lib.commands import book_commands, run_commands, training_options
from specdec_lib.commands.canvas import canvas
from specdec_lib.commands.digits_command import digits
from specdec_lib.commands.exit_codes import Stopped, exit_code, flushed, open_streams, say
from specdec_lib.commands.gpu_command import gpu
from specdec_lib.commands.measured_run import measured
from specdec_lib.commands.sweep_command import sweep
from specdec_lib.types import Refusal

OUT = Path("results")
app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None,
                  help="Speculative decoding, measured. README.md shows how to start.")


@app.command("methods")
def list_methods(name: opt.CardName = None,
                 as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
                 checkpoints: opt.Shelf = None) -> None:
    """Lists the methods, and what is missing for those that cannot run."""
    from specdec_lib.checkpoints.card import shelf_at
    from specdec_lib.commands.methods import list_methods, show_listing

    show_listing(list_methods(shelf_at(checkpoints), name), as_json, name is not None)


@app.command("parts")
def list_parts(name: opt.CardName = None,
               as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
               checkpoints: opt.Shelf = None) -> None:
    """Lists the parts of the rooms when, what and how."""
    from specdec_lib.checkpoints.card import shelf_at
    from specdec_lib.commands.methods import list_parts, show_listing

    show_listing(list_parts(shelf_at(checkpoints), name), as_json, name is not None)


@app.command()
def generate(prompt: Annotated[str, typer.Argument(help="The prompt; - reads it from stdin.")],
             method: opt.Method = "ar",
             target: opt.Target = "smollm2-135m", device: opt.Device = "auto", dtype: opt.Dtype = "auto",
             threads: opt.Threads = None,
             max_new_tokens: opt.MaxNew = 128, temperature: opt.Temperature = 0.0, top_k: opt.TopK = 0,
             top_p: opt.TopP = 1.0, seed: opt.Seed = 0,
             store: opt.Store = None,
             cost: opt.KnownCurve = None, draft: opt.Draft = None, checkpoints: opt.Shelf = None,
             diffusion: opt.Diffusion = None, eagle: opt.Eagle = None, dflash: opt.DFlash = None,
             workers: opt.Workers = "auto", system: opt.System = None, template_switches: opt.Switches = "",
             compare: Annotated[str | None, typer.Option("--compare", callback=opt.known_methods, metavar="METHODS",
                                                         help="Two methods or more, separated by commas, decode in "
                                                         "turn, side by side; then a table.")] = None) -> None:
    """Streams an answer, then one line of statistics."""
    options = locals()
    from specdec_lib.bench.options import RunOptions, prepare
    from specdec_lib.commands.generate import read_prompt, stream_answer

    prompt = read_prompt(prompt, sys.stdin)
    if compare is not None:
        from specdec_lib.commands.race import compare_answers, compared

        specs = compared(compare, method)
        compare_answers(prepare(RunOptions.of(options, methods=compare)), specs, prompt)
        return
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
              repeats: opt.Repeats = 1, temperature: opt.Temperature = 0.0, top_k: opt.TopK = 0,
              top_p: opt.TopP = 1.0, seed: opt.Seed = 0, store: opt.Store = None,
              cost: opt.Curve = None, peers: opt.Peers = "", draft: opt.Draft = None, checkpoints: opt.Shelf = None,
              orders: opt.Orders = "file", diffusion: opt.Diffusion = None, eagle: opt.Eagle = None,
              dflash: opt.DFlash = None, workers: opt.Workers = "auto", batch: opt.Batch = 1,
              system: opt.System = None, template_switches: opt.Switches = "", quiet: opt.Quiet = False) -> None:
    """Measures methods and peers prompt by prompt; writes rounds.parquet, decodes.parquet and summary.json."""
    measured(out, locals())
    typer.echo(f"results in {out}")


@app.command()
def report(out: Annotated[Path, opt.path_option("--out", "The folder of the results.")] = OUT / "report",
           methods: opt.Methods = None,
           prompts: opt.Prompts = None, target: opt.Target = "smollm2-135m", device: opt.Device = "auto",
           dtype: opt.Dtype = "auto", threads: opt.Threads = None, max_new_tokens: opt.MaxNew = 96,
           limit: opt.Limit = 12,
           repeats: opt.Repeats = 1, temperature: opt.Temperature = 0.0, top_k: opt.TopK = 0,
           top_p: opt.TopP = 1.0, seed: opt.Seed = 0, store: opt.Store = None,
           cost: opt.Curve = None, peers: opt.Peers = "hf-generate,hf-prompt-lookup", draft: opt.Draft = None,
           checkpoints: opt.Shelf = None, orders: opt.Orders = "file", diffusion: opt.Diffusion = None,
           eagle: opt.Eagle = None, dflash: opt.DFlash = None, workers: opt.Workers = "auto",
           system: opt.System = None, template_switches: opt.Switches = "", quiet: opt.Quiet = False,
           parameters: opt.ReportParameters = None) -> None:
    """Runs a bench, then the report notebook on it; writes report.html into the folder."""
    options = locals()
    from specdec_lib.bench.options import RunOptions, prepare
    from specdec_lib.commands.report import check_values, notebook_values, write_report

    values = notebook_values(parameters or {})     # refused before minutes of bench, not after
    check_values(values, prepare(RunOptions.of(options)))
    measured(out, options)
    say("writing the report")
    typer.echo(f"report in {write_report(out, values, progress=not quiet)}")


@app.command("cost")
def cost_curve(out: Annotated[Path, opt.path_option("--out", "JSON file for the curve.")],
               target: opt.Target = "smollm2-135m", device: opt.Device = "auto", dtype: opt.Dtype = "auto",
               threads: opt.Threads = None,
               contexts: Annotated[str, typer.Option("--contexts", help="Context lengths, comma-separated.")] = "256",
               repeats: Annotated[int, typer.Option("--repeats", help="Forwards per width, or pairs of windows.")] = 11,
               batch: Annotated[str, typer.Option("--batch", help="Sequences in a forward, such as 1,2,4,8: a curve of "
                                                  "batches instead.")] = "",
               draft: opt.Draft = None,
               contention: Annotated[bool, typer.Option("--contention", help="How much slower it is while the draft "
                                                        "model computes on another core: kappa.")] = False) -> None:
    """Measures the cost of a forward by its width on this machine; saves the curve."""
    from specdec_lib.bench.batch_costs import check_batches, measured_batch_curve
    from specdec_lib.bench.options import RunOptions, measured_curve, prepare
    from specdec_lib.bench.progress import bar
    from specdec_lib.commands.contention import check_cost

    if repeats < 1:
        raise Refusal(f"repeats is at least 1, got {repeats}")
    sizes = opt.whole_numbers(contexts, "--contexts")
    check_cost(out, sizes, batch, draft, contention)
    if contention:
        from specdec_lib.commands.contention import measured_contention

        with bar("contention") as progress:
            typer.echo(measured_contention(out, target, device, dtype, threads, draft, sizes[0], repeats, say,
                                           progress))
        return
    batches = sorted(set(opt.whole_numbers(batch, "--batch"))) if batch else []
    if batches:
        check_batches(batches, sizes)
    here = prepare(RunOptions(target=target, device=device, dtype=dtype, threads=threads))
    if batches:
        with bar("cost curve of batches") as progress:
            opened = here.environment(say)
            measured_batch_curve(here.plan, opened, batches, sizes[0], repeats, progress).save(out)
        typer.echo(f"the curve of batches is in {out}")
        return
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
    from specdec_lib.files import check_file_place, write_text

    sizes = opt.whole_numbers(tokens, "--tokens")
    if out is not None:
        check_file_place(out)
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
           checkpoints: opt.Shelf = None, diffusion: opt.Diffusion = None, eagle: opt.Eagle = None,
           dflash: opt.DFlash = None,
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


training_options.add_to(app)


app.command("gpu")(gpu)
app.command("digits")(digits)
app.command("canvas")(canvas)
app.command("sweep")(sweep)


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


book_commands.register(app)
run_commands.register(app)


def run(words: list[str] | None = None) -> int:
    """Runs these words, or prints the help if there are none; expected failures are a sentence and an exit code."""
    return exit_code(app, (sys.argv[1:] if words is None else words) or ["--help"])


def main() -> None:
    open_streams()
    sys.exit(flushed(run()))


ctrl_c.loaded()
if __name__ == "__main__":
    main()
