"""SpecBranch: PEARL that hedges an uncertain position with branches, and submits nothing beyond the next one.

Source: SpecBranch (arXiv 2506.01979). While the target verifies the pending tokens, the worker drafts several first
tokens where it is uncertain, each continued; the target's own token selects one of them. What stays pending is cut at
the next uncertain position (`schedules.cut`), and the next draft branches there. `most=1` switches the branches off,
`epsilon=0` the cut; with both it is PEARL. `predict='h-rad'` adds the paper's trained predictor, which keeps nothing of
a draft, or all of it, where it is sure; so that all can be kept, a draft then goes on beyond an uncertain position;
`predict='length'` puts AdaEAGLE's network in its place, whose predicted number of accepted tokens gives the class. Both
were trained on the shipped draft model. H-RAD's classes are those of the three tokens that stay of a draft of four, so
it is right for `depth=4` alone; the predicted number is compared with what the budget allowed, at any depth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from specdec_lib.cards import Card, Kit
from specdec_lib.schedules.cut import ClassOfLength, CutAtBranchPoint, Predict, always_some
from specdec_lib.schedules.overlap import Overlap
from specdec_lib.schedules.workers import Workers
from specdec_lib.types import Method, Refusal

if TYPE_CHECKING:
    from specdec_lib.heads.base import Target

NEEDED = {"length": "length-predictor", "h-rad": "h-rad"}      # value of `predict` -> the checkpoint that it reads


def make(kit: Kit, depth: int | None = None, most: int = 3, epsilon: float = 0.3, predict: str = "",
         workers: str | None = None) -> Method:
    """`depth` tokens a branch, None takes the measured speed ratio; at most `most` branches; `predict`: "", length or
    h-rad.
    """
    when = kit.part("branch-point", depth=depth, width=most, epsilon=0.0 if predict else epsilon)
    cut = CutAtBranchPoint(epsilon, predictor(kit, predict))
    return Method(when, kit.part("branches", most=most), kit.part("rejection"),
                  Overlap(Workers(workers or kit.workers), keep=cut))


def predictor(kit: Kit, name: str) -> Predict:
    """What predicts the class of a draft. Refusal for an unknown name, and where its checkpoint is not at hand."""
    if not name:
        return always_some
    if name not in NEEDED:
        raise Refusal(f"predict is '' (the confidence alone), 'length' or 'h-rad', got {name!r}")
    needed, target = NEEDED[name], cast("Target", kit.target)
    if needed not in kit.checkpoints:
        raise Refusal(f"specbranch(predict='{name}') needs {needed}: specdec train {needed} makes it")
    checkpoint = kit.checkpoints[needed]
    if name == "h-rad":
        from specdec_lib.heads.hrad import class_predictor

        expected = class_predictor(checkpoint, target)
        return lambda session, longest: expected(session)      # its network knows one length, that of its training
    from specdec_lib.heads.length import length_predictor

    return ClassOfLength(length_predictor(checkpoint, "draft-model", target))


CARD = Card("specbranch", idea="branches where the drafter is uncertain, drafted while the target verifies",
            source="SpecBranch, arXiv 2506.01979", make=make, parts=("branch-point", "branches", "rejection"),
            named=lambda values: tuple(need for name, need in NEEDED.items() if values.get("predict") == name),
            notebook="52_specbranch", parallel=True, ahead=True)
