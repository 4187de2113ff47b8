"""SuffixDecoding: each round verifies the likeliest continuations of the text's suffixes, by how often they followed.

Source: SuffixDecoding (Oliaro et al., arXiv 2411.04975); `what/suffix_decoding.py` has the rule. The authors' setting,
as far as it is known, is `suffix-decoding(rule="shares", factor=1, least=0.1, price=0)`, and vLLM's drafts chains, with
`width=1`. With `remember=100000` it also continues the answers to earlier prompts, as theirs does, and with a store a
corpus, as REST does (He et al. 2024). Cost: no draft forward.
"""

from __future__ import annotations

from specdec_lib.cards import Card, Kit
from specdec_lib.index.continuations import MATCH
from specdec_lib.types import Method


def make(kit: Kit, depth: int | None = None, width: int = 8, nodes: int | None = None, rule: str = MATCH,
         least: float = 0.0, factor: float | None = None, price: float | None = None, remember: int = 0) -> Method:
    """Nodes default to four times what the cost curve allows, since each must be worth its row; depth to as many."""
    nodes = 4 * kit.nodes if nodes is None else nodes
    when = kit.part("fixed", depth=nodes if depth is None else depth, width=width, nodes=nodes)
    what = kit.part("suffix-decoding", rule=rule, least=least, factor=factor, price=price, remember=remember)
    return Method(when, what, kit.part("match"))


CARD = Card("suffix-decoding", idea="continue the text's suffixes by how often each token followed",
            source="Oliaro et al. 2025, SuffixDecoding", make=make, notebook="21b_what_suffix_decoding",
            parts=("fixed", "suffix-decoding", "match"),
            learns_across_prompts=True)            # with `remember`, which is off by default
