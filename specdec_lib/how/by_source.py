"""By source: one rule for drafts of one drafter, another for the rest.

Source: the shape of ReSpec's source-aware verification (arXiv 2511.01282). A round has one speaker (a switch chose
it), so the rule is chosen by the source of the draft's first node. Lossless if every rule it holds is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specdec_lib.scores import Scores
from specdec_lib.types import Card, Draft, How, Session, Verdict


@dataclass(frozen=True)
class BySource:
    """`rules[source]` judges the drafts of that source, `default` all others and the empty draft."""

    default: How
    rules: Mapping[str, How] = field(default_factory=dict)

    def __call__(self, session: Session, draft: Draft, scores: Scores, dice) -> Verdict:
        source = draft.source[0] if draft.source else ""
        return self.rules.get(source, self.default)(session, draft, scores, dice)


CARD = Card("by-source", idea="one rule per drafter", source="the shape of ReSpec, arXiv 2511.01282",
            make=lambda kit: BySource(kit.part("match")), notebook="03_one_loop")
