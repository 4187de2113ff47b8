"""An answer as spans, one for each round: copied and model-drafted tokens that were accepted, rejected ones after them.

Every source has a colour and a kind of line, and rejected tokens are struck through, so that no meaning rests on colour
alone. Letters take the colour of the page, on a light tint, so that they are legible on a light and a dark theme.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import ceil

from specdec_lib.analysis.respec_replay import ReplayedSetting
from specdec_lib.figures.theme import SERIES
from specdec_lib.how.relaxed import COPIERS
from specdec_lib.show.html import Html, visible
from specdec_lib.show.toy_text import Names, naming
from specdec_lib.types import ROOT, Round, Session

TARGET = "the target's own"
LOOKS = {"copied": (SERIES[0][0], "solid"), "model-drafted": (SERIES[4][0], "dashed"), TARGET: ("", "none")}
SHOWN = 3                                          # rejected tokens of a round that are written out
WIDE = 640                                         # of a gauge, in units of its own drawing
TINT = "30"                                        # of a colour's 256 steps of opacity, in hexadecimal


def origin(source: str) -> str:
    """`copied` for a drafter that copies, else `model-drafted`."""
    return "copied" if source in COPIERS else "model-drafted"


def spans(session: Session, names: Names | None = None, rounds: int | None = None, caption: str = "") -> Html:
    """The answer up to round `rounds` (all by default), each round one span: what was accepted, what was rejected.

    Of the rejected nodes the first chain below the accepted path is written out, at most three tokens of it, and the
    others are counted; the token that the target added itself follows.
    """
    name = naming(names, session.tokens)
    kept = session.rounds[:rounds]
    html = "".join(_span(one, name) for one in kept)
    plain = " ".join(_plain(one, name) for one in kept)
    note = f'<div style="font-size:85%">{escape(caption)}</div>' if caption else ""
    # Of the whole answer: a legend that grew with `rounds` would move what stands below it under a slider.
    return Html(f'<div style="line-height:2.1">{html}</div>{_legend(session.rounds)}{note}', f"{plain}\n{caption}")


def gauge(values: Mapping[str, float], unit: str, low: float, high: float, now: str = "") -> Html:
    """A line from `low` to `high` with a mark for each named value; the mark called `now` is filled and above it."""
    others = sorted((name for name in values if name != now), key=values.__getitem__)
    marks = [_mark(name, values[name], _along(values[name], low, high), place, len(others))
             for place, name in enumerate(others)]
    if now in values:
        marks.append(_mark(now, values[now], _along(values[now], low, high), -1, 0))
    said = ", ".join(f"{name} {value:.2f}" for name, value in values.items())
    line = f'<line x1="10" x2="{WIDE - 10}" y1="30" y2="30" stroke="currentColor" stroke-opacity=".5"/>'
    return Html(f'<div style="font-size:85%">{escape(unit)}</div><svg viewBox="0 0 {WIDE} 98" role="img" '
                f'aria-label="{escape(f"{unit}: {said}", quote=True)}" style="width:100%;max-width:{WIDE}px">'
                f'{line}{"".join(marks)}</svg>', f"{unit}: {said}")


def _along(value: float, low: float, high: float) -> float:
    """The place of a value on the line, in its units of length."""
    return 10 + (WIDE - 20) * (min(max(value, low), high) - low) / ((high - low) or 1.0)


def _mark(name: str, value: float, x: float, place: int, others: int) -> str:
    """A mark and its label: above the line for place -1, else below, to the left, the right or centred and lower."""
    up, first, last = place < 0, place == 0, place == others - 1
    y = 13 if up else 54 + 18 * (0 if first or last else place)
    side = "middle" if up or not (first or last) else "end" if first and others > 1 else "start"
    return (f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{16 if up else 34}" y2="{24 if up else y - 15}" '
            f'stroke="currentColor"/><circle cx="{x:.1f}" cy="30" r="{6 if up else 4}" stroke="currentColor" '
            f'fill="{SERIES[0][0] if up else "none"}"/><text x="{x:.1f}" y="{y}" text-anchor="{side}" font-size="17" '
            f'fill="currentColor" font-weight="{"bold" if up else "normal"}">{escape(name)} {value:.2f}</text>')


def settings(found: Sequence[ReplayedSetting], names: Names | None = None) -> Html:
    """The answer under the first of these settings, and beside it all of them on a line of tokens and one of speed.

    The lines reach as far as the other settings need, so that moving the first one never rescales them.
    """
    strip = spans(found[0].session, names)
    fixed = found[1:] or found
    lines = []
    for unit, values in (("tokens per forward, counted", {one.name: one.tokens for one in found}),
                         ("times plain decoding, predicted", {one.name: one.speed for one in found})):
        high = ceil(1 + 1.2 * max(values[one.name] for one in fixed))
        lines.append(gauge(values, unit, 0.0, float(high), found[0].name))
    beside = "".join(line.html for line in lines)
    return Html('<div style="display:flex;flex-wrap:wrap;gap:18px">'
                f'<div style="flex:3 1 420px">{strip.html}</div><div style="flex:2 1 420px">{beside}</div></div>',
                "\n".join(map(repr, (strip, *lines))))


def _span(one: Round, name: Names) -> str:
    """One round: a tinted box for what a drafter wrote, then struck-through tokens, then the target's own."""
    draft, path = one.draft, one.verdict.path
    kept = _kind(one)
    own = [name(token) for token in one.verdict.tokens[len(path):]]
    out = _box([name(draft.tokens[node]) for node in path], kept, f"{len(path)} of {len(draft)} accepted, {kept}")
    chain = _rejected(one)
    more = _unwritten(one, chain)
    if chain:
        out += (f'<span title="{len(draft) - len(path)} rejected, {kept}" style="font-size:80%;opacity:.75">'
                f'<s>{_text([name(draft.tokens[node]) for node in chain])}</s>{f"+{more}" if more else ""}</span>')
    return f'<span style="margin-right:3px">{out}{_box(own, TARGET, "added by the target")}</span> '


def _kind(one: Round) -> str:
    """Which of LOOKS the drafted tokens of a round are."""
    return origin(one.draft.source[0]) if one.draft.source else TARGET


def _unwritten(one: Round, chain: Sequence[int]) -> int:
    """How many rejected nodes of a round are counted, not written out."""
    return len(one.draft) - len(one.verdict.path) - len(chain)


def _rejected(one: Round) -> Sequence[int]:
    """The first nodes of the chain that leaves the accepted path."""
    path, out = one.verdict.path, []
    below = [node for node in one.draft.children.get(path[-1] if path else ROOT, ()) if node not in path]
    while below and len(out) < SHOWN:
        out.append(below[0])
        below = list(one.draft.children.get(below[0], ()))
    return out


def _box(words: Sequence[str], kind: str, hint: str) -> str:
    colour, line = LOOKS[kind]
    look = f"background:{colour}{TINT};border-bottom:3px {line} {colour};" if colour else ""
    return (f'<span title="{escape(hint, quote=True)}" style="{look}font-family:monospace;padding:1px 2px">'
            f"{_text(words)}</span>") if words else ""


def _text(words: Sequence[str]) -> str:
    return "".join(escape(visible(word)).replace(" ", "&nbsp;") + "<wbr>" for word in words)


def _legend(rounds: Sequence[Round]) -> str:
    """What occurs in these rounds: each source, and how rejected tokens are written."""
    kinds = {_kind(one) for one in rounds if one.verdict.path}
    kinds |= {TARGET for one in rounds if len(one.verdict.tokens) > len(one.verdict.path)}
    chains = [(one, _rejected(one)) for one in rounds]
    said = [_box([kind], kind, kind) for kind in LOOKS if kind in kinds]
    said += ['<s style="opacity:.75">rejected</s>'] * any(chain for _, chain in chains)
    said += ["+n: and n more rejected"] * any(chain and _unwritten(one, chain) for one, chain in chains)
    return f'<div style="font-size:85%;margin-top:4px">{" &nbsp; ".join(said)}</div>'


def _plain(one: Round, name: Names) -> str:
    path = one.verdict.path
    kept = "".join(visible(name(one.draft.tokens[node])) for node in path)
    gone = "".join(visible(name(one.draft.tokens[node])) for node in _rejected(one))
    mark = "" if not one.draft.source else "c" if origin(one.draft.source[0]) == "copied" else "m"
    own = "".join(visible(name(token)) for token in one.verdict.tokens[len(path):])
    return f"{mark}[{kept}]" * bool(kept) + f"~{gone}~" * bool(gone) + own
