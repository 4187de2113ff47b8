"""Whether speculation pays in batches, in a sentence for the smallest and the largest batch that was measured."""

from __future__ import annotations

from specdec_lib.analysis.batches import BatchTable, chip_of
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
