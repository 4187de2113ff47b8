"""Cells on disk, and their one table: a row for each cell and prompt, settings and parameters as columns.

`cells/NAME.json` is one finished cell, written whole or not at all. `cells.parquet` and `summary.json` are made from
the cells of a grid; a folder may hold cells of earlier grids besides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from specdec_lib.bench.results import small
from specdec_lib.bench.run_folder import writing_run
from specdec_lib.files import json_sha256, refuse_special, write_atomically, write_text
from specdec_lib.sweep.cells import NAME, Cell
from specdec_lib.sweep.work import CellResult
from specdec_lib.types import Refusal

CELLS, TABLE, SUMMARY = "cells", "cells.parquet", "summary.json"
SETTINGS = [("cell", pa.string()), ("mode", pa.string()), ("spec", pa.string()), ("method", pa.string()),
            ("target", pa.string()), ("device", pa.string()), ("dtype", pa.string()), ("temperature", pa.float64()),
            ("max_new_tokens", pa.int64()), ("seed", pa.int64()), ("prompts", pa.string())]
COUNTS = [("question_id", pa.string()), ("family", pa.string()), ("prompt_tokens", pa.int64()), ("tokens", pa.int64()),
          ("forwards", pa.int64()), ("drafted", pa.int64()), ("accepted", pa.int64()), ("nll", pa.float64()),
          ("not_best", pa.int64()), ("score", pa.float64()), ("output", pa.string())]
TIMES = [("seconds", pa.float64()), ("prefill", pa.float64()), ("plain_tokens", pa.int64()),
         ("plain_seconds", pa.float64())]
PARAMETER = "parameter."                           # begins the column of each parameter that a grid names


def cell_path(out: Path, name: str) -> Path:
    """The file of a cell."""
    return out / CELLS / f"{name}.json"


def write_cell(out: Path, cell: Cell, result: CellResult) -> None:
    """Keeps a finished cell."""
    text = json.dumps({"cell": cell.name, "spec": cell.spec, "settings": cell.settings, "rows": list(result.rows),
                       "made": result.made}, indent=1, ensure_ascii=False, allow_nan=False)
    with writing_run(out):
        (out / CELLS).mkdir(exist_ok=True)
        write_text(cell_path(out, cell.name), text + "\n")


def read_cell(out: Path, cell: Cell) -> CellResult | None:
    """The kept cell, None where it has not been run; Refusal for a damaged file."""
    path = cell_path(out, cell.name)
    if not path.exists():
        return None
    refuse_special(path)
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if json_sha256(kept["settings"])[:NAME] != cell.name or len(kept["rows"]) != len(cell.run.prompts):
            raise ValueError("it belongs to other settings")
        pa.Table.from_pylist(kept["rows"], pa.schema(COUNTS + TIMES * cell.timed))
        wanted = {name for name, _ in COUNTS + TIMES * cell.timed}
        if any(set(row) != wanted for row in kept["rows"]):
            raise ValueError("its rows have other columns")
        return CellResult(tuple(kept["rows"]), dict(kept["made"]))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError,
            pa.ArrowException) as error:
        raise Refusal(f"the cell {path} cannot be read ({type(error).__name__}): remove it and run the same command"
                      " again") from None


def table_of(found: Sequence[tuple[Cell, CellResult]]) -> pa.Table:
    """The rows of these cells; of the parameters those that the grid names, as numbers where all are."""
    names = list(dict.fromkeys(name for cell, _ in found for name in cell.named))
    rows = [{**settings_row(cell), **{PARAMETER + name: cell.named.get(name) for name in names}, **row}
            for cell, result in found for row in result.rows]
    timed = any(cell.timed for cell, _ in found)
    columns = [(PARAMETER + name, kind_of([cell.named.get(name) for cell, _ in found])) for name in names]
    for row in rows:
        for name, kind in columns:
            row[name] = as_kind(row[name], kind)
    return pa.Table.from_pylist(rows, pa.schema(SETTINGS + columns + COUNTS + TIMES * timed))


def settings_row(cell: Cell) -> dict[str, Any]:
    settings: Mapping[str, Any] = cell.settings
    return {"cell": cell.name, "spec": cell.spec,
            **{name: settings[name] for name, _ in SETTINGS if name not in ("cell", "spec")}}


def kind_of(values: Sequence[Any]) -> pa.DataType:
    """Real numbers where all values are numbers, else text."""
    known = [value for value in values if value is not None]
    numbers = known and all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)
    return pa.float64() if numbers else pa.string()


def as_kind(value: Any, kind: pa.DataType) -> Any:
    return value if value is None else float(value) if kind == pa.float64() else str(value)


def write_table(out: Path, table: pa.Table) -> None:
    """Writes cells.parquet."""
    with writing_run(out):
        write_atomically(out / TABLE, lambda path: small(table, path))


def read_dataset(folder: str | Path) -> tuple[dict, list[dict[str, Any]]]:
    """Summary and rows of a finished sweep; Refusal where the folder holds none."""
    folder = Path(folder)
    try:
        summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        rows = pq.read_table(folder / TABLE).to_pylist()
        if not summary["sweep"]["cells"] or not rows:
            raise ValueError("it is empty")
    except (OSError, ValueError, LookupError, TypeError, RecursionError, pa.ArrowException) as error:
        raise Refusal(f"{folder} holds no finished sweep ({type(error).__name__}): make one with `specdec sweep"
                      f" GRID.yaml --out {folder}`") from None
    return summary, rows
