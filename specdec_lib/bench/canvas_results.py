"""Results of canvas decodes as values and as files: one JSON part per task while a run goes on, two tables at its end.

A row of `decodes.parquet` is one method on one task, a row of `rounds.parquet` one of its rounds; `tasks.json` holds
the tasks whose rounds are kept, so that a reader can draw them. `CanvasRun` is a finished run, read back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from specdec_lib.bench.results import coarse, small
from specdec_lib.canvas.outcome import Corrections
from specdec_lib.canvas.types import CanvasRound, CanvasSession, CanvasTask
from specdec_lib.types import Refusal

NAMES = [("task", pa.string()), ("method", pa.string())]
COUNTS = ("masks", "forwards", "rows", "ties", *Corrections._fields)
DECODES = pa.schema([*NAMES, ("family", pa.string()), ("solved", pa.bool_()), ("wrong", pa.int32()),
                     *((name, pa.int32()) for name in COUNTS), ("seconds", pa.float32()), ("identical", pa.bool_()),
                     ("at_shape", pa.bool_()), ("quality", pa.string()), ("text", pa.string())])
LISTS = {"positions": pa.int16(), "tokens": pa.int32(), "confidences": pa.float32(), "hidden": pa.int16(),
         "locked": pa.int16()}
ROUNDS = pa.schema([*NAMES, ("round", pa.int16()), *((name, pa.list_(kind)) for name, kind in LISTS.items()),
                    *((name, pa.int16()) for name in ("forwards", "rows", "drafted", "ties")),
                    ("seconds", pa.float32())])


@dataclass(frozen=True)
class CanvasDecode:
    """One method on one task: its numbers, and its rounds where they are kept."""

    task: str
    method: str                                    # the spec
    family: str
    masks: int                                     # to be filled
    forwards: int
    rows: int                                      # of all forwards together
    ties: int
    seconds: float
    solved: bool | None = None
    wrong: int | None = None                       # positions that differ from the answer
    identical: bool | None = None                  # the reference's canvas; None where the method promises none
    at_shape: bool | None = None                   # the same, all forwards at one number of rows; None: not needed
    corrections: Corrections = Corrections()
    quality: Mapping[str, float] = field(default_factory=dict)
    text: str = ""
    rounds: tuple[CanvasRound, ...] = ()

    def session(self, task: CanvasTask) -> CanvasSession:
        """The decode replayed on its task."""
        session = CanvasSession.begin(task.canvas)
        for round in self.rounds:
            session = session.after(round)
        return session


@dataclass(frozen=True)
class CanvasRun:
    """A finished run: its summary, all decodes, and the tasks that can be drawn, by id."""

    summary: dict
    decodes: tuple[CanvasDecode, ...]
    tasks: Mapping[str, CanvasTask]

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(self.summary["methods"])

    def of(self, method: str, task: str | None = None) -> tuple[CanvasDecode, ...]:
        """The decodes of a method, on one task or on all."""
        return tuple(one for one in self.decodes if one.method == method and task in (None, one.task))

    def session(self, method: str, task: str) -> CanvasSession:
        """A kept decode, replayed; Refusal where the run has none or kept no rounds of it."""
        found = [one for one in self.of(method, task) if one.rounds]
        if not found or task not in self.tasks:
            raise Refusal(f"this run keeps no rounds of {method} on {task}; it keeps those of "
                          f"{', '.join(self.tasks) or 'no task'}")
        return found[0].session(self.tasks[task])


@cache
def reader(kind: type) -> Any:
    """pydantic's reader of plain data as this frozen value, lists as tuples; it raises ValueError."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind).validate_python


def write_tables(decodes: Sequence[CanvasDecode], folder: Path) -> None:
    """The two tables of a run; confidences keep 10 binary digits and seconds 12, because kept runs are committed."""
    flat = [{**asdict(one), **one.corrections._asdict(), "quality": json.dumps(dict(one.quality))} for one in decodes]
    small(pa.Table.from_pylist(flat, DECODES), folder / "decodes.parquet")
    rounds = [{"task": one.task, "method": one.method, "round": number, **asdict(round)}
              for one in decodes for number, round in enumerate(one.rounds)]
    table = pa.Table.from_pylist(rounds, ROUNDS)
    lists = table["confidences"].combine_chunks()
    values = pa.array(coarse(lists.flatten().to_numpy(zero_copy_only=False), 10), pa.float32())
    place = table.column_names.index("confidences")
    small(table.set_column(place, "confidences", pa.ListArray.from_arrays(lists.offsets, values)),
          folder / "rounds.parquet")


def read_canvas_run(folder: str | Path) -> CanvasRun:
    """A finished run; Refusal where the folder holds none or its files are damaged."""
    folder = Path(folder)
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        tasks = reader(list[CanvasTask])(json.loads((folder / "tasks.json").read_text(encoding="utf-8")))
        rows = pq.read_table(folder / "decodes.parquet").to_pylist()
        rounds: dict[tuple[str, str], list[CanvasRound]] = {}
        for row in pq.read_table(folder / "rounds.parquet").to_pylist():
            key = row.pop("task"), row.pop("method")
            row.pop("round")
            rounds.setdefault(key, []).append(reader(CanvasRound)(row))
        decodes = tuple(_decode_of(row, tuple(rounds.get((row["task"], row["method"]), ()))) for row in rows)
        return CanvasRun(dict(summary), decodes, {task.id: task for task in tasks})
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, pa.ArrowException) as error:
        raise Refusal(f"{folder} holds no finished canvas run ({type(error).__name__}): make one with"
                      " `specdec canvas`") from None


def _decode_of(row: dict, rounds: tuple[CanvasRound, ...]) -> CanvasDecode:
    counts = [row.pop(name) for name in Corrections._fields]
    return reader(CanvasDecode)({**row, "quality": json.loads(row["quality"]), "corrections": counts, "rounds": rounds})
