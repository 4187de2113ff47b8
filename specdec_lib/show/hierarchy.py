"""The nested rounds of a decode with a stack of drafters, as a figure."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_lib import figures
from specdec_lib.figures.hierarchy import VerifiedRow
from specdec_lib.show.html import visible
from specdec_lib.show.toy_text import Names, naming
from specdec_lib.types import Session
from specdec_lib.what.hierarchy import NAME

TARGET = "target"


def nested_rounds(session: Session, stack: Sequence[str], names: Names | None = None, first: int = 1, most: int = 4,
                  title: str | None = None):
    """Rounds `first` to `first + most - 1` of a decode, counted from 1; `stack` names the drafters, lowest first."""
    chosen = verified_rows(session, stack, names)[first - 1:first - 1 + most]
    return figures.nested_rounds([row for rows in chosen for row in rows], title)


def verified_rows(session: Session, stack: Sequence[str], names: Names | None = None) -> list[list[VerifiedRow]]:
    """For every round the verifications in it, those of inner levels first, the target's last."""
    name, at, out = naming(names, session.tokens), 1, []

    def row(label: str, start: int, drafted: tuple[int, ...], accepted: int, emitted: tuple[int, ...]) -> VerifiedRow:
        own = visible(name(emitted[accepted])) if len(emitted) > accepted else ""
        return VerifiedRow(label, start, tuple(visible(name(token)) for token in drafted), accepted, own)

    levels = (*stack, TARGET)
    for turn, one in enumerate(session.rounds, 1):
        inner = [row(f"{turn}  {levels[each.level]} ← {levels[each.level - 1]}", each.start - session.prompt + 1,
                     each.drafted, each.accepted, each.emitted) for each in one.draft.notes.get(NAME, ())]
        out.append([*inner, row(f"{turn}  {TARGET} ← {stack[-1]}", at, one.draft.tokens, len(one.verdict.path),
                                one.verdict.tokens)])
        at += len(one.verdict.tokens)
    return out
