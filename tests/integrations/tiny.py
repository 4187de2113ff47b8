"""Tiny models of several families as transformers runs them, and one prompt."""

from copy import deepcopy

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.models.test_huggingface import CONFIGS

PROMPT = [5, 6, 7, 8, 9, 5, 6, 7, 8, 9, 5, 6, 7]


@pytest.fixture(scope="module", name="tiny")
def tiny_fixture(checkpoint):
    """tiny(family): a random transformers model."""
    made = {}

    def make(family):
        if family not in made:
            torch.manual_seed(3)
            made[family] = (AutoModelForCausalLM.from_config(CONFIGS[family]()).eval() if family in CONFIGS
                            else deepcopy(checkpoint(family).model))
            made[family].generation_config.eos_token_id = None       # random weights may end before anything repeats
            with torch.no_grad():                                    # the last token nearly decides: text circles
                for name, weight in made[family].named_parameters():
                    if "o_proj" in name:
                        weight.mul_(0.1)
        return made[family]
    return make


def ids(prompt=PROMPT) -> torch.Tensor:
    return torch.tensor([prompt])
