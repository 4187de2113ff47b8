"""The cost curve of batches of this target on this machine: `specdec cost` with --batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specdec_lib.batches.supported import in_batch
from specdec_lib.bench import provenance
from specdec_lib.bench.environment import Environment
from specdec_lib.bench.plan import MOST, Plan
from specdec_lib.cost.batches import WIDTHS, BatchCurve, measure_batch_curve
from specdec_lib.types import Refusal


def check_batches(batches: Sequence[int], contexts: Sequence[int]) -> None:
    """Refuses batches that no curve is measured with, before a model is loaded."""
    if min(batches) != 1 or max(batches) > MOST:
        raise Refusal(f"--batch takes 1 and further batches of at most {MOST}, such as 1,2,4,8")
    if len(contexts) > 1:
        raise Refusal("a cost curve of batches has one context: give --contexts one length")


def measured_batch_curve(plan: Plan, opened: Environment, batches: Sequence[int], context: int, repeats: int,
                         progress: Callable[[int, int, str], None]) -> BatchCurve:
    """The curve of the loaded target, whose sequences have `context` tokens each. Refusal where it cannot share."""
    shared = in_batch(opened.target)
    longest = opened.target.context
    if longest is not None and context + max(WIDTHS) >= longest:
        raise Refusal(f"the target's context holds {longest} tokens, too few to measure a curve at {context}")
    models = [shared.member(opened.target) for _ in range(max(batches))]
    return measure_batch_curve(models, shared.score, batches, context=context, repeats=repeats,
                               vocab=min(1000, opened.facts.vocab or 1000),
                               progress=lambda done, total: progress(done, total, "cost curve of batches"),
                               target=plan.as_dict()["target"], device=plan.device, dtype=plan.dtype,
                               threads=plan.threads, provenance=provenance.provenance())
