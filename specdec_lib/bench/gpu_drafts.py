"""Where a decode's time goes on a GPU: each captured piece of work alone, and the parts of a round.

Of every method one answer is decoded twice. The first time captures; the second is measured. Then each graph that it
launched runs again and again without a host between: what the device needs, whatever Python does around it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean
from time import perf_counter
from typing import Any

from specdec_lib import catalog
from specdec_lib.bench.environment import Environment
from specdec_lib.bench.gpu_cells import CellFile, replayed
from specdec_lib.bench.run import WARM_UP
from specdec_lib.cards import Kit
from specdec_lib.loop import decode
from specdec_lib.models.llama.cuda_graph import WORKS, CapturedWork
from specdec_lib.models.llama.graph_capture import captures
from specdec_lib.types import Session

NODES = (10, 20, 31)                               # budgets of trees, the last one from an H200's cost curve
SPECS = ("ar", "eagle", "eagle2", "respec", "block-diffusion", "draft-model(depth=4)", "diffuspec",
         "pearl(depth=4,workers='inline')", "pearl(depth=4,workers='thread')")
TREES = ("eagle2", "respec")
PARTS = ("when", "what", "target", "how")


def measure_drafts(file: CellFile, world: Environment, check: Callable[[], None], specs: Sequence[str] = SPECS,
                   tokens: int = 96) -> None:
    """A cell for each method, and for one that grows trees and each budget of nodes; `check` before each."""
    ids = world.encode([("user", (world.warm_up or WARM_UP)[0])])
    for spec in specs:
        for nodes in NODES if spec in TREES else NODES[:1]:
            check()
            file.once({"method": spec, "nodes": nodes}, partial(drafts_cell, world, spec, nodes, ids, tokens))
    file.finish()


def drafts_cell(world: Environment, spec: str, nodes: int, ids: Sequence[int], tokens: int) -> dict[str, Any]:
    """Seconds of a second decode, of the parts of its mean round, and of each captured work that it launched, alone."""
    before = captures()
    decoded(world, spec, nodes, ids, tokens)
    first, launched = captures() - before, {work: work.launched for work in WORKS}
    start = perf_counter()
    session = decoded(world, spec, nodes, ids, tokens)
    seconds, again = perf_counter() - start, captures() - before - first
    used = {work: work.launched - launched.get(work, 0) for work in WORKS if work.launched > launched.get(work, 0)}
    parts = [one.seconds for one in session.rounds]
    return {"seconds": seconds, "tokens": len(session.output), "rounds": len(parts), "captures": [first, again],
            "round": {name: fmean(getattr(one, name) for one in parts) for name in PARTS},
            "wall": fmean(one.wall or 0.0 for one in parts),
            "works": [{**shape_of(work), "launches": count, "device_seconds": replayed(work.device, work.launch)}
                      for work, count in used.items()]}


def decoded(world: Environment, spec: str, nodes: int, ids: Sequence[int], tokens: int) -> Session:
    """One greedy answer with a node budget."""
    kit = Kit(world.target.fresh(), world.facts, nodes=nodes, draft=world.draft and world.draft.fresh(),
              checkpoints=world.checkpoints, parts=catalog.make_part)
    *_, session = decode(ids, kit.target, *catalog.build(spec, kit), max_new_tokens=tokens)
    return session


def shape_of(work: CapturedWork) -> dict[str, Any]:
    """The kind of a captured work and its sizes."""
    return {"work": type(work).__name__} | {name: value for name, value in vars(work).items()
                                            if type(value) is int and name != "launched"}
