"""`specdec notebook`: any notebook with your values, as one page that needs no network."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from difflib import get_close_matches
from os.path import exists, isfile
from pathlib import Path
from typing import Any

from specdec_lib.commands import html_page, notebook_runner
from specdec_lib.commands.notebook_runner import Parameter
from specdec_lib.files import alone_in, check_file_place
from specdec_lib.parameters import shown
from specdec_lib.recordings.folder import find_recordings
from specdec_lib.types import Refusal

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
TRUTH = {"true": True, "false": False}
ALONE = "<span>one notebook of the workbook; <code>specdec site</code> writes all of them, linked</span>"


def notebooks() -> dict[str, Path]:
    """The notebooks of the checkout by name, in their order; Refusal where the package has none beside it."""
    found = {path.stem: path for path in sorted(FOLDER.glob("*.ipynb"))}
    if not found:
        raise Refusal("no notebooks are beside the package: install from a checkout with pip install -e .")
    return found


def notebook_called(word: str) -> Path:
    """The notebook of this number, of this name with or without its number, or of this path."""
    if word.endswith(".ipynb") and Path(word).is_file():
        return Path(word)
    name, known = Path(word).name.removesuffix(".ipynb"), notebooks()
    for fits in (lambda one: one == name, lambda one: one.partition("_")[0] == name,
                 lambda one: one.partition("_")[2] == name):
        found = [path for one, path in known.items() if fits(one)]
        if found:
            return found[0]
    near = get_close_matches(name, known, 3, 0.5) or [one for one in known if name and name in one][:3]
    raise Refusal(f"there is no notebook {word!r}: " + (f"did you mean {', '.join(near)}?" if near else
                                                       "`specdec notebook` alone lists them all"))


def title(path: Path) -> str:
    """The heading that a notebook begins with."""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        found = re.search(r"^# (.+)$", "".join(cell["source"]), re.MULTILINE)
        if found:
            return found[1]
    return path.stem


def listing() -> list[str]:
    """A line for each notebook: its name and its title."""
    known = notebooks()
    return [f"{name:{max(map(len, known))}}  {title(path)}" for name, path in known.items()]


def parameter_lines(path: Path) -> list[str]:
    """A line for each parameter: name, type, value, meaning, bounds."""
    return [f"{one.name}: {one.kind} = {one.default!r}  {', '.join(filter(None, (one.meaning, one.bounds)))}"
            for one in notebook_runner.parameters(path).values()]


def values_of(path: Path, words: Sequence[str], recordings: Path | None = None) -> dict[str, Any]:
    """The values that `name=value` words give to the parameters of a notebook; Refusal for one that does not fit.

    With recordings of another folder `family` is one of those there, unless a word names it.
    """
    known, values = notebook_runner.parameters(path), {}
    for word in words:
        name, sign, text = word.partition("=")
        if not sign:
            raise Refusal(f"-p takes name=value, got {word!r}")
        values[name] = _value(path, known[name], text) if name in known else text
    if recordings is not None:
        if "recordings" not in known:
            raise Refusal(f"{path.name} replays no recordings: leave --recordings away")
        values["recordings"] = str(recordings.resolve())
        families = list(find_recordings(values["recordings"]))
        if "family" in known and known["family"].default not in families:
            values.setdefault("family", families[0])
    return notebook_runner.checked_values(path, values)


def _value(path: Path, known: Parameter, text: str) -> Any:
    """The text as a value of the parameter's type; a path that exists here does so in the notebook's folder, too.

    A folder is a path where its name has a slash: `rag` alone is a family of recordings.
    """
    if known.kind == "str":
        here = "://" not in text and (isfile(text) or "/" in text and exists(text))      # of any text, a long one too
        return str(Path(text).resolve()) if here else text
    try:
        return TRUTH[text.lower()] if known.kind == "bool" else ast.literal_eval(text)
    except (KeyError, ValueError, SyntaxError, RecursionError, MemoryError):
        raise Refusal(f"the parameter {known.name} of {path.name} is of type {known.kind}, got"
                      f" {shown(text)}") from None


def may_be_replaced(executed: Path, path: Path) -> bool:
    """Whether an earlier run left this notebook: papermill wrote it, or it is the copy of one that never began."""
    try:
        content = executed.read_bytes()
        return content == path.read_bytes() or "papermill" in json.loads(content)["metadata"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return False


def write_page(path: Path, values: dict[str, Any], page: Path) -> Path:
    """Executes the notebook and writes its page, with the executed notebook beside it; the page links no other."""
    check_file_place(page)
    executed = page.with_suffix(".ipynb")
    if executed == page:
        raise Refusal(f"--out is the page, and the executed notebook is {executed} beside it: let --out end with .html")
    if executed.resolve() == path.resolve() or executed.is_file() and not may_be_replaced(executed, path):
        raise Refusal(f"{page} would put the executed notebook over {executed}: give --out in another folder")
    check_file_place(executed)
    with alone_in(executed.parent, executed.name):         # another process would put its values under this page
        notebook_runner.run_notebook(path, executed, values, env=notebook_runner.export_env(), progress=True)
        return html_page.to_html(executed, page, title=title(path),
                                 bar=ALONE if path.resolve().parent == FOLDER else "")
