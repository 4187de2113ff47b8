"""What a notebook found, taken from the output of its `show.conclusion`: a page says it below the title."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from specdec_lib.show.html import CONCLUSION

SAID = re.compile(rf'<div class="{CONCLUSION}"[^>]*>(.*?)</div>', re.DOTALL)
PARAGRAPH = re.compile(r"<p[^>]*>(.*?)</p>", re.DOTALL)
OPENING = re.compile(r"# .+\n+(?:.+\n)+\n")       # a title and the paragraph below it
BOX = "specdec-found"                              # the class of what stands below the title


def with_conclusion(executed: Any) -> None:
    """Puts the conclusion of an executed notebook below its title and first paragraph, with a link to its own cell."""
    from nbformat.v4 import new_markdown_cell

    found = SAID.search(displayed(executed))
    if found:
        said = f'<p><b>What came out</b>, <a href="#{CONCLUSION}">computed below</a> from the data of this page:</p>'
        box = f'<div class="{BOX}">{said}{found[1]}</div>'
        begin = OPENING.match(executed.cells[0].source)
        place = begin.end() if begin else len(executed.cells[0].source)
        opening, rest = executed.cells[0].source[:place], executed.cells[0].source[place:]
        executed.cells[:1] = [new_markdown_cell(text) for text in (opening, box, rest) if text.strip()]


def concluded(html: str) -> tuple[str, ...]:
    """The sentences of the conclusion that a page displays; none where it has no conclusion."""
    found = SAID.search(html)
    return tuple(" ".join(unescape(re.sub(r"<[^>]+>", "", one)).split())
                 for one in PARAGRAPH.findall(found[1] if found else ""))


def displayed(executed: Any) -> str:
    """The HTML of all outputs of an executed notebook."""
    return "\n".join("".join(output.get("data", {}).get("text/html", "")) for cell in executed.cells
                     for output in cell.get("outputs", []))
