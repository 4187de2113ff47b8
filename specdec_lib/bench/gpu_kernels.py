"""Which kernels a captured work launches, and how long each runs: where the time of a graph goes on the device.

Where the kernels of a work run for much less than a launch of it takes, the device waits between them, and fewer
kernels are what would help. On a CPU torch's operators are listed in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from specdec_lib.bench.environment import Environment
from specdec_lib.bench.gpu_cells import CellFile, replayed, wait
from specdec_lib.bench.gpu_drafts import NODES, decoded, shape_of
from specdec_lib.bench.run import WARM_UP
from specdec_lib.models.llama.cuda_graph import WORKS, CapturedWork

LAUNCHES = 10                                      # of a work, over which its kernels are averaged
TOKENS = 24                                        # of the answer that captures what a method launches


def measure_kernels(file: CellFile, world: Environment, check: Callable[[], None], specs: Sequence[str],
                    tokens: int = TOKENS) -> None:
    """A cell for each method, with the works that no cell before it has; `check` before each."""
    ids = world.encode([("user", (world.warm_up or WARM_UP)[0])])
    for spec in specs:
        check()
        file.once({"method": spec}, partial(kernels_cell, file, world, spec, ids, tokens))
    file.finish()


def kernels_cell(file: CellFile, world: Environment, spec: str, ids: Sequence[int], tokens: int) -> dict[str, Any]:
    """Each work that this method launches and that is in no cell: its sizes, seconds of a launch, and its kernels."""
    launched = {work: work.launched for work in WORKS}
    decoded(world, spec, NODES[0], ids, tokens)
    known, out = [without_times(one) for cell in file.cells for one in cell.get("works", ())], []
    for work in [*WORKS]:
        if work.launched > launched.get(work, 0) and shape_of(work) not in known:
            known.append(shape_of(work))
            out.append({**known[-1], "device_seconds": replayed(work.device, work.launch), "kernels": kernels_of(work)})
    return {"works": out}


def without_times(one: dict[str, Any]) -> dict[str, Any]:
    """What `shape_of` said of a work in a cell."""
    return {name: value for name, value in one.items() if name not in ("device_seconds", "kernels")}


def kernels_of(work: CapturedWork) -> list[dict[str, Any]]:
    """Name, count and microseconds of each kernel in one launch of this work, longest in sum first."""
    there = work.device.type == "cuda"
    with torch.inference_mode():
        work.launch()
        wait(work.device)
        with profile(activities=[ProfilerActivity.CUDA if there else ProfilerActivity.CPU]) as seen:
            for _ in range(LAUNCHES):
                work.launch()
            wait(work.device)
    kind, field = ("CUDA", "self_device_time_total") if there else ("CPU", "self_cpu_time_total")
    found = [{"name": one.key, "count": one.count / LAUNCHES, "microseconds": round(getattr(one, field) / LAUNCHES, 2)}
             for one in seen.key_averages() if one.device_type.name == kind]
    return sorted(found, key=lambda one: -one["microseconds"])
