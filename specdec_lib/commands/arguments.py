"""Options shared by several commands, with their help. Imports nothing heavy: help and refusals are fast.

Names of methods and parts are checked while options are read, from the cards alone, before torch is loaded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from specdec_lib.files import refuse_special
from specdec_lib.types import Refusal

DEFAULT_METHODS = ("ar,prompt-lookup,sam,token-recycling,sam+token-recycling,draft-model,eagle2,respec,"
                   "diffuspec")                    # as in bench/plan.py
PROMPT_LINES = "JSON lines with turns, as Spec-Bench has them, or prompt, question, instruction or messages"

def known_methods(specs: str | None) -> str | None:
    """These comma-separated specs, unchanged; Refusal for the first that names no method or part."""
    from specdec_lib import catalog
    from specdec_lib.specs import split_specs

    for spec in split_specs(specs or ""):
        catalog.method_spec(spec)
    return specs


def known_method(spec: str) -> str:
    """This spec, unchanged; Refusal where it names no method or part."""
    from specdec_lib import catalog

    catalog.method_spec(spec)
    return spec


def known_parts(words: str) -> str:
    """These comma-separated words PART or NAME=PART, unchanged; Refusal for the first that names no part."""
    from specdec_lib import catalog

    for word in filter(None, map(str.strip, words.split(","))):
        name, _, part = word.partition("=")
        catalog.part_card(part or name)
    return words


def some_path(word: str | Path) -> Path:
    """A path that is not empty, which would mean the folder that one is in, and no pipe. Defaults come as paths."""
    if not str(word).strip():
        raise typer.BadParameter("it is empty: give a path, or . for the folder that you are in")
    try:
        refuse_special(Path(word))
    except Refusal as why:
        raise typer.BadParameter(str(why)) from None
    return Path(word)


def path_option(name: str, help: str) -> Any:
    """An option whose value is a path."""
    return typer.Option(name, help=help, parser=some_path, metavar="PATH")


def whole_numbers(words: str, option: str) -> list[int]:
    """The numbers of a comma-separated list; BadParameter for anything but whole numbers from 1 to a million."""
    numbers = [int(word) if word.strip().isascii() and word.strip().isdigit() and len(word.strip()) <= 7 else 0
               for word in words.split(",")]
    if not all(1 <= number <= 1_000_000 for number in numbers):
        shown = words if len(words) <= 60 else f"{words[:57]}..."
        raise typer.BadParameter(f"{option} takes whole numbers from 1 to 1,000,000 with commas between, got {shown!r}")
    return numbers


def chat(system: str | None, switches: str) -> Any:
    """The settings of all conversations that these options ask for."""
    from specdec_lib.hub.chat_settings import chat_settings
    from specdec_lib.specs import split_specs

    return chat_settings(system, split_specs(switches))


def report_parameters(context: typer.Context, path: Path | None) -> dict[str, str] | None:
    """Reads the file of --parameters before other options; what the command line says wins over it.

    What is an option of the command becomes its value; returned are the words for the notebook's parameters.
    """
    if path is None:
        return None
    from specdec_lib.commands.parameter_file import read_parameters, split_parameters

    options = {param.name: param for param in context.command.params if param.name not in ("parameters", "help")}
    context.default_map, words = split_parameters(read_parameters(path), options, path)
    return words


Methods = Annotated[str | None, typer.Option("--methods", callback=known_methods, show_default=DEFAULT_METHODS,
                                             help="Names, separated by commas, as `specdec methods` lists them; by "
                                             "default those of these that target and checkpoints allow.")]
CardName = Annotated[str | None, typer.Argument(metavar="NAME", show_default=False,
                                                help="One of them, with its parameters and their defaults.")]
Method = Annotated[str, typer.Option("--method", callback=known_method, help="A name that `specdec methods` lists.")]
Prompts = Annotated[Path | None, path_option("--prompts", f"{PROMPT_LINES}; default: the shipped file.")]
Target = Annotated[str, typer.Option("--target", help="A hub name, a local folder, or the default model.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
Dtype = Annotated[str, typer.Option("--dtype", help="auto (bf16 where it is fast), float32, bfloat16, int4 (CPU), ...")]
Threads = Annotated[int | None, typer.Option("--threads", help="torch threads; default: all cores.")]
Workers = Annotated[str, typer.Option("--workers", help="Where methods that draft while the target verifies run their "
                                      "drafter: process, thread, inline (in turn) or auto.")]
MaxNew = Annotated[int, typer.Option("--max-new-tokens", help="Maximum output tokens.")]
Limit = Annotated[int | None, typer.Option("--limit", help="At most this many, spread evenly over the families.")]
Batch = Annotated[int, typer.Option("--batch", help="Sequences that share a forward; above 1, the first turn of each "
                                    "prompt is decoded, by ar, prompt-lookup, sam, token-recycling, "
                                    "sam+token-recycling, draft-model, eagle or, for the target g2p, specdec.")]
Repeats = Annotated[int, typer.Option("--repeats", help="Measurements of each decode.")]
Temperature = Annotated[float, typer.Option("--temperature", help="0 is greedy.")]
TopK = Annotated[int, typer.Option("--top-k", help="Sample from the most probable tokens, this many; 0: from all.")]
TopP = Annotated[float, typer.Option("--top-p", help="Sample from the fewest tokens with this much probability, after "
                                     "--top-k; 1: from all.")]
System = Annotated[str | None, typer.Option("--system", metavar="TEXT", help="A system turn before prompts that have "
                                            "none; default: the chat template's own.")]
Switches = Annotated[str, typer.Option("--template-switches", metavar="NAME=VALUE,...", show_default=False,
                                       help="What the chat template reads by name, such as enable_thinking=false.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of all random numbers.")]
Store = Annotated[Path | None, path_option("--store", "A file that `specdec store` made, for retrieval.")]
Curve = Annotated[Path | None, path_option("--cost", "A saved cost curve; default: measured at the start, in a bench"
                                           " also refitted to its forwards after each prompt.")]
KnownCurve = Annotated[Path | None, path_option("--cost", "A saved cost curve; default: 8 nodes, nothing is measured.")]
Peers = Annotated[str, typer.Option("--peers", help="hf-generate,hf-prompt-lookup,hf-assisted (transformers); "
                                    "llama.cpp,llama.cpp-lookup (the default target's own file).")]
Draft = Annotated[str | None, typer.Option("--draft", help="A folder, a hub name, draft-lm, ngram or first-layers; "
                                           "default: draft-lm if it fits the target, else first-layers.")]
Diffusion = Annotated[str | None, typer.Option("--diffusion", help="A folder or hub name of a Dream or LLaDA model, "
                                               "instead of diffusion-lm.")]
Eagle = Annotated[str | None, typer.Option("--eagle", help="A folder or hub name of a published EAGLE head, instead of "
                                           "eagle.")]
DFlash = Annotated[str | None, typer.Option("--dflash", help="A folder or hub name of a published DFlash drafter, "
                                            "instead of block-diffusion.")]
Shelf = Annotated[Path | None, path_option("--checkpoints", "Folder of trained drafters; default: the shipped.")]
Orders = Annotated[str, typer.Option("--orders", help="Prompt orders for methods that learn across prompts: file, "
                                     "shuffled or file,shuffled.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar, and a table in plain text.")]
ReportParameters = Annotated[Any, typer.Option("--parameters", parser=some_path, metavar="FILE", is_eager=True,
                                               callback=report_parameters, show_default=False,
                                               help="A YAML file of values: this command's options (max_new_tokens: "
                                               "64) and the notebook's `method` and `question`; options on the command "
                                               "line win.")]
