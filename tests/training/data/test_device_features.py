"""Features kept on a device equal those that are computed text by text, and stay within their limit."""

import pytest
import torch

from specdec_lib.training.data import device_features
from specdec_lib.training.data.device_features import DeviceFeatures
from specdec_lib.training.data.features import Features
from tests.training.tiny import tiny_examples, tiny_target

LEVELS = (1, 2, 4)                                 # 4 is the last: the normed stream before the head
GROUP = (0, 2, 1)


@pytest.fixture(scope="module")
def target():
    return tiny_target()


@pytest.mark.parametrize("at_once", [1, 8192])
@pytest.mark.parametrize("levels", [LEVELS, (2,), ()])
def test_the_batch_is_the_one_of_single_texts(target, levels, at_once, monkeypatch):
    monkeypatch.setattr(device_features, "TEXTS", at_once)
    monkeypatch.setattr(device_features, "ROWS", 3)
    data = tiny_examples(4)
    expected, found = Features(target, data, LEVELS, None)(GROUP, levels), DeviceFeatures(target, data)(GROUP, levels)
    for name in ("tokens", "start", "stop", "top_ids"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    assert torch.allclose(found.top_logp, expected.top_logp, rtol=2e-3)
    assert found.streams.keys() == expected.streams.keys() == set(levels)
    for level in levels:
        assert torch.allclose(found.streams[level], expected.streams[level], atol=1e-5)


def test_a_group_is_computed_once_within_the_limit_and_its_distributions_beyond_it(target):
    data = tiny_examples(4)
    tokens = sum(len(data[i]) for i in GROUP)
    roomy, tight = DeviceFeatures(target, data), DeviceFeatures(target, data, limit=0)
    for features in (roomy, tight):
        features(GROUP, LEVELS)
        features(GROUP)
        features(GROUP, LEVELS)
    assert (roomy.computed, tight.computed) == (tokens, 2 * tokens), "the first pass gives the distributions too"
    assert tight.written == 0 < roomy.written
