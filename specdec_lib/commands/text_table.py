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
SHORTEST = 8                                       # of a text where the terminal is too narrow for all columns


def print_table(rows: Sequence[Mapping[str, str]], console: Console, plain: bool = False, title: str = "",
                left: Sequence[str] = ()) -> None:
    """Prints rows of texts under the names of the first row's columns; the first column and those in `left` stand left.

    Plain text has no colour, no lines and no width but its own: it can be searched and cut.
    """
    bare = plain or not console.is_terminal
    table = Table(title=title or None, title_justify="left", title_style="" if bare else "bold",
                  box=None if bare else SIMPLE_HEAD, pad_edge=False, header_style="" if bare else "bold")
    texts = [*dict.fromkeys([next(iter(rows[0])), *left])]
    widths = {} if bare else narrow_widths(rows, texts, console.width)
    for name in rows[0]:
        table.add_column(escape(name), justify="left" if name in texts else "right", no_wrap=bare, overflow="fold",
                         width=widths.get(name))
    for row in rows:
        table.add_row(*(escape(cell) for cell in row.values()))
    wide = sum(max(len(name), *(len(row[name]) for row in rows)) + GAP for name in rows[0])
    out = Console(file=console.file, width=max(WIDTH, console.width, wide), no_color=True) if bare else console
    out.print(table, highlight=False)


def narrow_widths(rows: Sequence[Mapping[str, str]], texts: Sequence[str], width: int) -> dict[str, int]:
    """The width of each column where whole headings have no room in `width` columns; nothing where they have.

    A heading wraps between words before a cell folds, and texts fold before numbers do.
    """
    longest = {name: max(len(row[name]) for row in rows) for name in rows[0]}
    gaps = GAP * len(longest)
    if sum(max(len(name), most) for name, most in longest.items()) + gaps <= width:
        return {}
    found = {name: max(min(most, LONGEST), *map(len, name.split()), 1) for name, most in longest.items()}
    over = sum(found.values()) + gaps - width
    for name in sorted(texts, key=lambda name: -found[name]):
        cut = max(0, min(over, found[name] - SHORTEST))
        found[name], over = found[name] - cut, over - cut
    return found
