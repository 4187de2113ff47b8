"""By source: one acceptance rule for each drafter, a default rule for the rest.

Source: ReSpec's source-aware verification (arXiv 2511.01282) has this form. One drafter drafts each round, so the
source of the draft's first node selects the rule. Lossless if every rule it holds is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specdec_lib.cards import Card
from specdec_lib.scores import Scores
from specdec_lib.types import Draft, How, RandomNumbers, Session, Verdict


@dataclass(frozen=True)
class BySource:
    """Applies `rules[source]` to drafts of that source, `default` to all others and to the empty draft."""

    default: How
    rules: Mapping[str, How] = field(default_factory=dict)

    def __call__(self, session: Session, draft: Draft, scores: Scores, dice: RandomNumbers) -> Verdict:
        source = draft.source[0] if draft.source else ""
        return self.rules.get(source, self.default)(session, draft, scores, dice)


CARD = Card("by-source", idea="one rule per drafter", source="the shape of ReSpec, arXiv 2511.01282",
            make=lambda kit: BySource(kit.part("match")), notebook="03_one_loop")
