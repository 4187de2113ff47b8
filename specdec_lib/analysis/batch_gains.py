"""Whether speculation pays in batches, and whether drafts that are sized for their batch pay more than others."""

from __future__ import annotations

from collections.abc import Iterator
from math import isclose
from typing import Any

from specdec_lib.analysis.batches import SAME, BatchTable, chip_of
from specdec_lib.analysis.wording import how_many, number


def paying_sentence(table: BatchTable, dtype: str) -> str:
    """At the smallest and the largest batch: the range of speed-ups, and how many methods gain in every repeat."""
    rows = [row for name in table.methods(dtype) for row in table.of(dtype, name) if row.speedup is not None]
    if not rows:
        return f"No speed-up was measured in {dtype}."
    ends = [[row for row in rows if row.batch == batch] for batch in
            dict.fromkeys((min(row.batch for row in rows), max(row.batch for row in rows)))]
    found = [[row.speedup for row in some if row.speedup is not None] for some in ends]
    speeds = [f"{number(min(known))} to {number(max(known))} times at batch {some[0].batch}"
              for known, some in zip(found, ends, strict=True)]
    sure = [f"{how_many(row.span and row.span[0] > 1 for row in some)} at batch {some[0].batch}" for some in ends]
    every = (f"; faster in every repeat: {', '.join(sure)}" if all(row.span for some in ends for row in some) else
             ", without repeats that say how sure that is")
    machines = dict.fromkeys(chip_of(run) for run in table.runs if run["dtype"] == dtype)
    where = f" on {', '.join(machines)}" if machines else ""
    return f"Speed over plain decoding of the same batch{where}, {dtype}: {', '.join(speeds)}{every}."


def size_rows(table: BatchTable, dtype: str) -> list[dict[str, Any]]:
    """By method: the rows that a sequence feeds in a forward, at each batch."""
    return [{"method": name, **{f"batch {row.batch}": row.measures["rows_per_sequence"]
                                for row in table.of(dtype, name)}} for name in table.methods(dtype)]


def sized_pairs(table: BatchTable, dtype: str) -> Iterator[tuple[str, str]]:
    """Methods whose drafts shrink or grow from the smallest to the largest batch, each with itself at a fixed depth."""
    rows = {name: [row.measures["rows_per_sequence"] for row in table.of(dtype, name)] for name in table.methods(dtype)}
    sized = [name for name, found in rows.items() if not isclose(found[0], found[-1], rel_tol=SAME)]
    return ((one, other) for one in sized for other in rows if other.startswith(f"{one}(depth="))


def sized_sentences(table: BatchTable, dtype: str) -> list[tuple[str, bool | None]]:
    """For each pair, that sized drafts are faster at the largest batch; whether they are, None where repeats differ."""
    out = []
    for one, other in sized_pairs(table, dtype):
        sized, fixed = (table.of(dtype, name)[-1] for name in (one, other))
        if sized.batch != fixed.batch or not (sized.speedup and fixed.speedup):
            continue
        ratio = sized.speedup / fixed.speedup
        ratios = [a / b for a, b in zip(sized.of_repeats, fixed.of_repeats, strict=True)]
        said = f"{one} at batch {sized.batch} is faster than {other}: {ratio:.2f} times"
        if len(ratios) > 1:
            said += f" ({min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} repeats)"
        known = len(ratios) > 1 and not min(ratios) <= 1 <= max(ratios)
        out.append((said, ratio > 1 if known else None))
    return out
