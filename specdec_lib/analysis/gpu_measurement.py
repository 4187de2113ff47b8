"""What `specdec gpu` measured: forwards by width beside the floor that the memory sets, and predictions from them.

Random weights in the shape of a larger model cost what trained ones cost. What a method would gain there is predicted
from that cost and from the acceptances of our small target; it is never measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from specdec_lib.analysis.report_text import interval_text
from specdec_lib.analysis.wording import verdict
from specdec_lib.bench.gpu_cells import bytes_read, read_object
from specdec_lib.bench.gpu_costs import MODES, SHAPES, predictions
from specdec_lib.types import Refusal

SHIPPED = Path(__file__).parents[2] / "data" / "results"
FILES = ("floor", "cost", "shapes")
FREE, DRAFTED = "drafts cost nothing", "each draft is a whole forward"


@dataclass(frozen=True)
class GpuMeasurement:
    """The cells of a folder that `specdec gpu` wrote; `bandwidth` is in bytes a second."""

    provenance: Mapping[str, Any]
    bandwidth: float
    floors: Mapping[int, float]                    # seconds by context, of the target
    cells: Sequence[Mapping[str, Any]]             # of the target and of the shapes that were measured

    @property
    def gpu(self) -> str:
        return self.provenance["machine"]["gpu"]

    @property
    def shapes(self) -> list[str]:
        """The larger shapes, in the order of measuring."""
        return list(dict.fromkeys(cell["shape"] for cell in self.cells if "shape" in cell))

    def curve(self, mode: str, context: int, shape: str | None = None) -> dict[int, float]:
        """Seconds of a forward by its width; empty where none was measured."""
        return {cell["width"]: cell["seconds"] for cell in self.cells
                if cell.get("shape") == shape and cell["mode"] == mode and cell["context"] == context
                and "width" in cell and "seconds" in cell}

    def of_shapes(self) -> list[dict[str, Any]]:
        """The cells of the larger shapes."""
        return [dict(cell) for cell in self.cells if "shape" in cell]

    def floor(self, context: int, shape: str) -> float:
        """Seconds in which memory allows a forward of this shape in bfloat16."""
        return bytes_read(SHAPES[shape], torch.bfloat16, context) / self.bandwidth


def load_gpu(folder: str | Path) -> GpuMeasurement:
    """The measurement in a folder of `specdec gpu`, which may lack the larger shapes. Refusal for a damaged file."""
    there = (Path(folder) / f"{FILES[-1]}.json").exists()
    floor, cost, *shapes = (read_object(Path(folder) / f"{name}.json") for name in FILES[:2 + there])
    return GpuMeasurement(cost["provenance"], floor["bandwidth"],
                          {cell["context"]: cell["seconds"] for cell in floor["cells"]},
                          [*cost["cells"], *(cell for one in shapes for cell in one["cells"])])


def lines_by_mode(gpu: GpuMeasurement, context: int) -> tuple[list[int], dict[str, list[float]]]:
    """Widths, and milliseconds of the target's forward in every mode that has them, with the floor beside them."""
    curves = {mode: curve for mode in MODES if (curve := gpu.curve(mode, context))}
    if not curves:
        raise Refusal(f"no forward was measured after {context} tokens: run `specdec gpu` with the step `cost`")
    widths = sorted(set.intersection(*map(set, curves.values())))
    lines = {mode: [1000 * curve[width] for width in widths] for mode, curve in curves.items()}
    return widths, lines | {"what memory allows": [1000 * gpu.floors[context]] * len(widths)}


def bench_rows(runs: Mapping[str, str | Path]) -> list[dict[str, Any]]:
    """One row a method of the first run: its share of time in drafting there, and its gain in each run that has it.

    A gain has its 95 % interval over the prompts. `runs` are folders of `specdec bench` by the names of their machines.
    Refusal for a damaged summary.
    """
    found = {name: read_object(Path(folder) / "summary.json")["methods"] for name, folder in runs.items()}
    first = next(iter(found))
    rows = []
    for method, measured in found[first].items():
        row = {"method": method, f"share of time spent drafting, {first}": measured["time_share"]["drafter"]}
        for name, methods in found.items():
            one = methods.get(method, {})
            row |= {f"tokens per forward, {name}": one.get("tokens_per_target_forward"),
                    f"times plain, {name}": one.get("speedup"),
                    f"95 % interval, {name}": interval_text(None if method == "ar" else one.get("speedup_ci"))}
        rows.append(row)
    return rows


def prompts_of(folder: str | Path) -> int:
    """How many prompts a run of `specdec bench` decoded; Refusal for a damaged summary."""
    return read_object(Path(folder) / "summary.json")["prompts"]["count"]


def beside_plain(folder: str | Path) -> dict[str, list[str]]:
    """The methods of a run by what their intervals say beside plain decoding: faster, slower or not told apart.

    Methods without an interval are in none of them. Refusal for a damaged summary.
    """
    found: dict[str, list[str]] = {"faster": [], "slower": [], "not told apart": []}
    for method, measured in read_object(Path(folder) / "summary.json")["methods"].items():
        if method != "ar" and measured.get("speedup_ci"):
            found[verdict(measured["speedup_ci"])].append(method)
    return found


def floor_rows(gpu: GpuMeasurement, target: str, context: int, wide: int = 16) -> list[dict[str, Any]]:
    """One row a model that was measured captured: what memory allows, a forward of one token, and of a wide one."""
    floors: dict[str | None, float] = {None: gpu.floors[context], **{name: gpu.floor(context, name)
                                                                     for name in gpu.shapes}}
    rows = []
    for shape, floor in floors.items():
        curve = gpu.curve(MODES[0], context, shape) or gpu.curve(MODES[1], context, shape)
        if {1, wide} <= curve.keys():
            rows.append({"model": target if shape is None else f"random weights, {shape}",
                         "what memory allows, ms": 1000 * floor, "one token, ms": 1000 * curve[1],
                         "times what memory allows": curve[1] / floor,
                         f"a forward of {wide} tokens, in forwards of one": curve[wide] / curve[1]})
    return rows


def predicted_rows(gpu: GpuMeasurement, shape: str, contexts: Iterable[int], methods: Mapping[str, Sequence[str]],
                   results: Path = SHIPPED) -> list[dict[str, Any]]:
    """Predicted speeds over plain decoding at this shape, for some methods of each kept run, after each context.

    Tokens per forward are those of our small target. A diffusion drafter of the target's own size pays a forward over
    the whole context for every draft; that has a column of its own.
    """
    found = list(predictions(gpu.of_shapes(), [shape], results, tuple(contexts)))
    rows = []
    for run, wanted in methods.items():
        for method in wanted:
            mine = {one["context"]: one for one in found if (one["run"], one["method"]) == (run, method)}
            if mine:
                first = next(iter(mine.values()))
                rows.append({"run": run, "method": method, "tokens per forward": first["tokens_per_target_forward"],
                             **{f"{FREE}, {context} tokens": one["speedup"] for context, one in mine.items()},
                             **{f"{DRAFTED}, {context} tokens": one.get("speedup_diffusion")
                                for context, one in mine.items()}})
    return rows
