"""Which drafters can be trained for a target, and that nothing else is advised."""

import pytest
import torch
import transformers

from specdec_lib.checkpoints.trainable import ANY_TARGET, refuse_untrainable, training_advice, why_untrainable
from specdec_lib.models.huggingface import HuggingFace
from specdec_lib.training.recipes import NAMES
from specdec_lib.types import Refusal
from tests.training.other_target import other_target
from tests.training.tiny import tiny_target

SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 97}


def test_every_drafter_can_be_trained_for_our_own_decoder_and_those_without_its_layers_for_any():
    ours, other = tiny_target(), other_target()
    assert [name for name in NAMES if why_untrainable(name, ours) is None] == list(NAMES)
    assert {name for name in NAMES if why_untrainable(name, other) is None} == set(ANY_TARGET) <= set(NAMES)


def test_a_drafter_that_starts_from_the_targets_layers_is_refused_and_others_are_named():
    refuse_untrainable("eagle", other_target(), "mine")
    with pytest.raises(Refusal, match="draft-lm cannot be trained for mine: .* our own decoder runs.* eagle, ngram"):
        refuse_untrainable("draft-lm", other_target(), "mine")


@pytest.mark.parametrize(("config", "why"), [
    (lambda: transformers.CohereConfig(**SMALL, logit_scale=0.5), "the logits of CohereForCausalLM are another"),
    (lambda: transformers.PhiConfig(**SMALL, bos_token_id=0, eos_token_id=0), "its output matrix has a bias")])
@pytest.mark.parametrize("name", ANY_TARGET)
def test_a_target_whose_logits_are_not_the_output_matrix_times_a_state_is_refused(config, why, name):
    torch.manual_seed(0)
    lm = HuggingFace(transformers.AutoModelForCausalLM.from_config(config()).eval())
    with pytest.raises(Refusal, match=f"{name} cannot be trained for mine: .*{why}"):
        refuse_untrainable(name, lm, "mine")


def test_a_command_is_advised_where_it_can_be_followed_and_can_be_typed():
    assert training_advice("draft-lm", tiny_target(), "/a b") == (
        "`specdec train draft-lm --target '/a b'` makes one that fits")
    assert "`specdec train eagle --target x`" in training_advice("eagle", other_target(), "x")
    told = training_advice("draft-lm", other_target(), "x")
    assert told.startswith("none can be trained for this target: ")
    assert "`" not in told
