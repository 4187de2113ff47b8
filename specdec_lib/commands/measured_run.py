"""Running or resuming a bench for a command: with a bar, its warnings and its table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specdec_lib.commands.exit_codes import Stopped, say


def measured(out: Path, options: dict[str, Any]) -> None:
    """Runs or resumes the bench that the command's options describe, with a bar; prints its warnings and its table."""
    from specdec_lib.bench.options import RunOptions, bench_prepared, prepare
    from specdec_lib.bench.progress import bar
    from specdec_lib.commands.bench_table import show_speeds

    here = prepare(RunOptions.of(options))
    try:
        with bar("bench", shown=not options["quiet"]) as progress:
            summary = bench_prepared(here, out, progress, say)
    except KeyboardInterrupt:
        kept = "prompts" if here.plan.batch == 1 else "methods"
        raise Stopped(f"stopped: finished {kept} are kept in {out}, the same command continues from there") from None
    for warning in summary.get("settings", {}).get("warnings", []):
        say(warning)
    show_speeds(out, options["quiet"])
