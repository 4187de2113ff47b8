"""A progress bar with an estimate of the time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


@contextmanager
def bar(title: str, console: Console | None = None, shown: bool = True) -> Iterator[Callable[[int, int, str], None]]:
    """Yields `progress(done, total, what)`; the bar is on stderr, if it is `shown`, and disappears at the end."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
               TextColumn("about"), TimeRemainingColumn(), TextColumn("left · {task.fields[what]}"))
    drawn = Progress(*columns, console=console or Console(stderr=True), transient=True, refresh_per_second=4,
                     disable=not shown)
    with drawn:
        task, seen = drawn.add_task(title, total=None, what=""), [0]

        def progress(done: int, total: int, what: str) -> None:
            if total != seen[0]:                   # a new phase, with its own estimate
                drawn.reset(task, total=total)
                seen[0] = total
            drawn.update(task, completed=done, what=what)
        yield progress
