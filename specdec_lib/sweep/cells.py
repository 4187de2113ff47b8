"""Cells: every point of a grid as a prepared bench run, with a name that is a digest of all that decides its result.

Two texts of one method with the same parameters are one cell. Nothing is loaded here; models are read for their
checksum alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

from specdec_lib.bench.draft_source import FIRST, MODELS
from specdec_lib.bench.options import PreparedRun, RunOptions, prepare
from specdec_lib.bench.prompts import Prompt, balanced
from specdec_lib.bench.provenance import without_folders
from specdec_lib.bench.seq2seq_environment import is_seq2seq
from specdec_lib.checkpoints.card import read_card, shelf_at
from specdec_lib.files import file_sha256, json_sha256
from specdec_lib.hub import locate
from specdec_lib.hub.checksum import folder_sha256
from specdec_lib.sweep.grid import COUNTING, MOST, TIMING, GridFile, PromptSet
from specdec_lib.sweep.specs import SweptSpec, swept_specs, whole_parameters
from specdec_lib.types import Refusal

SCHEMA = 1
NAME = 24                                          # hexadecimal digits of a cell's name
Checksum = Callable[[str], str]


@dataclass(frozen=True)
class Cell:
    """One point of the grid. `settings` are plain data and decide `name`; `named` are the parameters in the grid."""

    name: str
    settings: Mapping[str, Any]
    named: Mapping[str, Any]
    run: PreparedRun
    cores: int | None = 1                          # None = all of a node
    repeats: int = 1

    @property
    def spec(self) -> str:
        """The method as the grid combines it."""
        return str(self.run.plan.methods[-1])      # the first is plain decoding, which a plan adds

    @property
    def timed(self) -> bool:
        return self.settings["mode"] == TIMING


def cells_of(read: GridFile) -> list[Cell]:
    """All cells of a grid, each once; Refusal naming the line of the first value that cannot be run."""
    grid, specs = read.grid, swept_specs(read)
    axes = (range(len(grid.prompts)), grid.targets, grid.dtypes, grid.temperatures, grid.max_new_tokens)
    count = len(specs) * len(grid.seeds)
    for axis in axes:
        count *= len(axis)
    if count > MOST:
        raise read.refusal(f"the grid has {count:,} cells, and a sweep has at most {MOST:,}", "methods")
    checksum = cache(partial(model_sha256, shelf=shelf_of(read)))
    check_settings(read, checksum)
    found: dict[str, Cell] = {}
    for some in product(*axes):
        for swept in specs:
            prepared, chosen = prepared_run(read, swept, *some)
            for seed in grid.seeds:
                run = replace(prepared, plan=replace(prepared.plan, seed=seed), prompts=chosen)
                cell = one_cell(read, swept, run, checksum)
                found.setdefault(cell.name, cell)
    named: dict[str, dict[str, None]] = {}         # a parameter that one entry names is a column of all of that method
    for cell in found.values():
        named.setdefault(cell.settings["method"], {}).update(dict.fromkeys(cell.named))
    return [replace(cell, named={name: cell.settings["parameters"][name] for name in named[cell.settings["method"]]
                                 if name in cell.settings["parameters"]}) for cell in found.values()]


def options_of(read: GridFile, prompts: int, target: str, dtype: str, temperature: float, most: int) -> RunOptions:
    """The options of a cell's run, as the command line would give them; threads are decided where it runs."""
    grid = read.grid
    file = grid.prompts[prompts].file
    return RunOptions("ar", None if file is None else read.beside(file), model_name(read, target), grid.device, dtype,
                      1, most, temperature=temperature, cost=None if grid.cost is None else read.beside(grid.cost),
                      draft=None if grid.draft is None else model_name(read, grid.draft),
                      checkpoints=shelf_of(read), workers="inline" if grid.mode == COUNTING else "auto")


def model_name(read: GridFile, name: str) -> str:
    """A model's name, or its path where it is a folder beside the grid's file."""
    given = name in (locate.DEFAULT, FIRST, *MODELS) or is_seq2seq(name)
    local = not given and (locate.looks_like_path(name) or read.beside(name).is_dir())
    return str(read.beside(name)) if local else name


def shelf_of(read: GridFile) -> Path | None:
    """The grid's folder of checkpoints; None = the shipped ones."""
    return None if read.grid.checkpoints is None else read.beside(read.grid.checkpoints)


def check_settings(read: GridFile, checksum: Checksum) -> None:
    """Refuses, with its line, a file or a model of the grid that plain decoding could not be run with."""
    grid = read.grid
    for place, target in enumerate(grid.targets):
        options = options_of(read, 0, target, grid.dtypes[0], grid.temperatures[0], grid.max_new_tokens[0])
        for key in ("checkpoints", "draft", "cost"):
            try:
                prepare(replace(options, **{other: None for other in ("checkpoints", "draft", "cost", "prompts")
                                            if other != key}))
            except Refusal as why:
                raise read.refusal(why, key) from None
        try:
            checksum(options.target)
        except Refusal as why:
            raise read.refusal(why, "targets", place) from None
    sets: dict[tuple[str, str], int] = {}          # name of a file and question_id, which rows are read by: its set
    for place in range(len(grid.prompts)):
        options = options_of(read, place, grid.targets[0], grid.dtypes[0], grid.temperatures[0], grid.max_new_tokens[0])
        try:
            here = prepare(options)
            keys = [(here.plan.prompts, str(one.question_id))
                    for one in chosen_prompts(grid.prompts[place], here.prompts)]
        except Refusal as why:
            raise read.refusal(why, "prompts", place) from None
        for file, question in keys:
            if (file, question) in sets:
                raise read.refusal(f"this set and set {sets[file, question] + 1} share prompt {question} of {file},"
                                   " whose rows would be added up: write a grid for each set", "prompts", place)
        sets |= dict.fromkeys(keys, place)


def prepared_run(read: GridFile, swept: SweptSpec, prompts: int, *settings: Any
                 ) -> tuple[PreparedRun, tuple[Prompt, ...]]:
    """The run of one method, and its prompts; Refusal with the method's line."""
    try:
        prepared = prepare(replace(options_of(read, prompts, *settings), methods=str(swept.spec)))
        return prepared, chosen_prompts(read.grid.prompts[prompts], prepared.prompts)
    except Refusal as why:
        raise read.refusal(why, "methods", swept.axis) from None


def chosen_prompts(wanted: PromptSet, prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
    """The prompts of a set, cut to their first turns."""
    families = dict.fromkeys(prompt.family for prompt in prompts)
    unknown = [family for family in wanted.families or () if family not in families]
    if unknown:
        raise Refusal(f"the file has no prompts of the family {unknown[0]!r}; it has {', '.join(families)}")
    kept = [prompt for prompt in prompts if wanted.families is None or prompt.family in wanted.families]
    return tuple(first_turns(prompt, wanted.turns) for prompt in balanced(kept, wanted.limit))


def first_turns(prompt: Prompt, turns: int | None) -> Prompt:
    """The prompt with so many turns at most; references that belong to one turn each are cut as well."""
    if turns is None or len(prompt.turns) <= turns:
        return prompt
    one_each = prompt.reference is not None and len(prompt.reference) == len(prompt.turns)
    return replace(prompt, turns=prompt.turns[:turns],
                   reference=prompt.reference[:turns] if prompt.reference and one_each else prompt.reference)


def one_cell(read: GridFile, swept: SweptSpec, run: PreparedRun, checksum: Checksum) -> Cell:
    """The cell of a prepared run, named."""
    grid, plan = read.grid, run.plan
    timed = grid.mode == TIMING
    spec = swept.spec
    method = "@".join((spec.name, *(part.name for part in spec.replaced.values())))
    settings = {"schema": SCHEMA, "mode": grid.mode, "method": method, "parameters": plain(whole_parameters(spec)),
                "target": without_folders(plan.target),
                "target_sha256": checksum(plan.target),
                "prompts": plan.prompts, "prompts_sha256": json_sha256([prompt_data(one) for one in run.prompts]),
                "device": plan.device, "dtype": plan.dtype, "temperature": plan.temperature, "seed": plan.seed,
                "max_new_tokens": plan.max_new_tokens, "cost_sha256": plan.cost and file_sha256(Path(plan.cost)),
                "draft": plan.draft and without_folders(plan.draft), "draft_sha256": draft_sha256(plan.draft, checksum),
                "checkpoints": dict(plan.checkpoints or {})}
    if timed:
        settings |= {"cores": grid.cores or "all", "repeats": grid.repeats}
    return Cell(json_sha256(settings)[:NAME], settings, swept.named, run, grid.cores if timed else 1, grid.repeats)


def plain(value: Any) -> Any:
    """The value as JSON holds it."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value if value is None or isinstance(value, str | int | float | bool) else repr(value)


def prompt_data(prompt: Prompt) -> list:
    told = [prompt.question_id, prompt.category, list(prompt.turns), prompt.reference and list(prompt.reference)]
    return told if prompt.system is None else [*told, prompt.system]


def draft_sha256(draft: str | None, checksum: Checksum) -> str | None:
    """The checksum of a draft model that is none of our checkpoints."""
    return None if draft is None or draft in (*MODELS, FIRST) else checksum(draft)


def model_sha256(name: str, shelf: Path | None = None) -> str:
    """A checksum of a model's weights, configuration and tokenizer, whatever it is called and wherever it lies."""
    if is_seq2seq(name):
        return read_card(shelf_at(shelf), name)["sha256"]
    return folder_sha256(locate.model_folder(name))
