"""A bar with an estimate of what is left, in a terminal as in a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


@contextmanager
def bar(title: str, console: Console | None = None) -> Iterator[Callable[[int, int, str], None]]:
    """Yields `progress(done, total, what)`; the bar stands on stderr and goes when the work is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
               TextColumn("about"), TimeRemainingColumn(), TextColumn("left · {task.fields[what]}"))
    shown = Progress(*columns, console=console or Console(stderr=True), transient=True, refresh_per_second=4)
    with shown:
        task, seen = shown.add_task(title, total=None, what=""), [0]

        def progress(done: int, total: int, what: str) -> None:
            if total != seen[0]:                   # another piece of work, with an estimate of its own
                shown.reset(task, total=total)
                seen[0] = total
            shown.update(task, completed=done, what=what)
        yield progress
