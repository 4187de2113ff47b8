"""How figures follow the reader of a page: lines and margins of a narrow screen, inks and grounds of the dark theme.

A figure is written once, for a light page of a desktop. A script of the page lies between it and plotly.js: it hands
on what a wide light page draws, and draws again when the theme or the width changes.
"""

from __future__ import annotations

import json

from specdec_lib.figures.theme import DETAIL, INK, PALETTE

GROUND = "#111111"                                 # of a dark page, behind its figures
MARKS = {INK: "#dddddd", PALETTE["target"]: "#757575", "#E6E6E6": "#333333"}           # lines and areas -> in the dark
LETTERS = {INK: "#dddddd", PALETTE["target"]: "#b3b3b3", PALETTE["extra"]: "#56b4e9", PALETTE["rejected"]: "#ff9a4d"}
SCRIPT = """
(() => {
  const plain = window.Plotly, held = new WeakMap(), root = document.documentElement, NARROW = 560;
  const pen = document.createElement("canvas").getContext("2d");
  const long = (text, size) => {
    pen.font = `${size}px "DejaVu Sans", Verdana, Arial, sans-serif`;
    return pen.measureText(text.replace(/<[^>]*>/g, "")).width;
  };
  // Lines of at most so many pixels; only a word that is longer by itself is broken, after its commas and the like.
  const wrapped = (text, size, most) => text.split(/\\s+|<br>/).flatMap(word => long(word, size) > most
      ? word.split(/(?<=[-,:+])/).map((part, i) => [i ? "" : " ", part]) : [[" ", word]])
    .reduce((all, [gap, part]) => all.length && long(all.at(-1) + gap + part, size) <= most
      ? [...all.slice(0, -1), all.at(-1) + gap + part] : [...all, part], []).join("<br>");
  const count = text => text.split("<br>").length, most = numbers => Math.max(0, ...numbers);
  const axes = (layout, letter) => [...new Set([...Object.keys(layout.template?.layout ?? {}), ...Object.keys(layout)])]
    .filter(key => key.startsWith(letter + "axis"));
  const words = list => Array.isArray(list) && list.some(one => typeof one === "string");
  const labels = (data, axis, key) => axis.ticktext ?? axis.categoryarray ?? [...new Set(data.filter(trace =>
    (trace[key.slice(0, 5)] ?? key[0]) === key.replace("axis", "") && words(trace[key[0]]))
    .flatMap(one => one[key[0]]))];

  const BELOW = {orientation: "h", yref: "container", y: 0, yanchor: "bottom", x: .5, xanchor: "center", len: .9,
    lenmode: "fraction", thickness: 10, tickfont: {size: 11}};

  const narrowed = (data, layout, width) => {
    const base = layout.template?.layout ?? {}, high = layout.height ?? base.height ?? 450;
    const room = {t: 80, b: 80, r: 80, ...base.margin, ...layout.margin}, made = {...layout};
    const traces = data.map(one => ({...one, ...one.name && {name: wrapped(one.name, 11, width - 70)},
      ...one.colorbar && one.showscale !== false && {colorbar: {...one.colorbar, ...BELOW,
        title: {text: wrapped(one.colorbar.title?.text ?? "", 11, .8 * width), side: "bottom", font: {size: 11}}}}}));
    const named = [...traces.filter(one => one.name && one.showlegend !== false && !/heatmap|contour/.test(one.type)),
      ...(layout.shapes ?? []).filter(one => one.name && one.showlegend)].map(one => one.name);
    const wide = named.map(name => most(name.split("<br>").map(line => long(line, 11))) + 45);
    const title = wrapped(layout.title?.text ?? "", 14, width - 20), top = 14 + 18 * count(title);
    made.title = {...layout.title, text: title, font: {size: 14}};
    made.margin = {...layout.margin, t: top + 10, l: 10};
    made.annotations = (layout.annotations ?? []).filter(one => one.name !== DETAIL);
    let side = 40, tall = high - room.t - room.b;  // the labels beside the plot, and the plot itself
    for (const key of [...axes(layout, "y"), ...axes(layout, "x")]) {
      const axis = layout[key] ?? {}, told = axis.title?.text ?? "", part = axis.domain ?? [0, 1];
      const place = key[0] === "y" ? .38 * width : 120, names = labels(data, axis, key).map(String);
      const short = names.map(name => wrapped(name, 11, place));
      const space = key[0] === "y" ? (high - room.t - room.b) * (part[1] - part[0]) : width - side - 20 - room.r;
      made[key] = {...axis, tickfont: {...axis.tickfont, size: 11},
        ...told && {title: {...axis.title, text: wrapped(told, 12, space), font: {size: 12}}}};
      if (names.some((name, i) => name !== short[i]))
        Object.assign(made[key], {tickvals: axis.tickvals ?? names, ticktext: short});
      if (key[0] === "x") continue;
      side = most([side, ...short.flatMap(one => one.split("<br>")).map(one => long(one, 11))]);
      tall = most([tall, names.length * (6 + 14 * most(short.map(count))) / (part[1] - part[0])]);
    }
    const [across, up] = [made.xaxis?.range, made.yaxis?.range], bar = traces.some(one => one.colorbar?.orientation);
    if (made.yaxis?.scaleanchor && across && up)   // squares: no higher than the width lets them be
      tall = Math.min(tall, (width - 10 - room.r) * Math.abs((up[1] - up[0]) / (across[1] - across[0])));
    // The legend stands below the title: Plotly makes the margin as high as its rows, which are as wide as the plot.
    const free = width - side - 20 - room.r, columns = Math.max(1, Math.floor(free / most(wide)));
    const rows = wide.reduce((sum, one) => sum + one, 0) <= free ? 1 : Math.ceil(named.length / columns);
    const keys = (layout.showlegend ?? named.length > 1) ? 14 + 19 * rows * most(named.map(count)) : 10;
    made.height = top + keys + tall + room.b + (bar ? 70 : 0);
    made.legend = {...layout.legend, font: {size: 11}, xref: "container", yref: "container", x: .02, xanchor: "left",
      y: 1 - top / made.height, yanchor: "top"};
    return [traces, made];
  };

  const inked = (one, inks, letters, key = "") => {
    if (typeof one === "string") return /color$/.test(key) ? inks[one.toUpperCase()] ?? one : one;
    if (Array.isArray(one)) return /color$/.test(key) || typeof one[0] === "object"
      ? one.map(each => inked(each, inks, letters, key)) : one;
    if (one === null || typeof one !== "object") return one;
    const own = /font$/.test(key) ? letters : inks;
    return Object.fromEntries(Object.entries(one).map(([name, each]) => [name, inked(each, own, letters, name)]));
  };
  // A map keeps its light ground, which its letters and lines are made for.
  const darkened = (data, layout) => {
    const map = data.some(one => /heatmap|contour/.test(one.type));
    const grey = Object.fromEntries(Object.entries(MARKS).filter(([ink]) => !map || ink !== INK));
    const drawn = one => inked(one, grey, map ? grey : LETTERS);
    const written = (one, font) => map ? {...one, [font]: {color: INK, ...one[font]}} : one;
    const dark = {...inked({...layout, annotations: [], shapes: []}, MARKS, LETTERS), paper_bgcolor: GROUND,
      plot_bgcolor: map ? "#ffffff" : GROUND, shapes: drawn(layout.shapes ?? []),
      annotations: (layout.annotations ?? []).map(one => drawn(written(one, "font")))};
    for (const key of [...axes(layout, "x"), ...axes(layout, "y")]) dark[key] = {...dark[key], tickcolor: "#888888"};
    return [data.map(one => drawn(/text/.test(one.mode) ? written(one, "textfont") : one)), dark];
  };

  const draw = (how, box, data, layout, config) => {
    const width = box.clientWidth || root.clientWidth, narrow = width < NARROW, base = layout.template?.layout ?? {};
    held.set(box, {drawn: [data, layout, config], narrow});
    if (narrow) [data, layout] = narrowed(data, layout, width);
    if (root.dataset.theme === "dark") [data, layout] = darkened(data, layout);
    (box.parentNode.style.height ? box.parentNode : box).style.height = (layout.height ?? base.height ?? 450) + "px";
    return plain[how](box, data, layout, config);
  };
  const caught = how => (box, data, layout = {}, config) =>
    draw(how, typeof box === "string" ? document.getElementById(box) : box, data, layout, config);
  window.Plotly = {...plain, newPlot: caught("newPlot"), react: caught("react")};
  const again = which => document.querySelectorAll(".js-plotly-plot").forEach(box => {
    const known = box.data && held.get(box);
    if (known && which(box, known)) draw("react", box, ...known.drawn);
  });
  let last = innerWidth;                           // a telephone's bar that hides changes the height alone
  addEventListener("resize", () => {
    if (innerWidth !== last) again((box, known) => known.narrow || box.clientWidth < NARROW);
    last = innerWidth;
  });
  new MutationObserver(() => again(() => true)).observe(root, {attributeFilter: ["data-theme"]});
})();
"""


def figure_script() -> str:
    """The script that fits every figure of a page to its width and theme; it stands after plotly.js."""
    upper = {name: {old.upper(): new for old, new in inks.items()}
             for name, inks in (("MARKS", MARKS), ("LETTERS", LETTERS))}
    known = {**upper, "GROUND": GROUND, "INK": INK, "DETAIL": DETAIL}
    names = "".join(f"const {name} = {json.dumps(value)};" for name, value in known.items())
    return f"<script>{{{names}{SCRIPT}}}</script>"
