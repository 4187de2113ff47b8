"""Links from the page of one notebook to others: to a page where there is one, else the other's name as text."""

from __future__ import annotations

import re
from collections.abc import Collection

LINK = re.compile(r'<a href="(?P<name>[^"/:#]+)\.ipynb(?P<at>#[^"]*)?"(?P<more>[^>]*)>(?P<text>.*?)</a>', re.DOTALL)


def linked(html: str, names: Collection[str] = ()) -> str:
    """Links to notebooks lead to the pages beside this one, those of `names`; any other notebook becomes text.

    The text says, under the pointer, which command writes the missing page.
    """
    def to_page(found: re.Match) -> str:
        name = unquote(found["name"])
        if name in names:
            return f'<a href="{found["name"]}.html{found["at"] or ""}"{found["more"]}>{found["text"]}</a>'
        return f'<span title="specdec notebook {found["name"]} writes its page">{found["text"]}</span>'

    return LINK.sub(to_page, html)


def unquote(link: str) -> str:
    """The link with its percent signs decoded; urllib would open sockets, which this package does not."""
    def text(found: re.Match) -> str:
        return bytes.fromhex(found[0].replace("%", "")).decode("utf-8", "replace")

    return re.sub("(%[0-9A-Fa-f]{2})+", text, link)
