"""Controls of an exported page: everything they can show is in the page, and a small script puts it in place."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from math import prod
from typing import Any

import plotly.graph_objects as go

from specdec_lib.show.html import Html, Stack, as_html

Place = tuple[int, ...]                            # of every control, the number of its value
Control = tuple[str, list[str], bool]              # name, labels of the values, whether they are names

SCRIPT = """
(() => {
  const root = document.currentScript.parentNode, controls = [...root.querySelectorAll("[data-control]")];
  const held = JSON.parse(root.querySelector("script[type='application/json']").textContent);
  const start = held.start, view = root.querySelector(".view");
  const put = (part, box) => {
    if (typeof part === "string") {
      if (box.data) Plotly.purge(box);
      box.style.height = "";
      box.innerHTML = part;
      return;
    }
    if (!window.Plotly) { box.textContent = "This figure needs plotly.js, which this page does not hold."; return; }
    const layout = {...part.layout, template: held.templates[part.template], autosize: true};
    if (!box.data) box.innerHTML = "";
    box.style.height = (layout.height || layout.template.layout.height || 450) + "px";
    Plotly.react(box, part.data, layout, {responsive: true});
  };
  const show = () => {
    const parts = held.pages[held.at[controls.map(c => c.value).join()]];
    while (view.children.length > parts.length) view.lastChild.remove();
    parts.forEach((part, i) => put(part, view.children[i] || view.appendChild(document.createElement("div"))));
  };
  const tell = () => controls.forEach(c => {
    const told = c.parentNode.querySelector("output");
    if (told) { told.textContent = held.labels[c.name][c.value]; c.setAttribute("aria-valuetext", told.textContent); }
  });
  controls.forEach((moved, n) => moved.addEventListener("input", () => {
    if (!(controls.map(c => c.value).join() in held.at))
      controls.forEach((c, i) => { if (i !== n) c.value = start[i]; });
    tell(); show();
  }));
  const reset = root.querySelector("button");
  reset.addEventListener("click", () => { controls.forEach((c, i) => { c.value = start[i]; }); tell(); show(); });
  controls.forEach((c, i) => { c.value = start[i]; });
  tell();
  const ready = () => show();
  document.readyState === "loading" ? document.addEventListener("DOMContentLoaded", ready) : ready();
})();
"""


def page_with_controls(controls: Sequence[Control], start: Place, pages: Mapping[Place, Any]) -> Html:
    """Controls above what they select; where a combination is not in the page, the others go back to their start.

    A page that occurs twice is stored once, and so is a template that figures share.
    """
    stored, templates, at = dict[str, int](), dict[str, int](), {}
    for place, one in pages.items():
        packed = json.dumps([_part(part, templates) for part in _parts(one)])
        at[",".join(map(str, place))] = stored.setdefault(packed, len(stored))
    held = {"at": at, "start": start, "labels": {name: labels for name, labels, _ in controls}}
    data = (json.dumps(held)[:-1] + f', "pages": [{", ".join(stored)}], "templates": [{", ".join(templates)}]' + "}")
    whole = len(pages) == prod(len(labels) for _, labels, _ in controls)
    note = "" if whole else '<span style="opacity:.8">moving one puts the others back</span>'
    fields = "".join(_field(control, place) for control, place in zip(controls, start, strict=True))
    html = ('<div class="specdec-explore"><div style="display:flex;flex-wrap:wrap;gap:4px 20px;align-items:center">'
            f'{fields}<button type="button">reset</button>{note}</div><div class="view"></div>'
            f'<script type="application/json">{data.replace("<", chr(92) + "u003c")}</script>'
            f"<script>{SCRIPT}</script></div>")
    return Html(html, repr(pages[start]))


def _parts(one: Any) -> tuple[Any, ...]:
    return one.parts if isinstance(one, Stack) else (one,)


def _part(one: Any, templates: dict[str, int]) -> Any:
    """HTML as it is; a figure as its data and its layout, the template by its number."""
    if not isinstance(one, go.Figure):
        return as_html(one)
    found = json.loads(str(one.to_json()))
    template = json.dumps(found["layout"].pop("template", {"layout": {}}))
    return {"data": found["data"], "layout": found["layout"],
            "template": templates.setdefault(template, len(templates))}


def _field(control: Control, place: int) -> str:
    """The label and the control, a list for names and a slider for numbers."""
    name, labels, named = control
    said = escape(name, quote=True)
    if named:
        options = "".join(f'<option value="{i}"{" selected" * (i == place)}>{escape(label)}</option>'
                          for i, label in enumerate(labels))
        return f'<label>{said} <select data-control name="{said}">{options}</select></label>'
    return (f'<label>{said} = <output>{escape(labels[place])}</output> <input data-control name="{said}" type="range" '
            f'min="0" max="{len(labels) - 1}" value="{place}"></label>')
