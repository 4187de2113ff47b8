"""Configs of a folder: both spellings give one shape, and what is not of the family is refused by name."""

import math

import pytest
import torch
import transformers
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from specdec_lib.models.attention_span import is_windowed
from specdec_lib.models.llama.config import ORIGINAL, UnsupportedConfig, config_of, rope_table
from specdec_lib.types import Refusal

CONFIG = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 48, "num_attention_heads": 6, "vocab_size": 97,
          "intermediate_size": 80, "max_position_embeddings": 4096}


QWEN = CONFIG | {"model_type": "qwen2", "sliding_window": 1024, "use_sliding_window": True}


@pytest.mark.parametrize("config", [
    CONFIG | {"model_type": "mistral", "sliding_window": 1024}, QWEN | {"max_window_layers": 1},
    QWEN | {"layer_types": ["full_attention", "sliding_attention"]},
    CONFIG | {"model_type": "smollm3", "sliding_window": 1024, "layer_types": ["full_attention", "sliding_attention"]}])
def test_a_window_that_slides_within_the_context_is_left_to_transformers(config):
    with pytest.raises(UnsupportedConfig, match="window of 1024 tokens inside a context of 4096"):
        config_of(config)


@pytest.mark.parametrize("config", [
    {"model_type": "mistral"}, {"model_type": "mistral", "sliding_window": None},
    {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 1}, {"model_type": "qwen3"},
    {"model_type": "phi3"}, {"model_type": "smollm3"}], ids=str)
def test_a_config_that_is_silent_about_its_window_has_the_one_that_transformers_fills_in(config):
    config = CONFIG | {"max_position_embeddings": 8192, "head_dim": 8} | config
    theirs = transformers.AutoConfig.for_model(**config)
    if is_windowed(theirs):
        with pytest.raises(UnsupportedConfig, match=f"window of {theirs.sliding_window} tokens"):
            config_of(config)
    else:
        assert config_of(config).context == 8192


@pytest.mark.parametrize("config", [
    CONFIG | {"model_type": "mistral", "sliding_window": 4096}, QWEN | {"use_sliding_window": False},
    QWEN | {"max_window_layers": 2}, QWEN, QWEN | {"max_window_layers": 0, "layer_types": ["full_attention"] * 2}])
def test_a_window_that_no_layer_slides_is_no_obstacle(config):
    assert config_of(config).context == 4096


@pytest.mark.parametrize("change", [{"model_type": "gpt2"}, {"hidden_act": "gelu"},
                                    {"quantization_config": {"bits": 4}},
                                    {"rope_scaling": {"rope_type": "longrope", "factor": 4.0}},
                                    {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "truncate": False}},
                                    {"model_type": "phi3", "sliding_window": 2047},
                                    {"model_type": "smollm3", "sliding_window": 64, "use_sliding_window": True}])
def test_what_is_not_of_the_family_is_left_to_transformers(change):
    with pytest.raises(UnsupportedConfig):
        config_of(CONFIG | change)


@pytest.mark.parametrize("change", [{"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
                                    {"model_type": "phi3", "partial_rotary_factor": 0.5}])
def test_heads_that_are_rotated_in_part_are_left_to_transformers_and_the_reason_says_so(change):
    with pytest.raises(UnsupportedConfig, match=r"share of 0\.5 alone is rotated"):
        config_of(CONFIG | change)


@pytest.mark.parametrize("change", [{"no_rope_layers": [1]}, {"no_rope_layers": 1}, {"no_rope_layer_interval": 0}])
def test_impossible_layers_without_positions_are_refused(change):
    with pytest.raises(Refusal, match="fetch the model again"):
        config_of(CONFIG | {"model_type": "smollm3"} | change)


@pytest.mark.parametrize("change", [{}, {"no_rope_layer_interval": 3}, {"no_rope_layers": [0, 1] * 5}])
def test_layers_without_positions_are_those_of_transformers(change):
    config = CONFIG | {"model_type": "smollm3", "num_hidden_layers": 10, "pad_token_id": 0} | change
    theirs = transformers.AutoConfig.for_model(**config).no_rope_layers
    assert config_of(config).unturned == tuple(i for i, turned in enumerate(theirs) if not turned)


LONG = {"rope_type": "longrope", "rope_theta": 500.0, "short_factor": [1.0, 2.0, 3.0], "partial_rotary_factor": 0.75,
        ORIGINAL: 64}


def test_a_phi_with_longrope_ends_where_its_angles_change():
    phi = CONFIG | {"model_type": "phi3", "max_position_embeddings": 256}
    found = config_of(phi | {"rope_parameters": LONG})
    assert (found.context, found.rope.stretch) == (64, (1.0, 2.0, 3.0))
    assert found.rope.scale == pytest.approx((1 + math.log(4) / math.log(64)) ** .5)
    given = {"rope_scaling": {"type": "longrope", "short_factor": [1.0, 2.0, 3.0], "attention_factor": 1.5},
             "rope_theta": 500.0, "partial_rotary_factor": 0.75, ORIGINAL: 512}
    assert (config_of(phi | given).context, config_of(phi | given).rope.scale) == (256, 1.5)
    assert config_of(phi | {"rope_parameters": LONG | {"factor": 0.5}}).rope.scale == 1.0


@pytest.mark.parametrize("stretch", [None, 2.0, [1.0, 2.0], [1.0, 2.0, 3.0, 4.0]])
def test_longrope_has_a_factor_for_each_pair(stretch):
    phi = CONFIG | {"model_type": "phi3", "max_position_embeddings": 256}
    with pytest.raises(Refusal, match="a factor for each of 6 / 2 pairs of coordinates, and the config.json gives"):
        config_of(phi | {"rope_parameters": LONG | {"short_factor": stretch}})
    with pytest.raises(Refusal, match="rotary angles come from numbers above 0"):
        config_of(phi | {"rope_parameters": LONG | {"short_factor": [1.0, 0.0, 2.0]}})


YARN = {"rope_type": "yarn", "rope_theta": 1000.0, "factor": 8.0}


@pytest.mark.parametrize("scaling", [
    YARN, YARN | {ORIGINAL: 64}, YARN | {"factor": None, ORIGINAL: 64}, YARN | {"factor": 0.5}, YARN | {ORIGINAL: 4},
    YARN | {ORIGINAL: 1}, YARN | {"attention_factor": 1.7}, YARN | {"mscale": 0.8, "mscale_all_dim": 1.2},
    YARN | {"mscale": 0.8}, YARN | {"beta_fast": 8.0, "beta_slow": 0.5, ORIGINAL: 256}, YARN | {"beta_slow": 1e-4},
    YARN | {"beta_fast": 1e-3, "beta_slow": 1e-4}], ids=str)
def test_yarns_angles_are_transformers(scaling):
    theirs = LlamaRotaryEmbedding(transformers.AutoConfig.for_model(**CONFIG, rope_parameters=dict(scaling)))
    cos, sin = theirs(torch.zeros(1), torch.arange(300)[None])
    mine = rope_table(config_of(CONFIG | {"rope_parameters": scaling}), 300, torch.float32, "cpu")
    torch.testing.assert_close(mine, (cos[0], torch.cat((-sin[0, :, :4], sin[0, :, 4:]), -1)), atol=1e-4, rtol=0)


def test_the_context_before_a_stretch_may_stand_outside_the_rotary_part_and_counts_first():
    both = CONFIG | {ORIGINAL: 64, "rope_parameters": YARN | {ORIGINAL: 128}}
    mine, theirs = config_of(both), transformers.AutoConfig.for_model(**both)
    theirs.standardize_rope_params()               # which writes into our dict
    assert mine.rope.original == theirs.rope_parameters[ORIGINAL] == 64


def test_a_base_of_one_makes_no_ramp_and_is_refused():
    with pytest.raises(Refusal, match="no base of 1"):
        config_of(CONFIG | {"rope_parameters": YARN | {"rope_theta": 1.0}})


def test_both_spellings_of_the_rotary_settings_give_the_same_shape():
    old = {"rope_theta": 1e5, "rope_scaling": {"type": "linear", "factor": 2.0}}
    new = {"rope_parameters": {"rope_theta": 1e5, "rope_type": "linear", "factor": 2.0}}
    assert config_of(CONFIG | old) == config_of(CONFIG | new)


@pytest.mark.parametrize("change", [
    {"rope_theta": 10 ** 400}, {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 10 ** 400}},
    {"rms_norm_eps": 10 ** 400}, {"rms_norm_eps": float("inf")}, {"rms_norm_eps": -1.0}, {"rope_theta": True}])
def test_numbers_that_no_model_computes_with_are_refused(change):
    with pytest.raises(Refusal, match="above 0.*fetch the model again"):
        config_of(CONFIG | change)


def test_a_config_that_lacks_a_size_is_refused_and_names_it():
    with pytest.raises(Refusal, match="lacks hidden_size"):
        config_of({name: value for name, value in CONFIG.items() if name != "hidden_size"})
