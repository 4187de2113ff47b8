"""Text that runs where it reaches a page unescaped, and what of it a browser would run."""

from html.parser import HTMLParser

BOOM = "boom()"
SCRIPT = f"x'\"><script>{BOOM}</script><img src=x onerror={BOOM}><a href=javascript:{BOOM}>y</a>"


class Runs(HTMLParser):
    """Collects what a browser would run of SCRIPT: script elements of its own, handlers and links."""

    def __init__(self):
        super().__init__()
        self.found, self.inside = [], False

    def handle_starttag(self, tag, attrs):
        self.inside = tag == "script"
        self.found += [f"<{tag} {name}={value}>" for name, value in attrs
                       if BOOM in (value or "") and (name.startswith("on") or name in ("href", "src"))]

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside and data.strip() == BOOM:
            self.found.append(f"<script>{data}")


def running(html: str) -> list[str]:
    """What of SCRIPT a browser would run on this page; empty where all of it is text."""
    page = Runs()
    page.feed(html)
    return page.found
