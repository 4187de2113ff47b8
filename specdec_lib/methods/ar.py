"""Plain autoregressive decoding: the baseline, on the same loop and the same fast path as every method.

Formula: x_t ~ p(. | x_<t). Cost: one forward per token.
"""

from __future__ import annotations

from specdec_lib.cards import Card, Kit
from specdec_lib.types import Method


def make(kit: Kit) -> Method:
    """Depth 0 in every round."""
    return Method(kit.part("fixed", depth=0), kit.part("nothing"), kit.part("match"))


CARD = Card("ar", idea="plain decoding, one forward per token", source="the baseline", make=make,
            parts=("fixed", "nothing", "match"), notebook="01_why_decoding_is_slow")
