"""Small JSON files made from run folders: written once, and read in place of the runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from specdec_lib.files import write_text
from specdec_lib.types import Refusal

Table = TypeVar("Table")


def write_table(table: Mapping[str, Any], file: Path) -> Path:
    """Writes the table as JSON, with a line for each element of its lists; makes missing folders."""
    parts = [f"{compact(name)}:{lines(value) if isinstance(value, list) else compact(value)}"
             for name, value in table.items()]
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, f"{{{','.join(parts)}}}\n")
    return file


def lines(values: list) -> str:
    return f"[{','.join(chr(10) + compact(value) for value in values)}]"


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def read_table(file: Path, of_runs: Callable[[Path], Mapping[str, Any]], build: Callable[[Mapping[str, Any]], Table],
               kind: str, made: str) -> Table:
    """What `build` makes of the table in this file; where there is none, of that of the runs in its folder.

    Refusal for what is no such table: it names its `kind` and says how one is `made`.
    """
    try:
        return build(json.loads(file.read_text(encoding="utf-8")) if file.exists() else of_runs(file.parent))
    except Refusal:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refusal(f"{file} is no table of {kind} ({error}): {made}") from None
