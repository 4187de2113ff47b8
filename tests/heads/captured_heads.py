"""Heads on targets of captured steps and of plain ones; their arithmetic runs here without a graph."""

import random
from dataclasses import replace

from specdec_lib.heads.eagle import EagleHead, EagleWeights
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.weights import random_weights
from tests.heads.eagle_head import CHECKPOINT, SHAPE, TAPS

WEIGHTS = random_weights(replace(SHAPE, tied=True), seed=2)      # in float32; the output rows lie open in memory
CLOSE = 1e-4


def packed_weights() -> EagleWeights:
    return EagleWeights.pack(CHECKPOINT.state, len(TAPS), WEIGHTS)


def pair_of(packed: EagleWeights, text_tokens: bool = True) -> list[EagleHead]:
    """(fixed, eager): heads on targets of their own, the first one's in captured steps."""
    heads = []
    for static in (True, False):
        target = Transformer(WEIGHTS, static=static)
        heads.append(EagleHead(CHECKPOINT.state, TAPS, target, packed, text_tokens))
        heads[-1].compiled = None                  # which would draft for the eager head
    assert [head.lease is None for head in heads] == [False, True]
    return heads


def words(n, seed=0):
    dice = random.Random(seed)
    return tuple(dice.randrange(97) for _ in range(n))
