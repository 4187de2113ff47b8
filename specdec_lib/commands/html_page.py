"""One page of an executed notebook that needs no network: figures, controls, light and dark theme.

Figures are taken as the data that the kernel wrote, and drawn by one copy of plotly.js, in the page or beside it.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from specdec_lib.commands.figure_csv import csv_link, explored_csv, figure_csv
from specdec_lib.commands.page_conclusion import with_conclusion
from specdec_lib.commands.page_figures import figure_script
from specdec_lib.commands.page_links import linked
from specdec_lib.files import write_text

OUTSIDE = re.compile(r'<script[^>]*\ssrc="[^"]*"[^>]*>\s*</script>')         # a self-contained page fetches none
FORMULA = re.compile(r"`[^`]*`|\$(?P<latex>[^$\s`](?:[^$\n`]*[^$\s`])?)\$(?!\d)")   # code is no formula
LIMIT = re.compile(r"\\arg\s*\\(min|max)(?![a-z])")       # latex2mathml knows it as one word, MathJax as two
FIGURE = "application/vnd.plotly.v1+json"
HELD = re.compile(r'<script type="application/json">(.*?)</script>', re.DOTALL)       # see show/page_controls.py
LOOK = """
.specdec-found { border: 1px solid #888; border-radius: 6px; padding: 4px 12px; }
.jp-RenderedHTMLCommon .specdec-found p { margin: 4px 0; }
.jp-RenderedHTMLCommon table { display: block; overflow-x: auto; max-width: 100%; width: max-content; }
.jp-RenderedHTMLCommon :hover > a.anchor-link, a.anchor-link:focus { display: inline; padding-left: 6px; }
.jp-RenderedHTMLCommon math { math-style: normal; font-size: 115%; }
main { max-width: 1100px; margin: 0 auto; padding: 8px 12px; }
body { background: var(--jp-layout-color0); color: var(--jp-content-font-color1); }
:root { --jp-mirror-editor-comment-color: #2e6b6b; --jp-mirror-editor-number-color: #006b00;
  --jp-mirror-editor-operator-color: #8b10d6; }
:root[data-theme="dark"] { --jp-mirror-editor-number-color: #66bb6a;
  --jp-mirror-editor-comment-color: #7fbcbc; --jp-mirror-editor-operator-color: #d9a3ff; }
input[type=range] { width: min(300px, 60vw); vertical-align: middle; }
.specdec-fold > summary { color: var(--jp-content-font-color2); cursor: pointer;
  font-family: var(--jp-content-font-family); font-size: 13px; margin: 6px 0; }
.specdec-bar { display: flex; flex-wrap: wrap; gap: 4px 16px; align-items: center; justify-content: flex-end;
  max-width: 1100px; margin: 0 auto; padding: 8px 12px; font-family: var(--jp-content-font-family); font-size: 14px; }
.specdec-bar a, .specdec-bar button { color: var(--jp-content-link-color); background: none; border: none;
  font: inherit; cursor: pointer; text-decoration: none; }
.specdec-bar :first-child { margin-right: auto; }
"""
# The theme is chosen before anything is drawn: what was chosen last, or else what the reader's system says.
THEME = """
(() => {
  const root = document.documentElement, kept = () => { try { return localStorage.getItem("theme"); } catch { } };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const set = name => { root.dataset.theme = name; };
  set(kept() || (dark.matches ? "dark" : "light"));
  dark.addEventListener("change", () => kept() || set(dark.matches ? "dark" : "light"));
  window.specdecTheme = () => {
    set(root.dataset.theme === "dark" ? "light" : "dark");
    try { localStorage.setItem("theme", root.dataset.theme); } catch { }
  };
})();
"""
# Code that a reader need not see first: a browser opens it with a click, and when it searches the page.
FOLD = """{% extends 'lab/index.html.j2' %}
{% block input_group %}{% if cell.metadata.fold and resources.global_content_filter.include_input %}
<details class="specdec-fold"><summary>{{ cell.metadata.fold }}</summary>{{ super() }}</details>
{% else %}{{ super() }}{% endif %}{% endblock input_group %}"""
BAR = '<nav class="specdec-bar"'                    # opens the bar, on every page of ours
BUTTON = '<button type="button" onclick="specdecTheme()">light or dark</button>'


def to_html(executed: str | Path, page: str | Path, code: bool = True, title: str | None = None,
            plotly: str | None = None, bar: str = "", numbers: bool = False, beside: Collection[str] = ()) -> Path:
    """Writes the page of an executed notebook; `code` False leaves out inputs and progress bars.

    Below the title stands what the notebook concludes. Imports, and code that JupyterLab shows collapsed, are folded.
    `plotly` is the address of a plotly.js beside the page; by default the page holds it, once. `bar` is the HTML of
    links above the text. With `numbers` every figure has a link below it that saves its data as CSV. `beside` names the
    notebooks whose pages stand beside this one: links to them lead there, links to others become text. The page is
    written atomically.
    """
    import nbformat
    from jinja2 import DictLoader
    from nbconvert import HTMLExporter

    notebook = nbformat.read(str(executed), as_version=4)
    for cell in notebook.cells:
        cell.get("metadata", {}).pop("papermill", None)
        if cell.cell_type == "markdown":
            cell.source = with_formulas(cell.source)
        if cell.cell_type == "code":
            cell.metadata["fold"] = folded(cell)
            cell.outputs = [_drawn(out, numbers) for out in cell.outputs if code or out.get("name") != "stderr"]
    with_conclusion(notebook)
    exporter = HTMLExporter(exclude_input=not code, exclude_input_prompt=True, exclude_output_prompt=True,
                            mathjax_url="", require_js_url="", jquery_url="", widget_renderer_url="",
                            extra_loaders=[DictLoader({"fold": FOLD})], template_file="fold")
    body, _ = exporter.from_notebook_node(
        notebook, resources={"metadata": {"name": title or notebook.metadata.get("title", Path(executed).stem)}})
    body = linked(OUTSIDE.sub("", body), beside)
    script = f'<script src="{plotly}"></script>' if plotly else f"<script>{plotly_js()}</script>"
    drawing = script + figure_script() if "plotly-graph-div" in body or "specdec-explore" in body else ""
    head, rest = body.split("</head>", 1)
    opened = re.search(r"<body[^>]*>", rest)
    assert opened is not None                      # the exporter writes one
    place = opened.end()
    page = Path(page)
    page.parent.mkdir(parents=True, exist_ok=True)
    write_text(page, f"{head}{theme_head()}{drawing}</head>{rest[:place]}{page_bar(bar)}{rest[place:]}")
    return page


def folded(cell: Any) -> str:
    """What stands on the fold of a code cell: imports alone, or code that JupyterLab shows collapsed; else nothing."""
    try:
        lines = ast.parse(cell.source).body
    except SyntaxError:                            # a magic
        lines = []
    if lines and all(isinstance(line, ast.Import | ast.ImportFrom) for line in lines):
        return "imports"
    return "code" if cell.metadata.get("jupyter", {}).get("source_hidden") else ""


def with_formulas(markdown: str) -> str:
    """The text with each $formula$ as MathML, which browsers draw without a script; code and prices stay."""
    from latex2mathml.converter import convert

    def drawn(found: re.Match) -> str:
        return found[0] if found["latex"] is None else convert(LIMIT.sub(r"\\arg\1", found["latex"]))

    return FORMULA.sub(drawn, markdown)


def page_bar(links: str = "") -> str:
    """The bar above a page: its links, and the button that changes the theme."""
    return f'{BAR} aria-label="pages">{links or "<span></span>"}{BUTTON}</nav>'


def theme_head() -> str:
    """Style and script of both themes, for the head of a page that nbconvert's light theme has styled."""
    from nbconvert import HTMLExporter

    dark = (_template_folder(HTMLExporter()) / "static" / "theme-dark.css").read_text()
    dark = re.sub(r"/\*.*?\*/", "", dark, flags=re.DOTALL).replace(":root", ':root[data-theme="dark"]')
    return f"<style>{dark}</style>{bar_head()}"


def bar_head() -> str:
    """Style of the bar above a page and the script that chooses its theme."""
    return f"<style>{LOOK}</style><script>{THEME}</script>"


def plotly_js() -> str:
    """The source of plotly.js as the installed package brings it."""
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def _template_folder(exporter: Any) -> Path:
    found = [Path(path) for path in exporter.template_paths if (Path(path) / "static" / "theme-dark.css").is_file()]
    return found[0]


def _drawn(output: Any, numbers: bool = False) -> Any:
    """The output with its figure as HTML that plotly.js draws as wide as the page, where it holds a figure."""
    from plotly.io import to_html as figure_html

    figure, data = output.get("data", {}).get(FIGURE), output.get("data", {})
    if figure is None:
        if numbers and "specdec-explore" in data.get("text/html", ""):
            data["text/html"] += _explored_link(data["text/html"])
        return output
    layout = figure.get("layout", {})
    high = layout.get("height") or layout.get("template", {}).get("layout", {}).get("height") or 450
    html = figure_html({key: figure[key] for key in ("data", "layout")}, include_plotlyjs=False, full_html=False,
                       config={"responsive": True}, default_width="100%", default_height=f"{high}px", validate=False)
    link = csv_link(figure_csv(figure), layout.get("title", {}).get("text", "")) if numbers else ""
    output.data = {"text/html": html + link}
    return output


def _explored_link(html: str) -> str:
    """The link to the data of all pictures of a control, which the page holds as JSON."""
    found = HELD.search(html)
    held = json.loads(found[1]) if found else {"labels": {}, "at": {}}
    return csv_link(explored_csv(held), "-".join(held["labels"]))
