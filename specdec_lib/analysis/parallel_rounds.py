"""The rounds of a decode that drafts while the target verifies, as rows of a table."""

from __future__ import annotations

from collections.abc import Callable

from specdec_lib.types import ROOT, Draft, Session

Name = Callable[[int], str]


def tree_text(draft: Draft, name: Name = str, node: int = ROOT) -> str:
    """The tokens below a node: a chain as it stands, alternatives in braces, as in `7 {8 | 0}`."""
    below = draft.children.get(node, ())
    each = [" ".join(filter(None, (name(draft.tokens[child]), tree_text(draft, name, child)))) for child in below]
    return each[0] if len(each) == 1 else "{" + " | ".join(each) + "}" if each else ""


def round_rows(session: Session, name: Name = str) -> list[dict]:
    """A row for each forward: what it scored and emitted, what was drafted beside it, and what its verdict discarded.

    What is discarded may be more than what was drafted beside the forward: pending tokens are discarded, too.
    """
    return [{"submitted": tree_text(one.draft, name), "emitted": " ".join(map(name, one.verdict.tokens)),
             "drafted ahead": one.ahead.tokens, "drafter's branches": one.ahead.branches,
             "discarded, pending ones too": one.ahead.discarded} for one in session.rounds if one.ahead is not None]
