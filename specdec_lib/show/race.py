"""A race as HTML: the answers side by side, each token coloured by its source, with clocks and rates; and its table."""

from __future__ import annotations

from html import escape

from specdec_lib.bench.race import TIMED, Racer, RaceState, results
from specdec_lib.figures.theme import SERIES
from specdec_lib.show.html import Html, visible
from specdec_lib.show.spans import origin
from specdec_lib.show.toy_text import Names, naming
from specdec_lib.trees import offered
from specdec_lib.types import Round, Session

COPIED, DRAFTED = "copied", "model-drafted"
RECYCLED = "recycled"                              # a successor that the target had ranked high before
CORRECTED, OWN = "corrected by the target", "the target's own"
LOOKS = {COPIED: (SERIES[0][0], "solid"), RECYCLED: (SERIES[2][0], "dotted"), DRAFTED: (SERIES[4][0], "dashed"),
         CORRECTED: (SERIES[3][0], "double"), OWN: ("", "none")}               # colour and kind of line
TINT = "30"                                        # of a colour's 256 steps of opacity, in hexadecimal
NO_KERNEL = ("This page has no kernel, so a race cannot be started here: open the notebook in JupyterLab for a text"
             " field, two lists of methods, Start and Stop.")


def token_kinds(session: Session) -> tuple[str, ...]:
    """Of every token of the output, which of LOOKS it is."""
    return tuple(kind for one in session.rounds for kind in round_kinds(one))


def round_kinds(one: Round) -> tuple[str, ...]:
    """The accepted tokens by their drafter; then the verdict's own, a correction where a drafted token was rejected."""
    path, draft = one.verdict.path, one.draft
    sources = draft.source or (one.budget.source,) * len(draft)
    own = CORRECTED if offered(one) > len(path) else OWN
    accepted = tuple(drafted_kind(sources[node]) for node in path)
    return accepted + (own,) * (len(one.verdict.tokens) - len(path))


def drafted_kind(source: str) -> str:
    return RECYCLED if source == "token-recycling" else origin(source)


def race(state: RaceState, names: Names | None = None, seconds: float | None = None, prompt: str = "") -> Html:
    """The answers beside one another, as they stood when every clock showed `seconds`; by default at the end."""
    now = state if seconds is None else state.at(seconds)
    lanes = "".join(_column(one, names) for one in now.racers)
    asked = f'<div style="opacity:.8">{escape(prompt)}</div>' if prompt else ""
    html = (f'{asked}<div style="display:flex;flex-wrap:wrap;gap:18px">{lanes}</div>{_legend()}'
            f'<div style="font-size:85%;opacity:.8">{escape(TIMED[state.order])}</div>')
    plain = "\n".join(f"{heading(one)}\n{_plain(one, names)}" for one in now.racers)
    return Html(html, f"{plain}\n{TIMED[state.order]}")


def heading(one: Racer) -> str:
    """`sam: 0.42 s, 12 tokens, 28.6 tokens/s, 1.71 per forward`."""
    rate, yielded = one.tokens_per_second, one.tokens_per_forward
    said = f"{one.name}: {one.seconds:.2f} s, {len(one.output)} tokens"
    if rate is not None:
        said += f", {rate:.1f} tokens/s"
    return said if yielded is None else f"{said}, {yielded:.2f} per forward"


def race_rows(state: RaceState) -> list[dict[str, str]]:
    """The final table as texts, one row a method; a race that was stopped gives what there is."""
    first = state.racers[0].name
    return [{"method": one.method, "seconds": f"{one.seconds:.2f}", "prefill (s)": f"{one.prefill:.2f}",
             "tokens": str(one.tokens), "tokens/s": _number(one.tokens_per_second, 1),
             "tokens per forward": _number(one.tokens_per_forward, 2), f"times {first}": _number(one.times_first, 2),
             f"same ids as {first}": {True: "yes", False: "no", None: "so far"}[one.same_ids]}
            for one in results(state)]


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _column(one: Racer, names: Names | None) -> str:
    """One method: its heading, then its tokens."""
    ended = " ✓" if one.done else ""
    return (f'<div style="flex:1 1 320px"><div style="font-variant-numeric:tabular-nums"><b>{escape(one.name)}</b>'
            f"{escape(heading(one).removeprefix(one.name))}{ended}</div>"
            f'<div style="line-height:2.1">{"".join(_box(*pair) for pair in _words(one, names))}</div></div>')


def _words(one: Racer, names: Names | None) -> list[tuple[str, str]]:
    """Every token of the answer with its kind."""
    if one.session is None:
        return []
    name = naming(names, one.session.tokens)
    return [(name(token), kind) for token, kind in zip(one.output, token_kinds(one.session), strict=True)]


def _box(word: str, kind: str) -> str:
    colour, line = LOOKS[kind]
    look = f"background:{colour}{TINT};border-bottom:3px {line} {colour};" if colour else ""
    said = escape(visible(word)).replace(" ", "&nbsp;")
    return (f'<span title="{escape(kind, quote=True)}" style="{look}font-family:monospace;padding:1px">{said}</span>'
            "<wbr>")


def _legend() -> str:
    boxes = " &nbsp; ".join(_box(kind, kind) for kind in LOOKS)
    return f'<div style="font-size:85%;margin-top:4px">{boxes}</div>'


def _plain(one: Racer, names: Names | None) -> str:
    """The tokens with a letter for every kind but the target's own: c[copied]."""
    marks = {COPIED: "c", RECYCLED: "r", DRAFTED: "m", CORRECTED: "x"}
    return "".join(f"{marks[kind]}[{visible(word)}]" if kind in marks else visible(word)
                   for word, kind in _words(one, names))
