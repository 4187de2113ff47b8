"""Html: a value that notebooks show as HTML and terminals as plain text; Stack: displays below one another."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from typing import Any

import plotly.graph_objects as go

from specdec_lib.figures.theme import PALETTE

INK = "#111111"                                    # on paper of our own; other text has the ink of its page
CONCLUSION = "specdec-conclusion"                  # class and anchor, by which a page finds it
QUIET = "font-size:85%;opacity:.8"                 # of captions and legends
PART = "\ufffd"                                    # what a tokenizer writes for a part of a character
MARK = {"accepted": "solid", "exchanged": "ridge", "rejected": "dashed", "extra": "double", "draft": "dotted",
        "target": "none", "prompt": "none"}


@dataclass(frozen=True)
class Html:
    """HTML for a notebook and the same in plain text."""

    html: str
    plain: str = ""

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.plain


def text(sentence: str) -> Html:
    """One sentence in the size of the surrounding prose."""
    return Html(f'<div style="margin:4px 0;overflow-wrap:anywhere">{escape(sentence)}</div>', sentence)


def conclusion(*sentences: str) -> Html:
    """What a notebook found, in computed sentences: a page repeats them below its title (`page_conclusion.py`).

    A notebook has one, with at most four sentences in a few lines: they answer the question of its title.
    """
    said = [sentence.strip() for sentence in sentences if sentence.strip()]
    body = "".join(f'<p style="margin:2px 0">{escape(sentence)}</p>' for sentence in said)
    return Html(f'<div class="{CONCLUSION}" id="{CONCLUSION}" style="border-left:4px solid {PALETTE["accepted"]};'
                f'padding:2px 10px;margin:6px 0;overflow-wrap:anywhere">{body}</div>', "\n".join(said))


@dataclass(frozen=True)
class Stack:
    """Displays below one another of which at least one is no HTML: each is shown in its own way.

    A figure's own HTML loads Plotly from a network, and a widget has none, so neither can be joined into one text.
    """

    parts: tuple[Any, ...]

    def _ipython_display_(self) -> None:
        from IPython.display import display

        for part in self.parts:
            display(part)

    def _repr_html_(self) -> str:
        """The HTML of a page that brings Plotly along."""
        return _below(*(_figure(part) if isinstance(part, go.Figure) else as_html(part) for part in self.parts))

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.parts))


def stack(*things) -> Html | Stack:
    """Several displays below one another: HTML, figures, sliders; any other value shows its repr."""
    parts = [part for thing in things for part in (thing.parts if isinstance(thing, Stack) else (thing,))]
    if any(isinstance(part, go.Figure) or hasattr(part, "comm") for part in parts):       # a widget has a comm
        return Stack(tuple(part if hasattr(part, "_repr_mimebundle_") else Html(as_html(part), repr(part))
                           for part in parts))
    return Html(_below(*map(as_html, parts)), "\n".join(map(repr, parts)))


def as_html(thing: Any) -> str:
    """The HTML of a value, or else its repr."""
    return thing._repr_html_() if hasattr(thing, "_repr_html_") else f"<pre>{escape(repr(thing))}</pre>"


def _figure(one: go.Figure) -> str:
    from plotly.io import to_html

    return to_html(one, include_plotlyjs=False, full_html=False, config={"responsive": True},
                   default_height=f"{one.layout.height or one.layout.template.layout.height or 450}px")


def _below(*parts: str) -> str:
    return "".join(f'<div style="margin:6px 0">{part}</div>' for part in parts)


def token(word: str, role: str, hint: str = "", offer: str = "") -> str:
    """One token as a small box; colour and underline each show its role.

    `offer` is what was offered in its place: it stands behind a bar, and of the two it alone is struck if rejected.
    """
    if role in ("prompt", "target"):
        look = "opacity:.8"
    else:
        struck = ";text-decoration:line-through" if role == "rejected" and not offer else ""
        look = (f"background:{tint(PALETTE[role])};color:{INK};border-bottom:3px {MARK[role]} {PALETTE[role]}{struck}")
    if PART in word + offer:
        hint = f"part of a character that several tokens spell {hint}".strip()
    shown, other = (escape(visible(text)).replace(" ", "&nbsp;") for text in (word, offer))
    if offer:
        shown += f"&nbsp;|&nbsp;{f'<s>{other}</s>' if role == 'rejected' else other}"
    return (f'<span title="{escape(hint, quote=True)}" style="display:inline-block;margin:1px;padding:1px 4px;'
            f'border-radius:3px;font-family:monospace;{look}">{shown}</span>')


def visible(word: str) -> str:
    """The word with visible line breaks and tabs; ∅ for an empty word, ◌ for a part of a character."""
    return re.sub(f"{PART}+", "◌", word.replace("\n", "↵").replace("\t", "⇥")) or "∅"


def in_cell(word: str) -> str:
    """As `visible`, for a word that stands by itself: ␣ for each space of one that has nothing else."""
    return visible(word) if word.strip(" ") else "␣" * len(word) or "∅"


def tint(colour: str, share: float = 0.13) -> str:
    """A light paper of this colour, opaque: it is the same on a dark page."""
    return "#" + "".join(f"{round(255 - share * (255 - int(colour[i:i + 2], 16))):02x}" for i in (1, 3, 5))


def legend(roles: tuple[str, ...]) -> str:
    """The legend of a strip: a box for each role."""
    return ('<div style="font-size:85%;margin-top:4px">' + " ".join(token(role, role) for role in roles)
            + "</div>")
