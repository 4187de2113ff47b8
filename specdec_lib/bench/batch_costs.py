"""What a forward of a batch costs on this machine: of several batches for `specdec cost`, of one for a bench.

A drafter takes its lengths and tree sizes from the cost of a row. In a batch that is the cost of a row more for every
sequence, so a bench in batches measures its own curve, through the forward that the sequences share.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from specdec_lib.batches.loop import Score
from specdec_lib.batches.supported import in_batch
from specdec_lib.bench import provenance
from specdec_lib.bench.environment import Environment
from specdec_lib.bench.plan import MOST, Plan
from specdec_lib.cost.batches import WIDTHS, BatchCurve, load_batch_curve, measure_batch_curve
from specdec_lib.cost.curves import WIDTHS as SINGLE_WIDTHS
from specdec_lib.cost.curves import CostCurve, load_curve
from specdec_lib.scores import Scores
from specdec_lib.types import LM, Draft, Refusal

ROWS = 512                                         # of a forward: wider drafts of many sequences are extrapolated


class AllAtOnce:
    """Sequences with one text and one draft, scored in one forward (`curves.Timed`)."""

    def __init__(self, models: Sequence[LM], score: Score):
        self.models, self.score = models, score

    def __call__(self, tokens: tuple[int, ...], draft: Draft) -> Scores:
        """The scores of the first one; those of all are on the host."""
        found = self.score([(model, tokens, draft) for model in self.models])
        assert all(one.best for one in found)
        return found[0]

    def prefill(self, tokens: tuple[int, ...]) -> None:
        """Every sequence reads the tokens."""
        for model in self.models:
            model.prefill(tokens)


def batch_of(opened: Environment, batch: int) -> AllAtOnce:
    """So many sequences of the loaded target. Refusal where they cannot share a forward."""
    shared = in_batch(opened.target)
    return AllAtOnce([shared.member(opened.target) for _ in range(batch)], shared.score)


def widths_in_batch(batch: int) -> tuple[int, ...]:
    """The widths at which a curve of this batch is measured, in tokens of each sequence."""
    return tuple(width for width in SINGLE_WIDTHS if batch == 1 or width <= max(max(WIDTHS), ROWS // batch))


def saved_curve(path: str | Path, batch: int) -> CostCurve:
    """The curve of this batch in a file of `specdec cost`, with --batch or without; Refusal for another batch.

    One of a single sequence is taken in every batch: drafts are then as long as they are for one prompt at a time.
    """
    if "batches" in keys_of(path):
        return load_batch_curve(path).of(batch)
    curve = load_curve(path)
    if curve.batch not in (1, batch):
        raise Refusal(f"the cost curve {path} is of {curve.batch} sequences at once, and this run decodes {batch}:"
                      " leave --cost out, or give a curve of batches, from specdec cost --batch")
    return curve


def keys_of(path: str | Path) -> Mapping[str, Any]:
    """The JSON object in a file; empty where there is none."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def check_batches(batches: Sequence[int], contexts: Sequence[int]) -> None:
    """Refuses batches that no curve is measured with, before a model is loaded."""
    if min(batches) != 1 or max(batches) > MOST:
        raise Refusal(f"--batch takes 1 and further batches of at most {MOST}, such as 1,2,4,8")
    if len(contexts) > 1:
        raise Refusal("a cost curve of batches has one context: give --contexts one length")


def measured_batch_curve(plan: Plan, opened: Environment, batches: Sequence[int], context: int, repeats: int,
                         progress: Callable[[int, int, str], None]) -> BatchCurve:
    """The curve of the loaded target, whose sequences have `context` tokens each. Refusal where it cannot share."""
    longest = opened.target.context
    if longest is not None and context + max(WIDTHS) >= longest:
        raise Refusal(f"the target's context holds {longest} tokens, too few to measure a curve at {context}")
    together = batch_of(opened, max(batches))
    return measure_batch_curve(together.models, together.score, batches, context=context, repeats=repeats,
                               vocab=min(1000, opened.facts.vocab or 1000),
                               progress=lambda done, total: progress(done, total, "cost curve of batches"),
                               target=plan.as_dict()["target"], device=plan.device, dtype=plan.dtype,
                               threads=plan.threads, provenance=provenance.provenance())
