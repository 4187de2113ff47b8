"""SuffixDecoding with EAGLE-2: continuations that are worth enough are drafted; without them, the head drafts its tree.

Source: the hybrid of SuffixDecoding (Oliaro et al., arXiv 2411.04975), which takes its own draft where the expected
number of accepted tokens is above a threshold, and the model's draft elsewhere. The threshold of 1.5 tokens is ours. In
a busy run on the tuning prompts, which is not kept, 1.1 and 2 came out as fast (2.31 and 2.30 times plain decoding, 1.5
at 2.32), 0.5 and 0.8 slower (`specdec bench --prompts data/prompts/tuning.jsonl --max-new-tokens 96` with `worth`).
Cost: no draft forward in rounds that copy, else EAGLE-2's.
"""

from __future__ import annotations

from specdec_lib.cards import Card, Kit
from specdec_lib.index.continuations import MATCH
from specdec_lib.trees import wide_enough
from specdec_lib.types import Method


def make(kit: Kit, worth: float = 1.5, copy: int | None = None, depth: int = 5, width: int = 4,
         nodes: int | None = None, least: float = 0.25, price: float | None = None, rule: str = MATCH,
         factor: float | None = None, counts: float = 0.0, remember: int = 0) -> Method:
    """Drafts continuations of at most `copy` nodes that are worth `worth` tokens, else a tree as `eagle2`.

    Nodes default to twice what the cost curve allows and `copy` to twice as many again, since each must be worth its
    row. `remember` is the number of tokens of earlier answers that are continued as well.
    """
    nodes = 2 * kit.nodes if nodes is None else nodes
    copy = 2 * nodes if copy is None else copy
    when = kit.part("one-source", source="suffix-decoding", depth=copy, nodes=copy, other="eagle2", other_depth=depth,
                    other_width=wide_enough(width, depth, nodes), other_nodes=nodes, least=least)
    continued = {"worth": worth, "rule": rule, "factor": factor, "remember": remember}
    what = kit.part("switch", drafters={"suffix-decoding": continued, "eagle2": {"price": price, "counts": counts}})
    return Method(when, what, kit.part("match"))


CARD = Card("suffix-decoding+eagle2", idea="continue the text's suffixes, else a trained layer's most probable tree",
            source="Oliaro et al. 2025, SuffixDecoding", make=make, notebook="21b_what_suffix_decoding",
            parts=("one-source", "suffix-decoding", "eagle2", "switch", "match"),
            learns_across_prompts=True)            # with `remember`, which is off by default
