"""The break-even of a trained drafter: its method from its recipe, its costs, and the rates of its card beside them.

The costs and the equation are in `cost/break_even.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any, cast

from specdec_lib import catalog
from specdec_lib.cards import Kit
from specdec_lib.cost.break_even import CONTEXT, NEW, REPEATS, Clock, break_even_of_part, rates_on_card
from specdec_lib.heads.base import Target
from specdec_lib.heads.draft_lm import draft_lm
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.training.recipes import DEPTH, NGRAM, RECIPES, checkpoints_for, spec_of
from specdec_lib.types import Method, Refusal

DRAFTERS = (*(name for name, which in RECIPES.items() if not which.fills), NGRAM)


def break_even(name: str, stored: Any, target: Target, measured: Mapping[str, Any], where: Mapping[str, Any],
               depth: int = DEPTH, context: int = CONTEXT, repeats: int = REPEATS, clock: Clock = perf_counter) -> dict:
    """Expected and measured costs of every part of a drafter, as its card stores them.

    `stored` is a checkpoint, or the table of an n-gram; `measured` are the rates of its card, for chains of length
    `DEPTH`, and appear at that depth alone; `where` describes the machine. Raises Refusal for a depth that the drafter
    cannot draft, and for a name that is no drafter.
    """
    if depth < 1 or repeats < 1 or context <= NEW:
        raise Refusal(f"a break-even takes a depth and repeats of at least 1 and a context above {NEW}, got {depth}, "
                      f"{repeats} and {context}")
    context = min(context, (target.context or 2 * context) // 2)
    out = {"depth": depth, "context": context, "new_tokens": NEW, "repeats": repeats, **where}
    state, meta = getattr(stored, "state", {}), getattr(stored, "meta", {})
    for part in parts_of(name, stored):
        layer, lm = int(part.split()[-1]) if part else None, target.fresh()
        method = method_of(name, part, stored, lm, depth)
        reached = rates_on_card(measured, part or name) if depth == DEPTH else {}
        out[part or name] = {**break_even_of_part(method, lm, state, meta, layer, depth, context, repeats, clock),
                             "reached": reached}
    return out


def parts_of(name: str, stored: Any) -> tuple[str, ...]:
    """The parts of a drafter, as its card names them; Refusal for a name that is no drafter."""
    if name not in DRAFTERS:
        raise Refusal(f"{name} is no drafter that is trained here; there are: {', '.join(DRAFTERS)}")
    return ("",) if name == NGRAM else RECIPES[name].parts(stored.meta)


def method_of(name: str, part: str, stored: Any, target: Target, depth: int) -> Method:
    """The method that drafts chains of this depth with the stored drafter, for this target."""
    if name == NGRAM:
        return catalog.build(f"draft-model(depth={depth})", Kit(target, draft=stored, parts=catalog.make_part))
    draft = draft_lm(stored.state, cast(Transformer, target).weights) if name == "draft-lm" else None
    kit = Kit(target, draft=draft, checkpoints=checkpoints_for(RECIPES[name], stored), parts=catalog.make_part)
    return catalog.build(spec_of(RECIPES[name], part, depth), kit)
