"""Families of pretrained diffusion language models, as data: the names of their settings and tensors.

They are decoders of the Llama family with bidirectional attention. Sources of the tables: for Dream (Ye et al.
2025) `configuration_dream.py` and `modeling_dream.py` beside its weights on the hub, and the README of its repository
for the context; for LLaDA (Nie et al. 2025) `configuration_llada.py`, `modeling_llada.py` and the `config.json` of
GSAI-ML/LLaDA-8B-Instruct.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from specdec_lib.models.llama.config import NEEDED, LlamaConfig, config_of
from specdec_lib.types import Refusal

LAYER = "model.layers.{}."
LLAMA = ("model.embed_tokens", "model.norm", "lm_head", LAYER + "input_layernorm", LAYER + "self_attn.q_proj",
         LAYER + "self_attn.k_proj", LAYER + "self_attn.v_proj", LAYER + "self_attn.o_proj",
         LAYER + "post_attention_layernorm", LAYER + "mlp.gate_proj", LAYER + "mlp.up_proj", LAYER + "mlp.down_proj")
BLOCK = "model.transformer.blocks.{}."
LLADA = ("model.transformer.wte", "model.transformer.ln_f", "model.transformer.ff_out", BLOCK + "attn_norm",
         BLOCK + "q_proj", BLOCK + "k_proj", BLOCK + "v_proj", BLOCK + "attn_out",
         BLOCK + "ff_norm", BLOCK + "ff_proj", BLOCK + "up_proj", BLOCK + "ff_out")      # ff_proj passes the SiLU


@dataclass(frozen=True)
class DiffusionFamily:
    """The names of one family. Keys of a mapping are transformers' names for the Llama family."""

    name: str
    like: str                                      # the model_type that it is a form of, see `shape`
    modules: Mapping[str, str]                     # {} is the number of a layer
    shifted: bool                                  # a slot's distribution is in the row before it
    mask: int                                      # token id, where the config says none
    settings: Mapping[str, str] = field(default_factory=dict)     # settings of other names; empty = all are the same
    context: int | None = None                     # trained context, where its config gives a larger one
    needs: Mapping[str, Any] = field(default_factory=dict)        # settings without which it is another architecture

    def tensor(self, name: str) -> str:
        """This family's name for the tensor that a Llama checkpoint calls `name`."""
        module, _, kind = name.rpartition(".")
        number = re.search(r"\.(\d+)\.", module)
        plain = module if number is None else module.replace(number[0], ".{}.", 1)
        return self.modules[plain].format(number and number[1]) + f".{kind}"

    def shape(self, config: Mapping[str, Any]) -> LlamaConfig:
        """The shape that its `config.json` describes; Refusal where a setting is missing or unsupported."""
        lacking = [self.settings.get(name, name) for name in NEEDED if self.settings.get(name, name) not in config]
        if lacking:
            raise Refusal(f"the {self.name} model's config.json lacks {', '.join(lacking)}: fetch the model again")
        for name, value in self.needs.items():
            if (config.get(name, value) or False) != value:
                raise Refusal(f"this {self.name} model has {name} {config[name]!r}, and only"
                              f" {value!r} is supported")
        plain = {name: config[theirs] for name, theirs in self.settings.items() if theirs in config}
        shape = config_of({**({} if self.settings else config), **plain, "model_type": self.like})
        return shape if self.context is None else replace(shape, context=min(shape.context, self.context))


DREAM = DiffusionFamily("Dream", like="qwen2", modules=dict(zip(LLAMA, LLAMA, strict=True)), shifted=True, mask=151666,
                        context=2048)
LLADA_8B = DiffusionFamily("LLaDA", like="llama", modules=dict(zip(LLAMA, LLADA, strict=True)), shifted=False,
                           mask=126336,
                           settings={"num_hidden_layers": "n_layers", "hidden_size": "d_model",
                                     "num_attention_heads": "n_heads",
                                     "num_key_value_heads": "n_kv_heads", "intermediate_size": "mlp_hidden_size",
                                     "vocab_size": "vocab_size", "max_position_embeddings": "max_sequence_length",
                                     "rms_norm_eps": "rms_norm_eps", "rope_theta": "rope_theta",
                                     "tie_word_embeddings": "weight_tying"},
                           needs={"block_type": "llama", "layer_norm_type": "rms", "activation_type": "silu",
                                  "rope": True,
                                  "include_bias": False, "include_qkv_bias": False, "bias_for_layer_norm": False,
                                  "attention_layer_norm": False, "input_emb_norm": False, "scale_logits": False,
                                  "alibi": False,
                                  "clip_qkv": False, "multi_query_attention": False})
FAMILIES = {"dream": DREAM, "llada": LLADA_8B}     # by model_type in lower case


def diffusion_family(config: Mapping[str, Any]) -> DiffusionFamily:
    """The family that a `config.json` names; Refusal for any other model."""
    kind = str(config.get("model_type"))
    if kind.lower() not in FAMILIES:
        known = " and ".join(family.name for family in FAMILIES.values())
        raise Refusal(f"a model of type {kind!r} is no diffusion language model that is known here: there are {known}")
    return FAMILIES[kind.lower()]
