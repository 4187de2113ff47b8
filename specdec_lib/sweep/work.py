"""What a worker does with one cell: decodes its prompts by the bench's own runners, and returns counts as plain data.

Counting cells have one thread and return no seconds. A timing cell decodes plainly beside its method, prompt by prompt
in one process, as a bench does; it has its cores, or its GPU, for itself.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from time import sleep
from typing import Any

from filelock import FileLock, Timeout

from specdec_lib.bench import run
from specdec_lib.bench.environment import Environment, open_environment
from specdec_lib.bench.options import PreparedRun, digests
from specdec_lib.bench.prompts import Prompt
from specdec_lib.bench.provenance import commit, machine, now, versions
from specdec_lib.bench.results import Decode
from specdec_lib.bench.runners import make_runners
from specdec_lib.catalog import checkpoints_among
from specdec_lib.files import cache_home
from specdec_lib.models.threads import for_model
from specdec_lib.sweep.cells import Cell, draft_sha256, model_sha256
from specdec_lib.types import Refusal

PLAIN = "ar"
WAIT = 0.2                                         # seconds between two looks for free cores
CORES = "sweep-cores"                              # folder of the locks, in the cache


@dataclass(frozen=True)
class CellResult:
    """What became of a cell: a row of counts for each prompt and where they come from, or why it failed."""

    rows: tuple[dict[str, Any], ...] = ()
    made: dict[str, Any] | None = None
    failed: str = ""


def run_cell(cell: Cell, cores: int = 1, check: bool = False) -> CellResult:
    """Runs a cell on so many cores of this machine; a failure is a sentence in the result, not an exception.

    With `check` the models and checkpoints of this machine are compared with those that the cell was named for.
    """
    try:
        if cell.timed and not cell.run.plan.device.startswith("cuda"):
            with pinned(cores):
                return measured(cell, cores, check)
        return measured(cell, cores if cell.timed else 1, check)
    except Refusal as why:
        return CellResult(failed=str(why))
    except Exception as error:                     # a bug: the other cells go on, and this one is named
        said = (str(error) or "no reason given").splitlines()[0]
        return CellResult(failed=f"{type(error).__name__}: {said}")


def measured(cell: Cell, threads: int, check: bool) -> CellResult:
    """The cell's prompts, decoded with so many threads."""
    here = replace(cell.run, plan=replace(cell.run.plan, threads=threads))
    if check:
        refuse_other_files(cell)
    world = environment(here)
    runners = make_runners(here.plan, world, lambda: here.saved_curve)
    plain = next(one for one in runners if one.name == PLAIN)
    mine = next(one for one in runners if one.name == cell.spec)
    group = [plain, mine] if cell.timed and mine is not plain else [mine]
    if cell.timed:
        run.warm_up(world, group, lambda name: None)
    rows = []
    for place, prompt in enumerate(here.prompts):
        first = run.fitting(world, prompt, prompt.asked())
        known = [] if plain in group else run.plain_answers(prompt, [], world, plain)
        decodes = run.run_prompt(place, prompt, first, world, group, cell.repeats, known=known)
        rows.append(counted(prompt, [one for one in decodes if one.method == mine.name])
                    | (timed(decodes, mine.name) if cell.timed else {}))
    return CellResult(tuple(rows), {"created": now(), **source(), "machine": machine(), "node": node()})


def refuse_other_files(cell: Cell) -> None:
    """Raises Refusal where a model or a checkpoint is another on this machine than the one the cell was named for."""
    told, run = cell.settings, cell.run
    checksum = partial(model_sha256, shelf=run.shelf)
    found = [(f"target {told['target']}", told["target_sha256"], checksum(run.plan.target)),
             (f"draft model {told['draft']}", told["draft_sha256"], draft_sha256(run.plan.draft, checksum))]
    own = digests(told["checkpoints"], run.shelf, run.plan.target) or {}
    found += [(f"checkpoint {name}", sha256, own[name]) for name, sha256 in told["checkpoints"].items()]
    for what, named, here in found:
        if named != here:
            raise Refusal(f"the {what} of this node has other files than the driver's")


def counted(prompt: Prompt, decodes: Sequence[Decode]) -> dict[str, Any]:
    """The counts of one prompt, totals over its turns and repeats; no seconds."""
    rounds = [row for one in decodes for row in one.outcome.rows]
    scores = [one.score for one in decodes if one.score is not None]
    lower = [row.not_best for row in rounds]
    said = hashlib.sha256(repr([one.outcome.tokens for one in decodes]).encode()).hexdigest()
    return {"question_id": str(prompt.question_id), "family": prompt.family,
            "prompt_tokens": sum(one.prompt_tokens for one in decodes),
            "tokens": sum(one.outcome.bought for one in decodes),
            "forwards": sum(one.outcome.forwards for one in decodes),
            "drafted": sum(row.drafted for row in rounds), "accepted": sum(row.accepted for row in rounds),
            "nll": float(sum(row.nll for row in rounds)),
            "not_best": None if None in lower else sum(number or 0 for number in lower),
            "score": sum(scores) / len(scores) if scores else None, "output": said[:16]}


def timed(decodes: Sequence[Decode], method: str) -> dict[str, Any]:
    """Seconds of the method and of plain decoding beside it, without prefill."""
    plain = [one for one in decodes if one.method == PLAIN]
    own = [one for one in decodes if one.method == method]
    return {"seconds": sum(one.cost.seconds for one in own), "prefill": sum(one.outcome.prefill for one in own),
            "plain_tokens": sum(one.outcome.bought for one in plain),
            "plain_seconds": sum(one.cost.seconds for one in plain)}


def environment(here: PreparedRun) -> Environment:
    """The loaded models of this run: those of the last cell where they are the same."""
    plan = here.plan
    for_model(plan.threads)
    opened = loaded(plan.target, plan.device, plan.dtype, plan.threads, plan.draft, here.shelf, "draft" in here.needs)
    for name in checkpoints_among(here.needs):
        opened.checkpoints[name]                   # refused now, before anything is decoded
    return opened


@lru_cache(maxsize=1)
def loaded(target: str, device: str, dtype: str, threads: int | None, draft: str | None, shelf: Path, drafts: bool
           ) -> Environment:
    return open_environment(target, device, dtype, threads, draft, shelf=shelf, drafts=drafts)


@cache
def source() -> dict[str, Any]:
    """Commit and versions, which do not change while a process runs."""
    return {**commit(), "versions": versions()}


def node() -> str:
    """The node of Ray's that this process belongs to, shortened; "" outside of Ray."""
    try:
        import ray
    except ImportError:
        return ""
    return ray.get_runtime_context().get_node_id()[:8] if ray.is_initialized() else ""


@contextmanager
def pinned(cores: int) -> Iterator[tuple[int, ...]]:
    """This process on so many cores, which no other timing cell of this machine has meanwhile; waits for them.

    Refusal where the process may use fewer cores at all. Where a system pins nothing, only the lock is held.
    """
    may = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    if cores > len(may):
        raise Refusal(f"a cell wants {cores} cores, and this process may use {len(may)}")
    folder = cache_home() / CORES
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        while len(mine := taken(may, cores, folder, held)) < cores:
            held.close()
            sleep(WAIT)
        held.callback(pin, may)
        pin(mine)
        yield tuple(mine)


def taken(may: Sequence[int], cores: int, folder: Path, held: ExitStack) -> list[int]:
    """The cores whose locks were free, at most so many; `held` releases them."""
    mine: list[int] = []
    for core in may:
        lock = FileLock(folder / f"{core}.lock")
        try:
            lock.acquire(blocking=False)
        except Timeout:
            continue
        held.callback(lock.release)
        mine.append(core)
        if len(mine) == cores:
            break
    return mine


def pin(cores: Sequence[int]) -> None:
    """All threads of this process on these cores: those that torch has started already as well."""
    threads = Path("/proc/self/task")
    if hasattr(os, "sched_setaffinity") and threads.is_dir():
        for thread in threads.iterdir():
            try:
                os.sched_setaffinity(int(thread.name), cores)
            except ProcessLookupError:             # it has ended
                continue
