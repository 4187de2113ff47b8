"""What a length predictor foresees along recorded texts, and a toy to train some on the spot.

The numbers of all places of a text come from one forward of the target, which is what decoding would have asked it
place by place. With them a recording can be walked under the policy without any model.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from specdec_lib.heads.length import LengthWeights, predicted_lengths
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.replay import Recording
from specdec_lib.training.data.length_labels import DRAFTERS

DRAFTER = "eagle"
WHO = {"eagle2": "eagle", **DRAFTERS}              # whose chains a recording calls so
LengthByPrefix = Mapping[tuple[int, ...], float]   # by the tokens known so far: what the predictor says


def predict_lengths(target: Transformer, state: Mapping[str, torch.Tensor], recording: Recording,
                    drafter: str = DRAFTER) -> LengthByPrefix:
    """The number at every place of a recorded text of this target. Refusal where the tensors do not fit it."""
    weights, lm = LengthWeights.pack(state, drafter, target), target.fresh()
    lm.tap((target.layers,))
    lm.prefill(recording.tokens)
    with torch.inference_mode():
        states = lm.features(recording.tokens)[:-1, -1]
        embedded = target.weights.embedding[torch.tensor(recording.tokens[1:], device=target.device)]
        numbers = predicted_lengths(embedded, states, weights.matrices, weights.biases, target.shape.eps).tolist()
    return {recording.tokens[:length]: numbers[length - 2]
            for length in range(max(2, recording.prompt), len(recording.tokens))}
