"""What a token of a recorded drafter costs, in plain forwards of the target.

A recording holds the seconds of drafts and of no forward, on a machine and in a dtype of its own. So its clock is set
by `draft-model`, the target's own first layers: what a token of theirs costs is counted, as the numbers that they read
over those that a plain forward reads. A prediction for another machine takes these costs and that machine's curve.
"""

from __future__ import annotations

from statistics import median

from specdec_lib.cost.flops import layer_matrices, total_work
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.replay import Recording

TARGET, CLOCK, FIRST = "smollm2-135m", "draft-model", 6          # of the shipped recordings; the layers of the clock
SHAPE = LlamaConfig(layers=30, hidden=576, heads=9, kv_heads=3, head_dim=64, mlp=1536, vocab=49152, context=8192,
                    tied=True)


def first_layers_cost(shape: LlamaConfig, layers: int) -> float:
    """Plain forwards that a token of these first layers with the whole head costs, counted by what it reads."""
    def read(count: int) -> float:
        return total_work(layer_matrices(shape, count, 1, 1, 0)).read + shape.hidden * shape.vocab
    return read(layers) / read(shape.layers)


def step_costs(recording: Recording, plain: float, length: int = 8) -> dict[str, float]:
    """By drafter, plain forwards per token of its drafts of this length.

    Where the recording is of another target or lacks the clock, its seconds are divided by `plain`, those of a forward
    on the machine that is asked about: right on the machine of the recording alone. Places of 0 seconds, at which a
    drafter was not asked since its own run had no round there, count for nothing.
    """
    took = {name: median(made) / length for name, seconds in recording.seconds.items()
            if (made := [one for one in seconds.get(length, ()) if one])}
    known = CLOCK in took and recording.about.get("target", {}).get("name") == TARGET
    unit = took[CLOCK] / first_layers_cost(SHAPE, FIRST) if known else plain
    return {name: seconds / unit for name, seconds in took.items()}
