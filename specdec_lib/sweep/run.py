"""A sweep: the cells of a grid that a folder lacks are run, kept one by one, and become one table and a summary.

This process alone writes, so a cell that a worker did not finish leaves nothing, and nothing is run twice: what is
kept counts, whichever process made it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from specdec_lib.bench.provenance import provenance
from specdec_lib.bench.run_folder import refuse_foreign, writing_run
from specdec_lib.files import alone_in, json_sha256, write_text
from specdec_lib.sweep import cluster
from specdec_lib.sweep.cells import SCHEMA, Cell, cells_of
from specdec_lib.sweep.dataset import CELLS, SUMMARY, TABLE, read_cell, table_of, write_cell, write_table
from specdec_lib.sweep.grid import read_grid
from specdec_lib.sweep.work import CellResult
from specdec_lib.types import Refusal

Progress = Callable[[int, int, str], None]
BUSY = 1.0                                         # load per core beyond which a timing cell was disturbed


def run_sweep(grid: Path, out: Path, address: str | None = None,
              progress: Progress = lambda done, total, name: None) -> tuple[dict, int]:
    """Runs what is missing of a grid in the folder `out`; returns the summary and how many cells were run.

    The grid is checked as a whole before anything runs. Failed cells are named in the summary and run again the next
    time; Refusal if all of them failed.
    """
    cluster.check_address(address)
    read = read_grid(grid)
    cells = cells_of(read)
    with alone_in(out):
        refuse_foreign(out, (SUMMARY, TABLE), (out / CELLS).is_dir(), CELLS)
        remove_leftovers(out)
        kept = {cell.name: read_cell(out, cell) for cell in cells}
        missing = [cell for cell in cells if kept[cell.name] is None]
        told = None if missing else finished(out, cells, read.grid.model_dump(mode="json"))
        if told is not None:
            return told, 0
        failed = run_missing(missing, len(cells), out, address, kept, progress) if missing else {}
        found = [(cell, result) for cell in cells if (result := kept[cell.name]) is not None]
        if not found:
            raise Refusal(f"all {len(cells)} cells failed; the first, {cells[0].spec}: {failed[cells[0].name]}")
        write_table(out, table_of(found))
        summary = summarised(read.grid.model_dump(mode="json"), cells, found, failed)
        with writing_run(out):
            write_text(out / SUMMARY, json.dumps(summary, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
        return summary, len(missing) - len(failed)


def remove_leftovers(out: Path) -> None:
    """Removes what a killed process left half-written."""
    with writing_run(out):
        for left in (out / CELLS).glob(".*.partial-*"):
            left.unlink(missing_ok=True)


def run_missing(missing: Sequence[Cell], total: int, out: Path, address: str | None,
                kept: dict[str, CellResult | None], progress: Progress) -> dict[str, str]:
    """Runs these cells, keeps each as it ends, and returns why some failed, by name."""
    done, failed = total - len(missing), {}
    progress(done, total, "starting Ray" if address is None else "connecting to Ray")
    with cluster.start(address) as run:
        progress(done, total, "loading models")
        for cell, result in run(missing):
            if result.failed:
                failed[cell.name] = " ".join(result.failed.split())
            else:
                write_cell(out, cell, result)
                kept[cell.name] = result
            done += 1
            progress(done, total, cell.spec)
    return failed


def finished(out: Path, cells: Sequence[Cell], grid: dict[str, Any]) -> dict | None:
    """The summary of a sweep of this grid, with these cells alone, None where it or the table must be made (again)."""
    try:
        summary = json.loads((out / SUMMARY).read_text(encoding="utf-8"))
        rows = pq.read_metadata(out / TABLE).num_rows
        same = ([one["cell"] for one in summary["sweep"]["cells"]] == [cell.name for cell in cells]
                and summary["settings"]["grid_sha256"] == json_sha256(grid))         # it names the parameters
        return summary if same and rows == summary["sweep"]["rows"] else None
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None                                # the cells are whole: both are made again


def summarised(grid: dict[str, Any], cells: Sequence[Cell], found: Sequence[tuple[Cell, CellResult]],
               failed: dict[str, str]) -> dict:
    """The summary: provenance of this process, the grid, and totals of every cell."""
    about = provenance()
    return {"schema": SCHEMA, "created": about["created"], "machine": about["machine"], "versions": about["versions"],
            "settings": {"command": about["command"], "commit": about["commit"], "changed": about["changed"],
                         "grid": grid, "grid_sha256": json_sha256(grid), "warnings": warnings(found)},
            "sweep": {"mode": cells[0].settings["mode"], "rows": sum(len(result.rows) for _, result in found),
                      "nodes": len({(result.made or {}).get("node") for _, result in found}),
                      "cells": [totals(cell, result) for cell, result in found],
                      "failed": [{"cell": cell.name, "spec": cell.spec, "why": failed[cell.name]} for cell in cells
                                 if cell.name in failed]}}


def totals(cell: Cell, result: CellResult) -> dict[str, Any]:
    """A cell's totals over its prompts."""
    tokens, forwards = (sum(row[name] for row in result.rows) for name in ("tokens", "forwards"))
    return {"cell": cell.name, "spec": cell.spec, "prompts": len(result.rows), "tokens": tokens, "forwards": forwards,
            "tokens_per_target_forward": round(tokens / forwards, 4) if forwards else None}


def warnings(found: Sequence[tuple[Cell, CellResult]]) -> list[str]:
    """What a reader of the numbers should know: cells of several commits or machines, and disturbed times."""
    made = [result.made or {} for _, result in found]
    out = []
    for what, values in (("commits", [one.get("commit") for one in made]),
                         ("processors", [(one.get("machine") or {}).get("processor") for one in made])):
        if len(set(values)) > 1:
            out.append(f"the cells come from {len(set(values))} {what}: "
                       + ", ".join(f"{name} ({count})" for name, count in Counter(map(str, values)).most_common()))
    loads = [((one.get("machine") or {}).get("load"), (one.get("machine") or {}).get("cores")) for one in made]
    busy = sum(bool(load and cores and load > BUSY * cores + 1) for load, cores in loads)
    if busy and found[0][0].timed:
        out.append(f"the machine had other work while {busy} of {len(found)} timing cells ran: their times are unsure")
    return out
