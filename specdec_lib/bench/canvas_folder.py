"""The folder of a canvas run: one part per task, renamed into place when complete, merged at the end.

A killed run loses only the current task. A folder belongs to one plan: others are refused.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from specdec_lib.bench.canvas_results import CanvasDecode, reader, write_tables
from specdec_lib.bench.plan import changed_settings
from specdec_lib.bench.run_folder import SETTINGS, refuse_foreign, writing_run
from specdec_lib.canvas.types import CanvasTask
from specdec_lib.files import refuse_special, sync, write_text
from specdec_lib.types import Refusal

SHORT_LIST = re.compile(r"\[\s+([-\d.e+,\s]+?)\s+\]")      # of numbers
SUMMARY = "summary.json"
WRITTEN = (SUMMARY, "decodes.parquet", "rounds.parquet", "tasks.json", "parts")             # after the settings


class CanvasFolder:
    """The results of a run; `CanvasFolder(path, settings)` creates them or opens those of the same settings.

    The caller holds `files.alone_in(path)`, so that no other process changes the folder meanwhile.
    """

    def __init__(self, path: Path, settings: dict):
        self.path, self.parts = path, path / "parts"
        with writing_run(path):
            path.mkdir(parents=True, exist_ok=True)
            kept = self.read(SETTINGS)
            refuse_foreign(path, WRITTEN, kept is not None)
            if kept is None:
                self.save(SETTINGS, settings)
            elif changed_settings(kept, settings):
                changes = "; ".join(changed_settings(kept, settings)[:3])
                raise Refusal(f"{path} holds a run with other settings ({changes}): give another --out")
            if self.finished:
                shutil.rmtree(self.parts, ignore_errors=True)      # a kill after the summary left them
            else:
                self.parts.mkdir(exist_ok=True)

    @property
    def finished(self) -> bool:
        return (self.path / SUMMARY).exists()

    def read(self, name: str) -> Any:
        """A JSON object of this folder, None where there is no such file; Refusal for a damaged one."""
        file = self.path / name
        refuse_special(file)
        try:
            found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
        except (OSError, ValueError, RecursionError) as error:
            raise Refusal(f"{file} cannot be read ({error}): give another --out") from None
        if found is not None and not isinstance(found, dict):
            raise Refusal(f"{file} holds no JSON object, so it is not of a run: give another --out")
        return found

    def save(self, name: str, value: Any) -> None:
        """Writes a JSON file atomically."""
        with writing_run(self.path):
            write_text(self.path / name, in_lines(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)))

    def part(self, number: int) -> list[CanvasDecode] | None:
        """The decodes of task `number`; None where they have not been written."""
        name = f"parts/{number:05d}.json"
        found = self.read(name)
        try:
            return None if found is None else reader(list[CanvasDecode])(found["decodes"])
        except (LookupError, ValueError) as error:
            raise Refusal(f"the part {self.path / name} is damaged ({type(error).__name__}): remove it and run the same"
                          " command again") from None

    def write_part(self, number: int, decodes: Sequence[CanvasDecode]) -> None:
        """Writes all decodes of one task atomically."""
        self.save(f"parts/{number:05d}.json", {"decodes": [asdict(one) for one in decodes]})

    def finish(self, decodes: Sequence[CanvasDecode], tasks: Sequence[CanvasTask], summary: dict) -> None:
        """Merges the parts; summary.json is written last, so it marks a complete run."""
        rough = self.parts / ".merged"
        with writing_run(self.path):
            rough.mkdir(exist_ok=True)
            write_tables(decodes, rough)
            for table in sorted(rough.iterdir()):
                sync(table)
                os.replace(table, self.path / table.name)
        self.save("tasks.json", [asdict(task) for task in tasks])
        self.save(SUMMARY, summary)
        shutil.rmtree(self.parts, ignore_errors=True)


def in_lines(text: str) -> str:
    """Indented JSON with every list of numbers on one line."""
    return SHORT_LIST.sub(lambda found: "[" + re.sub(r"\s+", " ", found[1]) + "]", text) + "\n"
