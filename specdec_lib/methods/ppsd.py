"""PPSD: the target's layers as a pipeline, in which an early exit draws the next token for the first stage.

Source: PPSD (arXiv 2509.19368). A token follows the one before it after the longest stage if its draft was right, and
after all layers if it was wrong: with N layers, an exit after E of them and N / E workers the speed-up is
N / (alpha E + (1 - alpha) N). Here there are two workers, so the longest stage has max(E, N - E) layers. `ahead` bounds
the tokens that the first stage may compute beyond the last emitted one; 0 is decoding in turn. `workers` says where
the first stage runs (`schedules.workers.KINDS`); the tokens do not depend on it.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from specdec_lib.cards import Card, Kit
from specdec_lib.schedules.pipeline import FirstStage, Pipeline
from specdec_lib.schedules.workers import Workers
from specdec_lib.types import Method, Refusal


def make(kit: Kit, layer: int | None = None, ahead: int | None = None, workers: str | None = None) -> Method:
    """`layer` defaults to the trained exit nearest to the middle, `ahead` to ceil(N / layer) - 1."""
    if ahead is not None and ahead < 0:
        raise Refusal(f"ahead is a number of tokens, 0 or more, got {ahead}")
    split = balanced_exit(kit) if layer is None else layer
    model: Any = kit.part("early-exit", layer=split).model
    beyond = ceil(model.layers / split) - 1 if ahead is None else ahead
    schedule = Pipeline(split, Workers(workers or kit.workers))
    return Method(kit.part("fixed", depth=beyond + 1), FirstStage(model.fresh()), kit.part("rejection"), schedule)


def balanced_exit(kit: Kit) -> int:
    """The trained exit whose longer stage is the shortest; of two the lower one."""
    target: Any = kit.target
    if not hasattr(target, "layers"):
        raise Refusal("a pipeline splits the target's layers: a recording and a table have none")
    trained = sorted(kit.checkpoints["early-exit"].meta["layers"])
    return min(trained, key=lambda layer: max(layer, target.layers - layer))


CARD = Card("ppsd", idea="the target's layers as a pipeline that its early exit fills", source="arXiv 2509.19368",
            make=make, parts=("fixed", "early-exit", "rejection"), notebook="53_ppsd", parallel=True)
