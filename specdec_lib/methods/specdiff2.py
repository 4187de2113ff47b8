"""SpecDiff-2: an aligned diffusion model drafts several chains in one forward, and the target selects one of them.

Source: SpecDiff-2 (arXiv 2511.00606), at second hand: one denoising step, 16 or 32 tokens deep, up to 8 chains at draft
temperatures from 1 to 2, and a drafter trained further for long accepted prefixes. Those widths are for a GPU: here
nodes default to what the cost curve allows, and the chains share them in order. `how="match"` follows all chains at
once; at temperature 0 that is the same, and above it it never accepts less (see `how/self_selection.py`). Cost: one
drafter forward per round.
"""

from __future__ import annotations

from specdec_lib.cards import Card, Kit, naming
from specdec_lib.types import Method, Refusal

ALIGNED = "diffusion-lm-aligned"
MOST = 1000                                        # chains


def make(kit: Kit, depth: int = 4, chains: int = 4, nodes: int | None = None, temperature: float = 1.0,
         weights: str | None = None, how: str = "self-selection", seed: int = 0, window: int | None = None) -> Method:
    """`chains` of `depth` tokens merged into one trie of `nodes`, drawn at the draft's own `temperature`.

    `weights` names the checkpoint that drafts; None means diffusion-lm-aligned, or diffusion-lm if that is missing or
    if diffusion-lm is a pretrained model.
    """
    if not 1 <= chains <= MOST:
        raise Refusal(f"chains are drawn one by one, from 1 to {MOST:,}, got {chains}")
    nodes = kit.nodes if nodes is None else nodes
    weights = drafter(kit) if weights is None else weights
    settings = {"block": max(1, depth), "window": window, "weights": weights}
    what = kit.part("sampled-chains", settings=settings, temperature=temperature, seed=seed)
    return Method(kit.part("fixed", depth=depth, width=chains, nodes=nodes), what, kit.part(how))


def drafter(kit: Kit) -> str:
    """The default checkpoint."""
    from specdec_lib.heads.dream_llada import Pretrained

    given = isinstance(kit.checkpoints.get("diffusion-lm"), Pretrained)
    return ALIGNED if ALIGNED in kit.checkpoints and not given else "diffusion-lm"


CARD = Card("specdiff2", idea="several chains of one diffusion draft, one selected by the target",
            source="SpecDiff-2, arXiv 2511.00606", make=make, parts=("fixed", "sampled-chains", "self-selection"),
            prefers=(ALIGNED,), named=naming(how="how"), notebook="42_specdiff2")
