"""Figures along a decode: accepted nodes of each round, the source of each token, and the target's entropy."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_lib import figures
from specdec_lib.show.html import visible
from specdec_lib.show.toy_text import Names, naming
from specdec_lib.types import Session


def rounds(session: Session, title: str | None = None):
    """Accepted and rejected nodes of every round."""
    drafted = [len(one.draft) for one in session.rounds]
    return figures.rounds(drafted, [len(one.verdict.path) for one in session.rounds], title)


def sources(session: Session, names: Names | None = None, title: str | None = None, order: Sequence[str] = ()):
    """The source of each token of the output, first those in `order`; the verdict's own tokens are the target's."""
    by_token = []
    for one in session.rounds:
        path = [one.draft.source[node] if one.draft.source else "draft" for node in one.verdict.path]
        by_token += path + [""] * (len(one.verdict.tokens) - len(path))
    return figures.sources(by_token, _words(session, names), title, order)


def entropy(session: Session, threshold: float | None = None, names: Names | None = None, title: str | None = None):
    """Entropy of the target at every output token, in nats, with a cross at the last token of each round."""
    values = [value for one in session.rounds for value in one.row_stats.entropy]
    ends, place = [], -1
    for one in session.rounds:
        place += len(one.verdict.tokens)
        ends.append(place)
    average = sum(values[end] for end in ends) / max(1, len(ends))
    said = title or f"{len(ends)} rounds end at the crosses, at {average:.2f} nats on average"
    return figures.signal(values, "entropy of the target", "nats", threshold, ends, _words(session, names), said)


def _words(session: Session, names: Names | None) -> list[str]:
    name = naming(names, session.tokens)
    return [visible(name(token)) for token in session.output]
