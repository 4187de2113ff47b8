"""What diffusion language models call their settings and tensors."""

import pytest

from specdec_lib.hub.diffusion_configs import DREAM, LLADA, LLADA_8B, LLAMA, diffusion_family
from specdec_lib.types import Refusal

DREAM_7B = {"model_type": "Dream", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
            "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "rope_theta": 1000000.0,
            "max_position_embeddings": 131072, "rms_norm_eps": 1e-06, "tie_word_embeddings": False}
LLADA_CONFIG = {"model_type": "llada", "d_model": 4096, "mlp_hidden_size": 12288, "n_layers": 32, "n_heads": 32,
                "n_kv_heads": 32, "vocab_size": 126464, "rope_theta": 500000.0, "max_sequence_length": 4096,
                "rms_norm_eps": 1e-05, "weight_tying": False, "block_type": "llama", "include_bias": False}


def test_dream_is_qwen2_with_biases_and_holds_2048_tokens_whatever_its_config_says():
    shape = diffusion_family(DREAM_7B).shape(DREAM_7B)
    assert (shape.hidden, shape.group, shape.head_dim, shape.context) == (3584, 7, 128, 2048)
    assert shape.qkv_bias
    assert not shape.out_bias
    assert shape.rope.theta == 1e6
    assert DREAM.shifted
    assert DREAM.shape(DREAM_7B | {"max_position_embeddings": 512}).context == 512


def test_llada_is_llama_under_other_names():
    shape = diffusion_family(LLADA_CONFIG).shape(LLADA_CONFIG)
    assert (shape.layers, shape.mlp, shape.kv_heads, shape.head_dim, shape.context) == (32, 12288, 32, 128, 4096)
    assert not shape.qkv_bias
    assert shape.eps == 1e-5
    assert shape.rope.theta == 5e5
    assert not LLADA_8B.shifted
    assert LLADA_8B.mask == 126336


def test_every_tensor_has_one_name_in_each_family():
    assert len(set(LLAMA)) == len(set(LLADA)) == 12
    assert DREAM.tensor("model.layers.27.self_attn.q_proj.bias") == "model.layers.27.self_attn.q_proj.bias"
    assert LLADA_8B.tensor("model.layers.31.mlp.gate_proj.weight") == "model.transformer.blocks.31.ff_proj.weight"
    assert LLADA_8B.tensor("model.layers.0.mlp.down_proj.weight") == "model.transformer.blocks.0.ff_out.weight"
    assert LLADA_8B.tensor("lm_head.weight") == "model.transformer.ff_out.weight"


@pytest.mark.parametrize(("config", "sentence"), [
    ({"model_type": "llama"}, "type 'llama' is no diffusion language model that is known here: there are Dream and"),
    ({}, "type 'None'"),
    ({k: v for k, v in LLADA_CONFIG.items() if k != "d_model"}, "the LLaDA model's config.json lacks d_model:"),
    ({k: v for k, v in DREAM_7B.items() if k != "hidden_size"}, "the Dream model's config.json lacks hidden_size:"),
    (LLADA_CONFIG | {"include_qkv_bias": True}, "this LLaDA model has include_qkv_bias True, and only"),
    (LLADA_CONFIG | {"block_type": "sequential"}, "block_type 'sequential'")])
def test_another_model_or_setting_is_refused_by_name(config, sentence):
    with pytest.raises(Refusal, match=sentence):
        diffusion_family(config).shape(config)
