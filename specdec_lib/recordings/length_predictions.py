"""Predicted draft lengths along recorded texts.

One forward of the target gives the predictions at all positions of a text; decoding would compute the same numbers one
by one. With them the policy can be replayed on a recording without any model.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from specdec_lib.heads.length import DRAFTERS, LengthWeights, predicted_lengths
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.replay import Recording

DRAFTER = "eagle"
WHO = {"eagle2": "eagle", **DRAFTERS}              # drafter of a recording -> its predictor
LengthByPrefix = Mapping[tuple[int, ...], float]   # tokens known so far -> predicted length


def predict_lengths(target: Transformer, state: Mapping[str, torch.Tensor], recording: Recording,
                    drafter: str = DRAFTER) -> LengthByPrefix:
    """The prediction at every position of a recorded text of this target. Refusal if the tensors do not fit it."""
    weights, lm = LengthWeights.pack(state, drafter, target), target.fresh()
    lm.tap((target.layers,))
    lm.prefill(recording.tokens)
    with torch.inference_mode():
        states = lm.features(recording.tokens)[:-1, -1]
        embedded = target.weights.embedding[torch.tensor(recording.tokens[1:], device=target.device)]
        numbers = predicted_lengths(embedded, states, weights.matrices, weights.biases, target.shape.eps).tolist()
    return {recording.tokens[:length]: numbers[length - 2]
            for length in range(max(2, recording.prompt), len(recording.tokens))}
