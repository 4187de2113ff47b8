"""A token tree, left to right: accepted nodes are discs, rejected ones crosses, the verdict's own token a diamond."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from specdec_lib.figures.theme import INK, PALETTE, SYMBOL, canvas, literal, same_length


def tree(words: Sequence[str], parents: Sequence[int], accepted: Sequence[int] | None = None,
         extra: str | None = None, title: str | None = None, kept: Sequence[int] = ()) -> go.Figure:
    """A draft as a tree; `accepted` are nodes from root to leaf (None: not verified yet), `extra` follows the last one.

    A parent of -1 is the context, drawn as a small ring; parents precede their children. The nodes of a chain that a
    rule has `kept`, whether or not they are accepted, have a large ring. A line break in a word begins another line.
    """
    same_length(words=words, parents=parents)
    status = ["draft" if accepted is None else "accepted" if i in accepted else "rejected" for i in range(len(words))]
    words, parents = list(map(literal, words)), [int(parent) for parent in parents]
    if extra is not None:
        words, parents = words + [literal(extra)], parents + [accepted[-1] if accepted else -1]
        status.append("extra")
    where = [_place(node, parents, _heights(parents)) for node in range(len(words))]
    figure = canvas(title or _takeaway(status), "depth (tokens after the context)", "")
    _edges(figure, where, parents, _root(parents, where))
    for role in ("draft", "accepted", "rejected", "extra"):
        nodes = [i for i, one in enumerate(status) if one == role]
        if nodes:
            figure.add_scatter(x=[where[i][0] for i in nodes], y=[where[i][1] for i in nodes], mode="markers+text",
                               name=role, text=[words[i] for i in nodes], textposition="top center", cliponaxis=False,
                               marker={"symbol": SYMBOL[role], "size": 14, "color": PALETTE[role]})
    if kept:
        figure.add_scatter(x=[where[i][0] for i in kept], y=[where[i][1] for i in kept], mode="markers",
                           name="kept chain", marker={"symbol": "circle-open", "size": 24, "color": INK})
    deepest = max((spot[0] for spot in where), default=1)
    leaves = len(words) - len(set(parents) - {-1})
    figure.update_layout(height=180 + 45 * max(leaves, 1), showlegend=True)
    lowest = max((spot[1] for spot in where), default=0.0)
    figure.update_yaxes(visible=False, range=[lowest + 0.5, -0.9])       # reversed; room for the first words
    return figure.update_xaxes(dtick=1, range=[-0.3, deepest + 0.5])


def _heights(parents: Sequence[int]) -> list[float]:
    """Leaves one below another in reading order, every inner node halfway between its first and last child."""
    below: dict[int, list[int]] = {}
    for node, parent in enumerate(parents):
        if not -1 <= parent < node:
            raise ValueError(f"node {node} must come after its parent, got parent {parent}")
        below.setdefault(parent, []).append(node)
    heights, line = [0.0] * len(parents), 0
    waiting = list(reversed(below.get(-1, [])))
    while waiting:                                 # depth first, so that leaves come in reading order
        node = waiting.pop()
        if node in below:
            waiting += reversed(below[node])
        else:
            heights[node], line = float(line), line + 1
    for node in sorted(below, reverse=True):       # a child has a larger index, so its height is known first
        if node >= 0:
            heights[node] = (heights[below[node][0]] + heights[below[node][-1]]) / 2
    return heights


def _place(node: int, parents: Sequence[int], heights: Sequence[float]) -> tuple[int, float]:
    depth, at = 1, node
    while parents[at] != -1:
        depth, at = depth + 1, parents[at]
    return depth, heights[node]


def _root(parents: Sequence[int], where: Sequence[tuple[int, float]]) -> tuple[int, float]:
    first = [spot[1] for spot, parent in zip(where, parents, strict=True) if parent == -1]
    return 0, sum(first) / len(first) if first else 0.0


def _edges(figure: go.Figure, where, parents, root) -> None:
    x, y = [], []
    for spot, parent in zip(where, parents, strict=True):
        start = root if parent == -1 else where[parent]
        x += [start[0], spot[0], None]
        y += [start[1], spot[1], None]
    figure.add_scatter(x=x, y=y, mode="lines", line={"color": PALETTE["quiet"], "width": 2}, showlegend=False,
                       hoverinfo="skip")
    figure.add_scatter(x=[root[0]], y=[root[1]], mode="markers", showlegend=False, hovertext="context",
                       marker={"symbol": "circle-open", "size": 12, "color": PALETTE["target"]})


def _takeaway(status: Sequence[str]) -> str:
    kept, nodes = status.count("accepted"), len(status) - status.count("extra")
    return f"A draft of {nodes} nodes" if "draft" in status or not nodes else f"{kept} of {nodes} nodes were accepted"
