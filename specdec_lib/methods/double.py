"""Double: PEARL with retrieval twice, inside the drafter and beside the pending tokens.

Source: Double (arXiv 2601.05524), whose rules are known here second hand; the design is our reading. The drafter
verifies retrieved tokens with each of its forwards, so that it drafts more tokens in the target's time than the ratio
of their speeds. The target's forward scores a second, retrieved continuation of the verified text as a branch of the
pending tree, so that after a rejection tokens may be at hand that were scored on exactly the corrected text. `inner`
and `guide` switch the two off; with both off it is PEARL.
"""

from __future__ import annotations

from dataclasses import replace

from specdec_lib.cards import Card, Kit, naming
from specdec_lib.schedules.overlap import Overlap
from specdec_lib.schedules.workers import Workers
from specdec_lib.types import Method


def make(kit: Kit, depth: int | None = None, inner: bool = True, guide: bool = True, retrieved: int = 8,
         retriever: str = "suffix-automaton", workers: str | None = None) -> Method:
    """`depth` forwards of the drafter a round, None takes the measured speed ratio; `retrieved` tokens at most."""
    own = retrieved if inner else 0
    when = kit.part("draft-forwards", forwards=depth, retrieved=own)
    apart = replace(kit, indexes={}, beside=True)  # the worker reads an index of its own: it may run in a thread
    what = apart.part("speculative-draft", retriever=retriever, retrieved=own)
    schedule = Overlap(Workers(workers or kit.workers), guide=kit.part(retriever) if guide else None, reach=retrieved)
    return Method(when, what, kit.part("rejection"), schedule)


CARD = Card("double", idea="retrieval inside the drafter and beside it, drafted while the target verifies",
            source="Double, arXiv 2601.05524", make=make,
            parts=("draft-forwards", "speculative-draft", "suffix-automaton", "rejection"),
            named=naming(retriever="what"), notebook="55_double", parallel=True, ahead=True)
