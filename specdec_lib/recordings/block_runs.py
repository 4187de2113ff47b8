"""Recorded runs of `specdec` over block lengths and settings of the top-beta rule: counts, errors, and examples.

A lossy rule cannot be replayed on a recorded text, since after its first exchange the text is another one; so every
setting is decoded, and what is kept of it is small: totals by kind of spelling, and the rounds of a few examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from specdec_lib import catalog
from specdec_lib.cards import Kit
from specdec_lib.loop import decode
from specdec_lib.seq2seq.dictionary import Spelling
from specdec_lib.seq2seq.errors import Errors, errors
from specdec_lib.seq2seq.search import beam_search
from specdec_lib.seq2seq.verifier import Verifier
from specdec_lib.types import Session

LONGEST = 90
BLOCKS, BETAS, TOLERANCES = (5, 10, 25), (1, 2, 3, 5), (0.5, 1.0, 3.0)


@dataclass(frozen=True)
class BlockSetting:
    """A block length and a rule; beta = 1 is lossless at temperature 0, whatever the tolerance."""

    k: int
    beta: int
    tolerance: float

    @property
    def spec(self) -> str:
        """The method as a command line names it."""
        rule = "" if self.beta == 1 else f"@top-beta(beta={self.beta}, tolerance={self.tolerance})"
        return f"specdec(k={self.k}){rule}"


def settings(blocks: Sequence[int] = BLOCKS, betas: Sequence[int] = BETAS,
             tolerances: Sequence[float] = TOLERANCES) -> list[BlockSetting]:
    """All combinations; one for beta = 1, whose tolerance has no effect."""
    return [BlockSetting(k, beta, tolerance) for k in blocks for beta in betas
            for tolerance in (tolerances[:1] if beta == 1 else tolerances)]


def record_blocks(kit: Kit, spelt: Sequence[Spelling], examples: int, asked: Sequence[BlockSetting], beam: int = 5
                  ) -> dict[str, Any]:
    """Decodes every spelling under every setting, plainly, and by a beam; plain data for a JSON file.

    The rounds of the first `examples` spellings of each kind are kept whole.
    """
    kinds = {kind: [one for one in spelt if one.kind == kind] for kind in dict.fromkeys(one.kind for one in spelt)}
    shown = {one.text: {"kind": kind, "runs": []} for kind, some in kinds.items() for one in some[:examples]}
    runs = []
    for setting in (None, *asked):
        totals = {}
        for kind, some in kinds.items():
            found = [(one, run_of(kit, "ar" if setting is None else setting.spec, one)) for one in some]
            totals[kind] = counts(found)
            for one, session in found[:examples]:
                shown[one.text]["runs"].append(rounds_of(session))
        runs.append({"setting": None if setting is None else vars(setting), **totals})
    assert isinstance(kit.target, Verifier)
    bar = {kind: beam_counts(kit.target, some, beam) for kind, some in kinds.items()}
    return {"runs": runs, "examples": shown, "beam": {"width": beam, **bar}}


def run_of(kit: Kit, spec: str, one: Spelling) -> Session:
    """The session after the last round of one decode."""
    assert isinstance(kit.target, Verifier)
    target = kit.target.bound(one.source)
    fresh = replace(kit, target=target, indexes={}, memory={})
    *_, last = decode(target.start, target, *catalog.build(spec, fresh), max_new_tokens=LONGEST, end=kit.facts.end,
                      source=one.source)
    return last


def counts(found: Sequence[tuple[Spelling, Session]]) -> dict[str, int]:
    """Totals over these decodes: tokens, forwards, drafted, accepted, and errors."""
    rounds = [round for _, session in found for round in session.rounds]
    wrong = Errors()
    for one, session in found:
        wrong = wrong.plus(errors(session.output, one.targets))
    return {"tokens": sum(len(session.output) for _, session in found), "forwards": len(rounds),
            "drafted": sum(len(round.draft) for round in rounds),
            "accepted": sum(len(round.verdict.path) for round in rounds), **wrong._asdict()}


def rounds_of(session: Session) -> list[list[list[int]]]:
    """What each round drafted and what it emitted, as ids."""
    return [[list(round.draft.tokens), list(round.verdict.tokens)] for round in session.rounds]


def beam_counts(target: Verifier, some: Sequence[Spelling], width: int) -> dict[str, int]:
    """The same totals for beam search; a forward scores the whole beam."""
    wrong, tokens, forwards = Errors(), 0, 0
    for one in some:
        output, steps = beam_search(target.net, one.source, LONGEST, width)
        wrong, tokens, forwards = wrong.plus(errors(output, one.targets)), tokens + len(output), forwards + steps
    return {"tokens": tokens, "forwards": forwards, "drafted": 0, "accepted": 0, **wrong._asdict()}
