"""Block diffusion: each round, one forward of a trained block drafter proposes a chain, cut where it stops paying.

Source: DFlash (arXiv 2602.06036); the cut by confidence and cost is this workbook's rule after DSpark's (arXiv
2607.05147), see `what/block_diffusion.py`. Verified by `match`: nodes are deterministic, so `rejection` would accept as
often, and `match` emits exactly plain decoding's tokens when sampling, too. Cost: one drafter forward per round.
"""

from __future__ import annotations

from specdec_lib.cards import Card, Kit
from specdec_lib.types import Method


def make(kit: Kit, depth: int | None = None, block: int | None = None, cut: bool = True,
         drafting: float = 0.36, text_tokens: bool = True) -> Method:
    """At most `depth` tokens per round, by default what the cost curve allows; `cut` shortens low-confidence drafts.

    Without a measured cost curve nothing is cut. `drafting` is the cost of a block in plain forwards; the default is
    that of the shipped drafter on two cores in bf16, from its card, and `specdec break-even` measures it elsewhere.
    With `text_tokens` it drafts tokens of the text as well as those that it was trained for.
    """
    what = kit.part("block-diffusion", block=block, cut=cut, drafting=drafting, text_tokens=text_tokens)
    return Method(kit.part("fixed", depth=depth), what, kit.part("match"))


CARD = Card("block-diffusion", idea="one forward of a small network drafts a whole block",
            source="DFlash, arXiv 2602.06036; DSpark, arXiv 2607.05147", make=make,
            parts=("fixed", "block-diffusion", "match"), notebook="27_what_block_diffusion")
