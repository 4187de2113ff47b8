"""What every notebook of a site found, as one page of Markdown: questions, answers, and where they were computed."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

from specdec_lib.commands.site_pages import PARTS, Contents, numbered

OPENED = ("Each notebook asks a question and computes an answer: these are the answers, computed with the values of the"
          " command below. `specdec notebook 40 -p NAME=VALUE` computes one with other values, `--recordings` with your"
          " own recordings.")
WIDTH = 138
LINKED = "../../notebooks"                         # from `results/site` as from `data/results`


def findings_page(pages: Sequence[Contents], made: dict[str, Any]) -> str:
    """The conclusions of these notebooks by part; `made` is the provenance of the run that executed them."""
    parts = []
    for digit, called in PARTS.items():
        some = [f"**[{numbered(page.name, page.title)}]({LINKED}/{page.name}.ipynb)**\n{wrapped(' '.join(page.found))}"
                for page in pages if page.name.startswith(digit) and page.found]
        parts += [f"## {called}", *some] if some else []
    return "\n\n".join(["# What the notebooks found", wrapped(OPENED), wrapped(_written(made)), *parts]) + "\n"


def wrapped(text: str) -> str:
    """The text in lines that a reader of the source sees whole."""
    return fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _written(made: dict[str, Any]) -> str:
    """One sentence of provenance."""
    commit = f" at commit {made['commit'][:7]}" if made.get("commit") else ""
    changed = " with changes" if made.get("changed") else ""
    machine = f"{made['machine']['cores']} cores of an {made['machine']['processor']}"
    return (f"Written by `{made['command']}` on {made['created'][:10]}{commit}{changed}, on {machine}: where a sentence"
            " says \"this machine\", it is that one.")
