"""Html: a value that notebooks show as HTML and terminals as plain text."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from specdec_lib.figures.theme import PALETTE

MARK = {"accepted": "solid", "rejected": "dashed", "extra": "double", "draft": "dotted", "target": "none",
        "prompt": "none"}


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
    return Html(f'<div style="margin:4px 0">{escape(sentence)}</div>', sentence)


def stack(*things) -> Html:
    """Several displays below one another; values without HTML show their repr."""
    html = [thing._repr_html_() if hasattr(thing, "_repr_html_") else f"<pre>{escape(repr(thing))}</pre>"
            for thing in things]
    return Html("".join(f'<div style="margin:6px 0">{part}</div>' for part in html),
                "\n".join(repr(thing) for thing in things))


def token(word: str, role: str, hint: str = "") -> str:
    """One token as a small box; colour and underline each show its role."""
    if role in ("prompt", "target"):
        look = "color:#555"
    else:
        struck = ";text-decoration:line-through" if role == "rejected" else ""
        look = (f"background:{PALETTE[role]}22;color:#111;border-bottom:3px {MARK[role]} {PALETTE[role]}{struck}")
    shown = escape(visible(word)).replace(" ", "&nbsp;")
    return (f'<span title="{escape(hint, quote=True)}" style="display:inline-block;margin:1px;padding:1px 4px;'
            f'border-radius:3px;font-family:monospace;{look}">{shown}</span>')


def visible(word: str) -> str:
    """The word with visible line breaks and tabs; ∅ for an empty word."""
    return word.replace("\n", "↵").replace("\t", "⇥") or "∅"


def legend(roles: tuple[str, ...]) -> str:
    """The legend of a strip: a box for each role."""
    return ('<div style="font-size:85%;color:#555;margin-top:4px">' + " ".join(token(role, role) for role in roles)
            + "</div>")
