"""A random target with a random EAGLE head, and how far two tensors are apart."""

import torch

from specdec_lib.heads.eagle import EagleHead
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from tests.worlds import random_eagle

SHAPE = LlamaConfig(layers=3, hidden=24, heads=4, kv_heads=2, head_dim=6, mlp=40, vocab=97, context=2048)
TAPS = (0, 2, 3)
IDS = (2, 3, 5, 40, 41, 60, 96)
TARGET = Transformer.random(SHAPE, seed=2, dtype=torch.float64)
CHECKPOINT = random_eagle(SHAPE, TAPS, IDS)


def made(target=TARGET) -> tuple[Transformer, EagleHead]:
    target = target.fresh()
    return target, EagleHead(CHECKPOINT.state, TAPS, target)


def far(a, b) -> float:
    return float((a.double() - b.double()).abs().max())
