"""`specdec cost --contention --out FILE`: target and draft model on their cores, alone and side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from specdec_lib.bench.options import RunOptions, prepare
from specdec_lib.bench.provenance import provenance
from specdec_lib.cost import contention
from specdec_lib.cost.contention import ForwardStep, measure_contention
from specdec_lib.files import check_file_place
from specdec_lib.schedules.workers import PROCESS, kind_for
from specdec_lib.types import Refusal


def check_cost(out: Path, contexts: Sequence[int], batch: str, draft: str | None, contention: bool) -> None:
    """Refuses, before anything is measured, options of `specdec cost` that do not go together, and its --out."""
    check_file_place(out)
    if draft is not None and not contention:
        raise Refusal("--draft computes beside the target: give --contention with it, or leave it out")
    if contention and batch:
        raise Refusal("--contention and --batch are two measurements: give one of them")
    if contention and len(contexts) > 1:
        raise Refusal("contention is measured at one context: give --contexts one length")


def measured_contention(out: Path, target: str, device: str, dtype: str, threads: int | None, draft: str | None,
                        context: int, pairs: int, say: Callable[[str], None],
                        progress: Callable[[int, int, str], None]) -> str:
    """Measures, writes the file `out` and returns the sentence on it.

    Refusal where no drafting process can run beside the target, and where there is no draft model.
    """
    here = prepare(RunOptions(target=target, device=device, dtype=dtype, threads=threads, draft=draft,
                              methods="ar,pearl"))
    if kind_for("auto", here.plan.device) != PROCESS:
        raise Refusal("contention is measured between cores of one processor, on Linux and with more than one core")
    opened = here.environment(say)
    if opened.draft is None:
        raise Refusal(f"{target} has no draft model to compute beside it: name one with --draft")
    longest = opened.target.context
    if longest is not None and context >= longest:
        raise Refusal(f"the target's context holds {longest} tokens: give --contexts a smaller length than {context}")
    vocab = min(1000, opened.facts.vocab or 1000)
    asked = here.plan.as_dict()
    about = {name: asked[name] for name in ("target", "device", "dtype")} | {"context": context,
                                                                             "provenance": provenance()}
    run = measure_contention(ForwardStep(opened.target.fresh(), context, vocab),
                             ForwardStep(opened.draft.fresh(), context, vocab), pairs, contention.WINDOW,
                             progress=lambda done, total: progress(done, total, "pairs"), about=about)
    run.save(out)
    return f"{run.told()}\nthe contention is in {out}"
