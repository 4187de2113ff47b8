"""Hierarchical speculative decoding: a stack of drafters, each verified by the next, and the topmost by the target.

Source: Mohri et al. 2025 (arXiv 2510.19705). `hierarchical(stack='ngram+draft-model', blocks=(4, 6))` drafts 4 tokens
with the trigram until the draft model has verified 6, which the target verifies. A stack of one drafter is plain
speculative decoding. Stack and blocks are chosen by `cost.hierarchy.best_stack` from the costs and acceptances that
`cost.levels` measures; the defaults are plain ones. Cost: see what/hierarchy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdec_lib.cards import Card, Kit
from specdec_lib.types import Method


def make(kit: Kit, stack: str | None = None, blocks: tuple[int, ...] | None = None) -> Method:
    """Drafters from the lowest up, and the tokens that each buffers; the last block may overshoot, and is not cut."""
    drafters = kit.part("hierarchy", stack=stack, blocks=blocks)
    return Method(kit.part("fixed", depth=drafters.longest), drafters, kit.part("rejection"))


def drafters_named(values: Mapping[str, Any]) -> tuple[str, ...]:
    """The drafters of the stack that these parameters name, without their layers."""
    stack = values.get("stack")
    return tuple(name.partition(":")[0] for name in stack.split("+")) if isinstance(stack, str) else ()


CARD = Card("hierarchical", idea="a stack of drafters, each verifying the one below",
            source="Mohri et al. 2025, arXiv 2510.19705", make=make, parts=("fixed", "hierarchy", "rejection"),
            prefers=("ngram", "early-exit"), named=drafters_named, notebook="56_hierarchical")
