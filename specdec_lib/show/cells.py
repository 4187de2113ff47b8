"""Claims, findings, tables, lattices and source code for notebooks."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from specdec_lib import figures
from specdec_lib.analysis.lattice_recall import token_ranks
from specdec_lib.analysis.wording import answer
from specdec_lib.figures.theme import PALETTE
from specdec_lib.show.html import INK, QUIET, Html, in_cell, tint, token
from specdec_lib.show.toy_text import Names, naming
from specdec_lib.types import Lattice

ONE = r"[-+−]?\d[\d.,]*(e[-+]?\d+)?"
NUMBER = re.compile(rf"{ONE} ?(%|ms|s|MB|GB|x|×|times)?( ?[\[(±] ?(to )?{ONE}(( ?[,;]|\s*to) ?{ONE})?[\])]?)?")
PAIR = re.compile(rf"{ONE} ?(to|of|–) ?{ONE}|\[{ONE}, ?{ONE}\]")        # an interval of its own, a count of a whole
LONG = re.compile(r"\S{40,}")                       # a word that widens a table, such as the specs of a command
SHORT = 16                                         # letters of a cell that stays on one line
ZERO = re.compile(r"(?<![\w.,])[-+−](?=0(\.0+)?(?![\d.,]*\d))")          # the sign of a number that was rounded to zero
TOKEN = re.compile(r'<span class="(\w+)">')        # as Pygments begins a token of code: the first letter is its kind
# Kind -> variable of JupyterLab and of exported pages, so that a listing looks as code cells do in either theme; the
# ink where there is no such variable; and the shape of the letters.
LISTING = {"k": ("keyword", "#008000", ";font-weight:bold"), "o": ("operator", "#8b10d6", ";font-weight:bold"),
           "c": ("comment", "#2e6b6b", ";font-style:italic"), "p": ("punctuation", "#0055aa", ""),
           "s": ("string", "#ba2121", ""), "m": ("number", "#006b00", "")}
PREDICTED = ("Speeds are times plain decoding of the same run. A predicted speed takes the price of rows from the"
             " cost curve and all else from the run. The column machine says by how much of their median plain"
             " decoding's forwards spread. Where it was busy, speeds are less certain than their intervals say.")


def check(sentence: str, condition) -> Html:
    """The sentence with a tick if the condition holds, else AssertionError with the sentence."""
    if not bool(condition):
        raise AssertionError(f"this does not hold: {sentence}")
    tick = f'<span style="background:{tint(PALETTE["accepted"])};color:{INK};padding:0 4px;font-weight:bold">✓</span>'
    return Html(f"<div>{tick} {escape(sentence)}</div>", f"✓ {sentence}")


def finding(sentence: str, holds: object = None) -> Html:
    """A statement about data, with whether it holds for those at hand (None: they do not say); it never raises."""
    said = answer(holds)
    return Html(f"<div><b>{said}</b>: {escape(sentence)}</div>", f"{said}: {sentence}")


def table(rows: Sequence[Mapping] | Mapping[str, Mapping], digits: int = 3, caption: str = ""):
    """A plain table of rows: a list of mappings, or a mapping from row names to rows; every text in it stays text."""
    import pandas as pd  # imported here, so that strips need no pandas

    named = isinstance(rows, Mapping)
    style = (pd.DataFrame.from_dict(dict(rows), orient="index") if named else pd.DataFrame(list(rows))).style
    style.format(lambda value: written(value, digits), na_rep="–")
    style.format_index(written, axis="index").format_index(written, axis="columns")
    style = style if named else style.hide(axis="index")
    look: list[Any] = [{"selector": "th, td", "props": "text-align: left; padding: 3px 8px"}]
    for place in range(len(style.columns)):
        column = style.data.iloc[:, place]
        if numeric(column):
            look += [{"selector": f"th.col{place}", "props": "text-align: right"},           # a long heading may wrap
                     {"selector": f"td.col{place}",
                      "props": "text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums"}]
        elif all(len(str(cell)) <= SHORT for cell in column if cell == cell):           # such as a verdict
            look.append({"selector": f"td.col{place}", "props": "white-space: nowrap"})
        else:                                      # an interval among words stays on one line
            look += [{"selector": f"td.row{row}.col{place}", "props": "white-space: nowrap"}
                     for row, cell in enumerate(column) if is_number(cell)]
    if caption:                                    # beside a table that scrolls, no wider than what is in view
        look.append({"selector": "caption", "props": "position: sticky; left: 0; max-width: 80vw"})
    style = style.set_table_styles(look)
    return style.set_caption(escape(caption)) if caption else style


def measured(rows: Sequence[Mapping]):
    """The rows of finished runs that `analysis/result_row` makes: predicted beside measured speed."""
    return table(rows, 2, PREDICTED)


def numeric(column: Iterable[Any]) -> bool:
    """Whether all cells are numbers, with an interval, a unit or a percent sign at most; missing ones do not count."""
    cells = [str(cell).strip() for cell in column if cell is not None and cell == cell]      # NaN differs from itself
    told = [cell for cell in cells if cell not in ("", "–", "-")]
    return bool(told) and all(map(is_number, told))


def is_number(cell: Any) -> bool:
    """Whether a cell is a number, with an interval and a unit at most, or an interval alone."""
    said = str(cell).strip()
    return bool(NUMBER.fullmatch(said) or PAIR.fullmatch(said))


def written(value: Any, digits: int = 6) -> str:
    """A cell or label as HTML: floats rounded, truth values as yes or no, anything else escaped, texts in lists too.

    What is rounded to zero has no sign, in a text of numbers as well: `-0.00` would say which side it is on.
    """
    from pandas.api.types import is_bool, is_float

    if is_bool(value):
        return "yes" if value else "no"
    if is_float(value):
        return f"{value:z.{digits}f}"
    if isinstance(value, str) and value.isspace():
        return in_cell(value)                      # a token of spaces or line breaks
    return breakable(escape(ZERO.sub("", str(value)) if is_number(value) else str(value)))


def breakable(html: str) -> str:
    """The text with places to break a word that is wider than a column, after its commas; others stay as they are."""
    return LONG.sub(lambda word: word[0].replace(",", ",<wbr>"), html)


def source(thing, doc: bool = True) -> Html:
    """The highlighted source of a function, class or module; `doc` False omits its docstring."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    code = textwrap.dedent(inspect.getsource(thing)).rstrip() + "\n"
    if not doc and inspect.getdoc(thing):
        code = _undocumented(code)
    module = inspect.getmodule(thing)
    assert module is not None                      # it has a source
    where = module.__name__
    html = TOKEN.sub(_inked, highlight(code, PythonLexer(), HtmlFormatter(nowrap=True)))
    look = ("line-height:125%;font-family:monospace;font-size:12px;padding:6px;"
            f"background:var(--jp-cell-editor-background,#f8f8f8);color:var(--jp-content-font-color1,{INK})")
    return Html(f'<div style="{QUIET}">{escape(where)}</div><div><pre style="{look}">{html}</pre></div>', code)


def _inked(found: re.Match) -> str:
    """The beginning of a token of code in the ink of its kind, or in that around it."""
    name, ink, more = LISTING.get(found[1][0], ("", "", ""))
    return f'<span style="color:var(--jp-mirror-editor-{name}-color,{ink}){more}">' if name else "<span>"


def lattice(one: Lattice, names: Names | None = None, best: int = 5) -> Html:
    """The best candidates of every position, side by side, each with its probability."""
    name = naming(names, ())
    columns = []
    for place, (ids, logps) in enumerate(zip(one.ids.tolist(), one.logp.exp().tolist(), strict=True), start=1):
        cells = "".join(f"<div>{token(name(i), 'draft')} {prob:.2f}</div>"
                        for i, prob in list(zip(ids, logps, strict=True))[:best])
        columns.append(f'<div style="margin-right:14px"><div style="{QUIET}">position {place}</div>{cells}</div>')
    plain = "\n".join(" ".join(f"{name(i)} {prob:.2f}" for i, prob in list(zip(ids, probs, strict=True))[:best])
                      for ids, probs in zip(one.ids.tolist(), one.logp.exp().tolist(), strict=True))
    return Html('<div style="display:flex;flex-wrap:wrap">' + "".join(columns) + "</div>", plain)


def lattice_map(one: Lattice, names: Names | None = None, paths: Mapping[str, Sequence[int]] | None = None,
                came: Sequence[int] | None = None, title: str | None = None):
    """The lattice as a figure, shaded by log-probability; `paths` and `came`, the target's tokens, are token ids."""
    name, ids = naming(names, ()), one.ids.tolist()
    words = [[in_cell(name(token)) for token in row] for row in ids]
    return figures.lattice(words, one.logp.tolist(),
                           {who: token_ranks(ids, path) for who, path in (paths or {}).items()},
                           None if came is None else token_ranks(ids, came), title=title)


def _undocumented(code: str) -> str:
    """The code without the docstring of its first statement."""
    import ast

    body = ast.parse(code).body
    inner = body[0].body if isinstance(body[0], ast.ClassDef | ast.FunctionDef) else body
    lines = code.splitlines(keepends=True)
    first = inner[0]
    return "".join(lines[:first.lineno - 1] + lines[first.end_lineno:])
