"""The pages of the site that are no notebooks: contents with search, the gallery, and the bibliography."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Protocol

from specdec_lib.analysis.bibliography import works_table
from specdec_lib.commands.html_page import bar_head, page_bar
from specdec_lib.commands.page_figures import figure_script

FLAGSHIPS = ("40_respec", "41_diffuspec")
TOUR, RACES = "00_tour", "06_race"
GALLERY = {                                        # notebook -> what to move in its picture, and what to see
    TOUR: "Move <code>round</code>: the draft of that round stands above the answer so far.",
    "01_why_decoding_is_slow": "Move <code>batch</code> or <code>bandwidth</code>: up to the knee of the line, further"
                               " tokens cost nothing on paper.",
    "11_when_entropy_trigger": "Move <code>threshold</code>: the rule copies where the mean before a token is below"
                               " the line; the marks tell whether that pays.",
    "12_when_svip": "Move <code>h</code>: at a higher threshold drafts end later, so fewer tokens are missed and more"
                    " are wasted.",
    "24_what_eagle": "Move <code>depth</code>: each bar is the draft of one round: its accepted and rejected tokens.",
    "26_what_early_exit": "Move <code>level</code>, the layer after which a token is drafted: the title says how many"
                          " tokens a forward gets, and the speed predicted from them.",
    "29_what_path_search": "Move <code>position</code>: the searched path joins one candidate of every slot; compare it"
                           " with the target's tokens.",
    "33_how_relaxed": "Move <code>margin</code>: at a larger one fewer copied tokens pass that differ from the target's"
                      " own.",
    "40_respec": "Move <code>ms</code>: how far two decodes of one prompt have come after that time, as predicted.",
    "41_diffuspec": "Move <code>verify</code>, the price of a verification: a method above the curve is predicted to be"
                    " faster than plain decoding."}
PARTS = {"0": "The basis", "1": "When to draft", "2": "What to draft", "3": "How to verify", "4": "Systems, measured",
         "5": "Drafting and verifying at the same time", "6": "Diffusion models as the target",
         "7": "Beyond left-to-right text", "8": "Training", "9": "Report and your own method"}
SHORT = 120                                        # letters of what a notebook is about, in the contents
LOOK = """
:root { --jp-layout-color0: #ffffff; --jp-content-font-color1: #1a1a1a; --jp-content-link-color: #0b57a4;
  --jp-content-font-family: system-ui, sans-serif; --line: #767676; }
:root[data-theme="dark"] { --jp-layout-color0: #111111; --jp-content-font-color1: #eeeeee;
  --jp-content-link-color: #8ab8ff; --line: #999999; }
body { font-family: var(--jp-content-font-family); line-height: 1.5; margin: 0; }
a { color: var(--jp-content-link-color); }
li { margin: 4px 0; } .about { opacity: .8; } .found { margin: 0 0 10px; max-width: 900px; font-size: 90%; }
input[type=search] { font: inherit; width: min(500px, 90%); padding: 6px; color: inherit;
  background: transparent; border: 1px solid var(--line); }
th, td { text-align: left; vertical-align: top; padding: 2px 12px 2px 0; }
.picture { padding: 8px 0; overflow-x: auto; }
@media (max-width: 560px) { thead { display: none; } tr { display: block; padding: 6px 0; } td { display: inline; }
  td:last-child { display: block; } }
"""
SEARCH = """
const field = document.querySelector("input[type=search]"), list = document.querySelector("#found");
field.addEventListener("input", () => {
  const words = field.value.toLowerCase().split(/\\s+/).filter(Boolean);
  const holds = (...texts) => words.every(word => texts.join(" ").toLowerCase().includes(word));
  const near = held.filter(one => holds(one.text, one.said));
  const hits = words.length ? [...near, ...held.filter(one => !near.includes(one) && holds(one.text, one.about))] : [];
  list.replaceChildren(...hits.slice(0, 40).map(one => {
    const [item, link, said] = ["li", "a", "span"].map(kind => document.createElement(kind));
    link.href = one.to; link.textContent = one.text; said.textContent = one.said; said.className = "about";
    item.append(link, " ", said);
    return item;
  }));
  document.querySelector("#count").textContent =
    words.length ? `${hits.length} found${hits.length > 40 ? ", the first 40 below" : ""}` : "";
});
"""


class Contents(Protocol):
    """What the pages need to know of a notebook."""

    name: Any
    title: Any
    about: Any
    headings: Any
    found: Any


def index_page(pages: Sequence[Contents], gallery: bool) -> str:
    """The contents: flagships first, then every part, each notebook with what it found, and a search."""
    held = [{"text": page.title, "to": f"{page.name}.html", "said": subject(page),
             "about": " ".join((page.name, page.about, *page.found))} for page in pages]
    held += [{"text": f"{page.title} › {text}", "to": f"{page.name}.html#{anchor}", "said": "", "about": ""}
             for page in pages for text, anchor in page.headings]
    first = [page for page in pages if page.name in FLAGSHIPS]
    parts = {"Flagships": first} if first else {}
    parts |= {called: some for digit, called in PARTS.items()
              if (some := [page for page in pages if page.name.startswith(digit) and page not in first])}
    lists = "".join(f'<h2 id="{escape(called)}">{escape(called)}</h2><ul>{"".join(map(_item, some))}</ul>'
                    for called, some in parts.items())
    data = json.dumps(held).replace("<", "\\u003c")
    begin = (f' Begin with <a href="{TOUR}.html">the tour</a> (ten minutes), or follow the path of fifteen notebooks at'
             " its end." if any(page.name == TOUR for page in pages) else "")
    races = (f', but for <a href="{RACES}.html">races of your own</a>, which need JupyterLab'
             if any(page.name == RACES for page in pages) else "")
    return _page("Speculative decoding, a workbook",
                 f"<p>Executed notebooks: {len(pages)}, each with the answer that it computed. Their controls work"
                 f" without a kernel and a network{races}.{begin}</p>"
                 '<p><label>Search by method, paper or heading: <input type="search" name="search"></label> '
                 f'<span id="count" role="status"></span></p><ul id="found"></ul>{lists}'
                 f"<script>const held = {data};{SEARCH}</script>",
                 ('<a href="gallery.html">gallery</a>' if gallery else "")
                 + '<a href="bibliography.html">bibliography</a>')


def gallery_page(pictures: Sequence[tuple[Contents, str]], plotly: str) -> str:
    """The pictures worth showing in a talk, each with its controls and a link to its notebook."""
    shown = "".join(f'<h2 id="{page.name}"><a href="{page.name}.html">{escape(page.title)}</a></h2>'
                    f'<p>{GALLERY.get(page.name, "")}</p><div class="picture">{picture}</div>'
                    for page, picture in pictures if picture)
    return _page("Gallery", "<p>One picture of each of these notebooks; its controls work here as well.</p>"
                 f'<script src="{plotly}"></script>{figure_script()}{shown}', '<a href="index.html">all notebooks</a>')


def bibliography_page(pages: Sequence[Contents], places: Mapping[str, list[str]]) -> str:
    """Every work with its number, if it is cited by one, and the notebooks of this site that name it."""
    titles = {page.name: page.title for page in pages}
    rows = "".join(
        f'<tr><td>{escape(row["work"])}</td><td>{row["year"] or "–"}</td><td>{_arxiv(row["arXiv"])}</td><td>'
        + ", ".join(f'<a href="{name}.html">{escape(numbered(name, titles[name]))}</a>' for name in row["named in"]
                    if name in titles)
        + "</td></tr>" for row in works_table(places))
    said = ("The year is that of the first version on arXiv; a dash marks a system that is cited without a number. The"
            " last column holds the notebooks of this site that name the work or its number; a work without any is"
            " named in the package or in another notebook. Works that are cited by authors and year alone, such as"
            " Stern et al. 2018 and Saxena 2023, have no row.")
    return _page("Bibliography", f"<p>{said}</p><table><thead><tr><th>work</th><th>year</th><th>arXiv</th>"
                 f"<th>named in</th></tr></thead><tbody>{rows}</tbody></table>",
                 '<a href="index.html">all notebooks</a>')


def numbered(name: str, title: str) -> str:
    """The title of a notebook after its number, if it has one."""
    number = name.partition("_")[0]
    return f"{number} · {title}" if number[:1].isdigit() else title


def _arxiv(number: str | None) -> str:
    return f'<a href="https://arxiv.org/abs/{number}">{number}</a>' if number else "–"


def _item(page: Contents) -> str:
    return (f'<li><a href="{page.name}.html">{escape(page.title)}</a> '
            f'<span class="about">{escape(subject(page))}</span>'
            + (f'<p class="found">{escape(" ".join(page.found))}</p>' if page.found else "") + "</li>")


def subject(page: Contents) -> str:
    """The number of a notebook and the first sentence of its text, or that to its colon: method and paper."""
    first = re.split(r"(?<!al)\.(?=\s+[A-Z])", page.about, maxsplit=1)[0].removesuffix(".")
    if len(first) > SHORT:
        first = re.split(r": |(?<=\)); ", first, maxsplit=1)[0]
    return " · ".join(filter(None, (page.name.partition("_")[0], textwrap.shorten(first, SHORT, placeholder=" …"))))


def _page(title: str, body: str, bar: str) -> str:
    return ('<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
            f'content="width=device-width, initial-scale=1"><title>{escape(title)}</title>{bar_head()}'
            f"<style>{LOOK}</style></head><body>{page_bar(bar)}<main><h1>{escape(title)}</h1>{body}</main></body></html>")
