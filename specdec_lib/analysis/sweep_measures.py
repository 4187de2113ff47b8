"""What the settings of a sweep are compared by: ratios of totals over prompts."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class SweepMeasure(NamedTuple):
    """A ratio of totals over prompts."""

    columns: tuple[str, ...]
    ratio: Callable[[np.ndarray], np.ndarray]      # of totals [..., columns]
    more_is_better: bool = True


TOKENS, SPEED = "tokens per forward", "times as fast as plain decoding"
NODES, NLL, NOT_BEST = "drafted nodes per forward", "NLL (nats per token)", "not best per 100 tokens"
MEASURES = {
    TOKENS: SweepMeasure(("tokens", "forwards"), lambda t: t[..., 0] / t[..., 1]),
    SPEED: SweepMeasure(
        ("plain_seconds", "plain_tokens", "seconds", "tokens"),
        lambda t: t[..., 0] * t[..., 3] / (t[..., 1] * t[..., 2])),
    "acceptance rate": SweepMeasure(("accepted", "drafted"), lambda t: t[..., 0] / t[..., 1]),
    NODES: SweepMeasure(("drafted", "forwards"), lambda t: t[..., 0] / t[..., 1], False),
    NLL: SweepMeasure(("nll", "tokens"), lambda t: t[..., 0] / t[..., 1], False),
    "reference score": SweepMeasure(("score", "scored"), lambda t: t[..., 0] / t[..., 1]),
    NOT_BEST: SweepMeasure(("not_best", "tokens"), lambda t: 100 * t[..., 0] / t[..., 1], False)}
