"""The numbers of a figure as CSV, and the link that holds them in a page: no network and no second file is needed."""

from __future__ import annotations

import base64
import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

ERRORS = ("error_x", "error_y")


def figure_csv(figure: Mapping[str, Any]) -> str:
    """One row for each point of a Plotly figure: its series, x, y, and what else its traces hold (z, text, bounds)."""
    return as_csv([row for trace in figure.get("data", ()) for row in trace_rows(trace)])


def explored_csv(held: Mapping[str, Any]) -> str:
    """The same of every picture that an exported control can show, after columns with the control's value."""
    names, rows = list(held["labels"]), []
    for place, page in held["at"].items():
        chosen = {name: held["labels"][name][int(i)] for name, i in zip(names, place.split(","), strict=True)}
        rows += [chosen | row for part in held["pages"][page] if isinstance(part, Mapping)
                 for trace in part.get("data", ()) for row in trace_rows(trace)]
    return as_csv(rows)


def trace_rows(trace: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The points of one trace."""
    series = str(trace.get("name") or "")
    z = values(trace.get("z"))
    if z:
        xs, ys = (values(trace.get(axis)) or range(count) for axis, count in (("x", len(z[0])), ("y", len(z))))
        yield from ({"series": series, "x": x, "y": y, "z": cell} for y, line in zip(ys, z, strict=True)
                    for x, cell in zip(xs, values(line), strict=True))
        return
    columns = {name: values(trace.get(name)) for name in ("x", "y", "text", "hovertext")}
    for axis in ERRORS:
        bounds = trace.get(axis) or {}
        above = values(bounds.get("array"))
        columns[f"{axis[-1]} above"] = above
        columns[f"{axis[-1]} below"] = values(bounds.get("arrayminus")) or above
    columns = {name: column for name, column in columns.items() if column}
    count = max(map(len, columns.values()), default=0)
    yield from ({"series": series} | {name: column[place] for name, column in columns.items() if place < len(column)}
                for place in range(count))


def values(found: Any) -> list:
    """The values of a list or of an array as Plotly packs it; none for anything else."""
    if isinstance(found, Mapping) and "bdata" in found:
        flat = np.frombuffer(base64.b64decode(found["bdata"]), dtype=np.dtype(found["dtype"]))
        shape = [int(size) for size in str(found.get("shape", flat.size)).split(",")]
        return flat.reshape(shape).tolist()
    return list(found) if isinstance(found, Sequence) and not isinstance(found, str) else []


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows under the names of all their columns; what a row lacks is empty."""
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, names, lineterminator="\n", restval="")
    writer.writeheader()
    for row in rows:
        writer.writerow(row)
    return text.getvalue()


def csv_link(text: str, name: str) -> str:
    """A small link that saves this CSV; empty where it has no row."""
    if text.count("\n") < 2:
        return ""
    packed = base64.b64encode(text.encode()).decode()
    file = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "figure"
    return ('<div style="font-size:85%;text-align:right"><a class="specdec-csv" '
            f'download="{escape(file, quote=True)}.csv" href="data:text/csv;charset=utf-8;base64,{packed}">data (CSV)'
            "</a></div>")
