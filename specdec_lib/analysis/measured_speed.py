"""How fast the methods of a kept run were against plain decoding, in sentences that a notebook ends with."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from specdec_lib.analysis import wording
from specdec_lib.analysis.bench_report import Report
from specdec_lib.analysis.result_row import is_busy
from specdec_lib.types import Refusal


def speed_sentences(folder: str | Path, specs: Iterable[str]) -> list[str]:
    """For each of these methods that the run holds, whether it is told apart from plain decoding, with its interval.

    From the summary alone. Refusal if the folder holds no finished run.
    """
    try:
        summary = json.loads((Path(folder) / "summary.json").read_text(encoding="utf-8"))
        entries, sure = summary["methods"], "" if is_busy(Report(summary, ())) else "surely "
        found = {spec: (entries[spec]["speedup"], entries[spec]["speedup_ci"]) for spec in specs if spec in entries}
        return [f"Measured: {wording.over(spec, *speed, 'plain decoding', sure=sure)}."
                for spec, speed in found.items()]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise Refusal(f"{folder} holds no finished run ({error}): measure one with `specdec bench`") from None
