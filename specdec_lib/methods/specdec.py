"""SpecDec: each round, a non-autoregressive decoder fills a block and the encoder-decoder verifies it in one forward.

Source: SpecDec (Xia et al. 2023, arXiv 2203.16487). Verified by `match`, which at temperature 0 is the paper's rule
with beta = 1: the output is greedy decoding's. The paper's relaxed rule is `top-beta`: beta 3 and tolerance 1.0 in its
main setting as far as we know it without its text, and `specdec(k=25)@top-beta(beta=5, tolerance=3.0)` in its published
script; the default here is k = 10. Cost: one drafter forward a round. It has a drafter for the target `g2p` alone.
"""

from __future__ import annotations

from specdec_lib.cards import Card, Kit
from specdec_lib.types import Method


def make(kit: Kit, k: int = 10) -> Method:
    """Blocks of `k` slots, cut at an end token; the drafter was trained on 5, 10 and 25."""
    return Method(kit.part("fixed", depth=k), kit.part("spec-drafter", k=k), kit.part("match"))


CARD = Card("specdec", idea="a masked block is filled at once and verified by the encoder-decoder",
            source="SpecDec, arXiv 2203.16487", make=make, parts=("fixed", "spec-drafter", "match"),
            notebook="70_specdec_seq2seq")
