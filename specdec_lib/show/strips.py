"""Sessions, rounds and drafts token by token: accepted, rejected, and added by the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from specdec_lib import figures
from specdec_lib.show.html import MARK, QUIET, Html, in_cell, legend, token, visible
from specdec_lib.show.toy_text import Names, naming
from specdec_lib.types import Draft, Round, Session, Verdict


def strip(session: Session, names: Names | None = None, prompt: int = 24, by_round: bool = False) -> Html:
    """The output of a session, each token by its role; `by_round` gives every round a line with its rejected nodes.

    `prompt` is how many of the last prompt tokens precede it.
    """
    name = naming(names, session.tokens)
    start = max(0, session.prompt - prompt)
    ahead = [(name(one), "prompt", "prompt") for one in session.tokens[start:session.prompt]]
    if start:
        ahead = [("…", "prompt", f"{start} more prompt tokens"), *ahead]
    turns = [_emitted(one, name) for one in session.rounds]
    if by_round:
        lines = [ahead] + [line + _rejected(one, name)
                           for line, one in zip(turns, session.rounds, strict=True)]
    else:
        lines = [ahead + [box for line in turns for box in line]]
    kept = sum(len(one.verdict.path) for one in session.rounds)
    said = f"{len(session.output)} tokens in {len(session.rounds)} rounds, {kept} of them drafted"
    return _drawn(lines, ("accepted", "rejected", "extra") if by_round else ("accepted", "extra"), said)


def tokens(words: Sequence[str], roles: Sequence[str], hints: Sequence[str] = (), caption: str = "",
           offers: Sequence[str] = ()) -> Html:
    """Any words as a strip, each with its role (a key of `html.MARK`) and a hint.

    `offers` are words that were offered in their place, "" for none: they stand behind a bar and have the role.
    """
    hints, offers = hints or [""] * len(words), offers or [""] * len(words)
    boxes = list(zip(words, roles, hints, offers, strict=True))
    shown = tuple(role for role in MARK if role in roles and role != "prompt")
    return _drawn([boxes], shown, caption)


def round(one: Round, names: Names | None = None) -> Html:
    """One round: accepted path, the verdict's own token, then the rejected nodes."""
    name = naming(names, one.draft.tokens)
    said = f"{len(one.verdict.path)} of {len(one.draft)} drafted tokens accepted, {len(one.verdict.tokens)} emitted"
    return _drawn([_emitted(one, name) + _rejected(one, name)], ("accepted", "rejected", "extra"), said)


def draft(one: Draft, names: Names | None = None) -> Html:
    """A draft before its verdict, a line for each path from the context to a leaf."""
    name = naming(names, one.tokens)
    leaves = [node for node in range(len(one)) if node not in one.children]
    lines = [[(name(one.tokens[node]), "draft", _seen(one, node)) for node in one.path(leaf)] for leaf in leaves]
    said = f"a draft of {len(one)} nodes, depth {one.depth}" if len(one) else "the empty draft"
    return _drawn(lines or [[]], ("draft",), said)


def tree(one: Draft, verdict: Verdict | None = None, names: Names | None = None, title: str | None = None,
         kept: Sequence[int] = ()):
    """The draft as a tree figure, with its verdict if there is one; the nodes of a chain that was `kept` have rings."""
    name = naming(names, one.tokens)
    known = [in_cell(name(each)) for each in one.tokens]
    if verdict is None:
        return figures.tree(known, one.parents, title=title, kept=kept)
    extra = in_cell(name(verdict.tokens[-1])) if len(verdict.tokens) > len(verdict.path) else None
    return figures.tree(known, one.parents, verdict.path, extra, title, kept)


def _emitted(one: Round, name: Names) -> list[tuple[str, str, str]]:
    kept = len(one.verdict.path)
    return [(name(each), "accepted" if place < kept else "extra", _why(one, place))
            for place, each in enumerate(one.verdict.tokens)]


def _why(one: Round, place: int) -> str:
    prob = f"log p {one.logprobs[place]:.2f}" if place < len(one.logprobs) else ""
    if place >= len(one.verdict.path):
        return f"added by the verdict, {prob}"
    return f"accepted {_seen(one.draft, one.verdict.path[place])} {prob}".replace("  ", " ")


def _rejected(one: Round, name: Names) -> list[tuple[str, str, str]]:
    kept = set(one.verdict.path)
    return [(name(each), "rejected", f"rejected {_seen(one.draft, node)}")
            for node, each in enumerate(one.draft.tokens) if node not in kept]


def _seen(one: Draft, node: int) -> str:
    source = f"from {one.source[node]}" if one.source else ""
    return f"{source} q {one.stats[node].prob:.2f}".strip() if one.stats else source


def _drawn(lines, roles: tuple[str, ...], said: str) -> Html:
    """Lines of (word, role, hint), or with an offer at the end, a legend of the roles that occur, and plain text."""
    html = "".join('<div style="line-height:2">' + "".join(token(*box) for box in line) + "</div>" for line in lines)
    plain = "\n".join(" ".join(_marked(*box) for box in line) for line in lines)
    note = f'<div style="{QUIET}">{escape(said)}</div>'
    held = {box[1] for line in lines for box in line}
    return Html(html + legend(tuple(role for role in roles if role in held)) + note, f"{plain}\n{said}")


def _marked(word: str, role: str, hint: str = "", offer: str = "") -> str:
    ends = {"accepted": ("[", "]"), "rejected": ("~", "~"), "extra": ("+", "+"), "draft": ("(", ")"),
            "exchanged": ("{", "}")}
    before, after = ends.get(role, ("", ""))
    return f"{visible(word)} | {_marked(offer, role)}" if offer else f"{before}{visible(word)}{after}"
