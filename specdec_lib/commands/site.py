"""`specdec site`: the executed notebooks as one static site, with contents, search and a gallery; it needs no network.

nbconvert writes the pages, as it does for the report; this file adds what lies between them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

from specdec_lib.analysis.bibliography import naming
from specdec_lib.bench.provenance import provenance
from specdec_lib.commands import html_page, notebook_runner
from specdec_lib.commands.notebook import notebook_called, notebooks, title
from specdec_lib.commands.notebook_runner import NotebookError
from specdec_lib.commands.page_conclusion import concluded
from specdec_lib.commands.page_links import unquote
from specdec_lib.commands.site_findings import findings_page
from specdec_lib.commands.site_pages import GALLERY, bibliography_page, gallery_page, index_page
from specdec_lib.files import alone_in, write_text
from specdec_lib.types import Refusal

PLOTLY = "plotly.min.js"
CELL_SECONDS = 600
LONGEST = ("80_training_drafters", "05_same_bits", "42_specdiff2", "61_parallel_filling")      # a minute or more each
PAGES = ("index", "gallery", "bibliography")       # that the site has of its own


@dataclass(frozen=True)
class SitePage:
    """One notebook of the site."""

    name: str                                      # of its file, without the ending
    title: str
    about: str                                     # the first paragraph
    headings: tuple[tuple[str, str], ...]          # text and anchor
    found: tuple[str, ...]                         # the sentences of its conclusion


def write_site(out: Path, words: Sequence[str] | None = None, jobs: int = 2, smoke: bool = False,
               progress: Callable[[int, int, str], None] = lambda *_: None) -> Path:
    """Executes these notebooks, or all, `jobs` at once, and writes the site; returns its first page.

    Raises NotebookError after everything else is written, if a notebook failed or a link leads nowhere, and Refusal
    while another process writes a site there.
    """
    chosen = list(notebooks().values()) if words is None else chosen_notebooks(words)
    refuse_other_site(out)
    with alone_in(out):
        return write_chosen(chosen, out, jobs, smoke, progress)


def write_chosen(chosen: Sequence[Path], out: Path, jobs: int, smoke: bool,
                 progress: Callable[[int, int, str], None]) -> Path:
    """The same for these notebooks, in a folder that is this process's own."""
    work, failed, done, kernels = out / "executed", list[str](), list[Path](), list[Any]()
    work.mkdir(parents=True, exist_ok=True)

    def run(path: Path) -> Path:
        values = notebook_runner.smoke_values(path) if smoke else {}
        return notebook_runner.run_notebook(path, work / path.name, values, cell_seconds=CELL_SECONDS,
                                            kernels=kernels, fork=True).path

    # All kernels inherit one environment: it is set around them, not by each beside the others.
    with notebook_runner.environment(notebook_runner.export_env() | {"OMP_NUM_THREADS": "1"}), \
            ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(run, path): path for path in longest_first(chosen)}
        try:
            for count, one in enumerate(as_completed(running), 1):
                progress(count, len(chosen), running[one].stem)
                try:
                    done.append(one.result())
                except NotebookError as error:
                    failed.append(str(error))
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            notebook_runner.end_kernels(kernels, list(running))
            raise
    write_pages(sorted(done), out)
    failed += broken_links(out)
    if failed:
        raise NotebookError(f"the site in {out} has {len(failed)} faults: " + "; ".join(failed[:5]))
    return out / "index.html"


def chosen_notebooks(words: Sequence[str]) -> list[Path]:
    """The notebooks that these words name; Refusal for none, and for two that would be one page of the site."""
    chosen = [notebook_called(word.strip()) for word in words if word.strip()]
    taken: list[str] = list(PAGES)
    for path in chosen:
        if path.stem in taken:
            raise Refusal(f"{path.stem}.html would stand twice in the site: name each notebook once, or rename {path}")
        taken.append(path.stem)
    if not chosen:
        raise Refusal("name at least one notebook, or leave --notebooks out for all; `specdec notebook` lists them")
    return chosen


def longest_first(paths: Sequence[Path]) -> list[Path]:
    """The notebooks with the longest ones first: begun last, one of them alone would run at the end."""
    return sorted(paths, key=lambda path: path.stem not in LONGEST)


def refuse_other_site(out: Path) -> None:
    """Refuses a folder whose first page is of another site: all its pages would be mixed with these."""
    first = out / "index.html"
    if first.exists() and (not first.is_file() or html_page.BAR.encode() not in first.read_bytes()):
        raise Refusal(f"{first} is of another site: give --out a folder of its own")


def write_pages(executed: Sequence[Path], out: Path) -> None:
    """The pages of executed notebooks, the contents, the gallery, the bibliography, and all findings as Markdown."""
    write_text(out / PLOTLY, html_page.plotly_js())
    pages, names = [], [path.stem for path in executed]
    for place, path in enumerate(executed):
        bar = '<a href="index.html">all notebooks</a>'
        bar += f'<a href="{names[place - 1]}.html">previous</a>' if place else ""
        bar += f'<a href="{names[place + 1]}.html">next</a>' if place + 1 < len(names) else ""
        page = html_page.to_html(path, out / f"{path.stem}.html", title=title(path), plotly=PLOTLY, bar=bar,
                                 beside=names)
        pages.append(site_page(path.stem, page.read_text(encoding="utf-8")))
    write_text(out / "findings.md", findings_page(pages, provenance()))
    shown = [name for name in GALLERY if name in names]
    write_text(out / "index.html", index_page(pages, bool(shown)))
    figures = [(page, picture(out / f"{page.name}.html")) for page in pages if page.name in shown]
    write_text(out / "gallery.html", gallery_page(figures, PLOTLY))
    sources = {path.stem: path for path in notebooks().values()}       # as written: outputs list every method's source
    places = naming(sources.get(path.stem, path) for path in executed)
    write_text(out / "bibliography.html", bibliography_page(pages, places))


def site_page(name: str, html: str) -> SitePage:
    """What the contents and the search say of a page."""
    found = re.findall(r'<h([1-3]) id="([^"]+)">(.*?)<a class="anchor-link"', html, re.DOTALL)
    headings = [(plain(text), unescape(anchor)) for _, anchor, text in found]
    about = re.search(r"</h1>\s*<p>(.*?)</p>", html, re.DOTALL)
    return SitePage(name, headings[0][0] if headings else name, plain(about[1]) if about else "", tuple(headings[1:]),
                    concluded(html))


def plain(html: str) -> str:
    """The text of a piece of HTML."""
    return " ".join(unescape(re.sub(r"<[^>]+>", "", html)).split())


def picture(page: Path) -> str:
    """The first display with controls of a page, or else its first figure, as HTML."""
    html = page.read_text(encoding="utf-8")
    for begin, end in (('<div class="specdec-explore">', "</script></div>"),
                       ('<div>\\s*<div id="[^"]*" class="plotly-graph-div"', "</script>\\s*</div>")):
        found = re.search(f"{begin}.*?{end}", html, re.DOTALL)
        if found:
            return found[0]
    return ""


def broken_links(folder: Path) -> list[str]:
    """Every link and source of the pages of a folder that leads nowhere, and everything fetched from a network."""
    pages = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.html"))}
    anchors = {name: {unescape(one) for one in re.findall(r'\sid="([^"]+)"', html)} for name, html in pages.items()}
    broken = []
    for name, html in pages.items():
        body = re.sub(r"<(script|style)\b([^>]*)>.*?</\1>", r"<\1\2>", html, flags=re.DOTALL)
        for tag, _, raw in re.findall(r'<(\w+)\b[^>]*?\s(href|src)="([^"]*)"', body):
            link = unescape(raw)
            file, _, at = link.partition("#")
            if re.match(r"(https?:)?//", link):
                broken += [f"{name} fetches {link}"] * (tag != "a")
            elif not re.match(r"(data|mailto):", link):
                there = unquote(file) or name
                if not (folder / there).is_file():
                    broken.append(f"{name} links {link}, which does not exist")
                elif at and there in anchors and at not in anchors[there] and unquote(at) not in anchors[there]:
                    broken.append(f"{name} links {link}, which has no such heading")
    return broken
