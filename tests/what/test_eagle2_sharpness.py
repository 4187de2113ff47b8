"""The confidences of a tree's nodes are sharpened where decoding is greedy."""

import pytest
import torch

from specdec_lib.types import Refusal
from specdec_lib.what.eagle2 import GREEDY, log_chances
from tests.worlds import WARM, network_kit


def test_confidences_are_sharpened_where_decoding_is_greedy_and_the_heads_own_where_it_samples():
    assert (network_kit(None).part("eagle2").sharpness, network_kit(WARM).part("eagle2").sharpness) == (GREEDY, 1)
    logits = [2.0, 1.0, -1.0]
    tau = torch.log_softmax(torch.tensor(logits, dtype=torch.float64) * 1.5, -1).tolist()
    assert log_chances(logits, 9.0, 1.5) == pytest.approx(tau)             # over these alone
    assert log_chances(logits, 9.0, 1.0) == [-7.0, -8.0, -10.0]
    for wrong in (0, -1):
        with pytest.raises(Refusal, match="sharpness must be above 0"):
            network_kit(None).part("eagle2", sharpness=wrong)
