"""Replays a recorded answer with an assembled method, without a model: what it would draft, round by round.

Parts that need only the text run live. A drafter that needs a trained checkpoint is replayed as it was recorded; if it
was not, another recorded one stands in for it (`model_drafter`). Of the trees of `eagle2` those nodes are submitted
that are worth their rows, as live. A lossy rule is replaced by strict matching, since a
recording holds one text. Drafts and acceptance are exact for what was recorded; a speed from them is a prediction.
Trees are those that were grown without counts of the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from specdec_lib import catalog, measure
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.cost import curves
from specdec_lib.cost.row_costs import node_costs
from specdec_lib.loop import decode
from specdec_lib.models.replay import Recording, Replay
from specdec_lib.types import Budget, Draft, Lattice, Method, RandomNumbers, Refusal, Round, Session
from specdec_lib.what.eagle2 import GAIN, GREEDY
from specdec_lib.what.recorded import Recorded, limit_budget

STAND_INS = ("eagle2", "eagle", "draft-model")
AS_RECORDED = {"sharpness": (None, GREEDY), "text_tokens": (True,), "counts": (None, 0)}     # the drafts hold no others


@dataclass(frozen=True)
class ReplayedDrafter(Recorded):
    """Notes in `limits` that it was asked for more than was recorded."""

    limits: set[str] = field(default_factory=set)

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        trees, chains = self.recording.trees, self.recording.drafts[self.drafter]
        most = limit_budget(budget, trees[self.drafter]) if self.drafter in trees else \
            replace(budget, depth=min(budget.depth, max(chains)))
        if (most.depth, most.width, most.size) != (budget.depth, budget.width, budget.size):
            self.limits.add(self.drafter)
        return super().__call__(session, budget, dice)

    def lattice(self, session: Session, depth: int, top: int = 16) -> Lattice:
        if depth > max(self.recording.lattices.get(self.drafter, {depth: ()})):
            self.limits.add(self.drafter)
        return super().lattice(session, depth, top)


def model_drafter(recording: Recording, name: str) -> str:
    """The recorded drafter that is used for `name`: itself if it was recorded."""
    found = [one for one in (name, *STAND_INS) if one in recording.drafts]
    if not found:
        raise Refusal(f"the recording has neither {name} nor a model drafter that could stand in for it: record one"
                      f" with `specdec record --drafters {name}`")
    return found[0]


def refuse_unrecorded(name: str, values: Mapping) -> None:
    """Refuses parameters of a drafter with which no recording was made."""
    for given, recorded in AS_RECORDED.items():
        if given in values and values[given] not in recorded:
            raise Refusal(f"{name} was recorded with its default {given}, so {given}={values[given]!r} cannot be"
                          " replayed: leave it out, or measure it with `specdec bench`")


def assembled(spec: str, recording: Recording, curve: curves.CostCurve | None, shelf: Mapping | None = None,
              limits: set[str] | None = None) -> Method:
    """The method of this spec over the recording, its node budget from the curve.

    `shelf` holds checkpoints that run live nevertheless, such as a trigram. For `limits` see `replay_method`.
    """
    noted = set() if limits is None else limits

    def part(name: str, kit: Kit, **values):
        card = catalog.part_card(name)
        if set(card.needs) - {"recording"}:
            refuse_unrecorded(name, values)
            found = ReplayedDrafter(recording, model_drafter(recording, name), limits=noted)
            noted.update({name} - {found.drafter})
            price, rows = node_costs(kit, GAIN, values.get("price"))
            return replace(found, price=price, rows=rows) if name == "eagle2" else found
        return catalog.make_part(name, kit, **values)
    stands_in = dict.fromkeys(catalog.needs(catalog.cards_of(spec)))
    kit = Kit(Replay(recording), TokenizerFacts(end=recording.end, vocab=recording.about.get("vocab", 0)), cost=curve,
              nodes=curves.node_budget(curve),
              recording=recording, checkpoints=stands_in | dict(shelf or {}), parts=part)
    method = catalog.build(spec, kit)
    return method if catalog.card_of(spec).lossless else method._replace(how=kit.part("match"))


def replay_method(spec: str, recording: Recording, curve: curves.CostCurve | None,
                  shelf: Mapping | None = None, limits: set[str] | None = None) -> Session:
    """The recorded answer as this method would have decoded it.

    Added to `limits` are drafters that were asked for more than was recorded, or that another stood in for.
    """
    method = assembled(spec, recording, curve, shelf, limits)
    *_, last = decode(recording.tokens[:recording.prompt], Replay(recording), *method, end=recording.end,
                      max_new_tokens=len(recording.output))
    return last


def writing(session: Session, place: int) -> tuple[Round, int]:
    """The round that wrote token `place` of the output, counted from 0, and the position at which it began."""
    start = 0
    for round in session.rounds:
        if place < start + len(round.verdict.tokens):
            return round, start
        start += len(round.verdict.tokens)
    raise ValueError(f"the output has {start} tokens, counted from 0: there is no token {place}")


def predicted_rates(sessions: Sequence[Session], curve: curves.CostCurve, level: float
                    ) -> dict[str, float | None]:
    """Tokens per forward, counted, and the speed that the curve predicts; a model's tree costs `level` s per level."""
    rows = [row for session in sessions for row in measure.rows(session)]
    spent = sum(curve(row.width) + level * row.depth * (row.source in STAND_INS) for row in rows)
    return {"tokens per forward": measure.tokens_per_target_forward(rows),
            "predicted speed": sum(row.emitted for row in rows) * curve(1) / spent}
