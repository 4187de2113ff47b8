"""Tables for the terminal: names on the left, numbers on the right; plain text where no terminal shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

WIDTH = 150                                        # of a table that no terminal bounds
GAP = 3                                            # at most, between two columns
LONGEST = 40                                       # letters of a cell that is not folded


def print_table(rows: Sequence[Mapping[str, str]], console: Console, plain: bool = False, title: str = "",
                left: Sequence[str] = ()) -> None:
    """Prints rows of texts under the names of the first row's columns; the first column and those in `left` stand left.

    Plain text has no colour, no lines and no width but its own: it can be searched and cut.
    """
    bare = plain or not console.is_terminal
    table = Table(title=title or None, title_justify="left", title_style="" if bare else "bold",
                  box=None if bare else SIMPLE_HEAD, pad_edge=False, header_style="" if bare else "bold")
    for place, name in enumerate(rows[0]):
        widest = max(len(row[name]) for row in rows)           # a heading wraps before a cell does
        table.add_column(escape(name), justify="left" if place == 0 or name in left else "right", no_wrap=bare,
                         min_width=min(widest, LONGEST), overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row.values()))
    wide = sum(max(len(name), *(len(row[name]) for row in rows)) + GAP for name in rows[0])
    out = Console(file=console.file, width=max(WIDTH, console.width, wide), no_color=True) if bare else console
    out.print(table, highlight=False)
