"""A random published block drafter, and what a plain forward over the whole text says of it.

The forward reads the folder by itself, keeps no cache, and is written from the description of the layout: one token
more is one more pass over everything. Nothing of the package's own drafters is used for it.
"""

from __future__ import annotations

import json
from dataclasses import replace

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from specdec_lib.heads.public_block import load_public_block
from tests.heads.published import HIDDEN, VOCAB, rms, turned

IDS, MASK, ROWS = (0, 2, 5), 96, 6                 # of a target of seven layers; a block of six rows drafts five tokens
CONFIG = {"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_size": HIDDEN, "intermediate_size": 36,
          "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 6,
          "vocab_size": VOCAB, "max_position_embeddings": 2048, "rms_norm_eps": 0.03, "rope_theta": 300.0,
          "num_target_layers": 7, "block_size": ROWS, "tie_word_embeddings": True,
          "dflash_config": {"mask_token_id": MASK, "target_layer_ids": list(IDS)}}
BIASED = {**CONFIG, "attention_bias": True}
WIDE = {**CONFIG, "head_dim": 32}                  # heads that the compiled attention takes


def with_own(config=CONFIG, **own):
    """The config with other values in its `dflash_config`; None takes one out."""
    there = {**config["dflash_config"], **own}
    return {**config, "dflash_config": {name: value for name, value in there.items() if value is not None}}


def tensors_of(config, seed=3):
    """Random tensors of a drafter, norms around one."""
    h, mlp, d = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    wide, pair = config["num_attention_heads"] * d, config["num_key_value_heads"] * d
    sizes = {"fc": (h, len(config["dflash_config"]["target_layer_ids"]) * h), "hidden_norm": (h,), "norm": (h,)}
    for i in range(config["num_hidden_layers"]):
        sizes |= {f"layers.{i}.{name}": size for name, size in {
            "self_attn.q_proj": (wide, h), "self_attn.k_proj": (pair, h), "self_attn.v_proj": (pair, h),
            "self_attn.o_proj": (h, wide), "self_attn.q_norm": (d,), "self_attn.k_norm": (d,),
            "mlp.gate_proj": (mlp, h), "mlp.up_proj": (mlp, h), "mlp.down_proj": (h, mlp), "input_layernorm": (h,),
            "post_attention_layernorm": (h,)}.items()}
    dice, made = torch.Generator().manual_seed(seed), {}
    for name, size in sizes.items():
        value = torch.randn(size, generator=dice) / (1 if len(size) == 1 else size[-1] ** .5)
        made[f"{name}.weight"] = value.abs() + .5 if "norm" in name else value
        if config.get("attention_bias") and "self_attn" in name and name.endswith("proj"):
            made[f"{name}.bias"] = torch.randn(size[0], generator=dice)
    return made


def written(folder, config=CONFIG, **tensors):
    """The folder of a drafter; a tensor given as None is left out."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {**tensors_of(config), **{name.replace("__", "."): tensor for name, tensor in tensors.items()}}
    save_file({name: tensor for name, tensor in state.items() if tensor is not None}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def with_published(kit, folder):
    """The kit with a published block drafter for its target; it is written to this folder."""
    shape = kit.target.shape
    config = {**CONFIG, "hidden_size": shape.hidden, "vocab_size": shape.vocab}
    drafter = load_public_block(written(folder, with_own(config, mask_token_id=0, target_layer_ids=[0])), kit.target)
    return replace(kit, checkpoints={**kit.checkpoints, "block-diffusion": drafter})


class Plainly:
    """A drafter in a folder for a model of transformers, in double precision, without a cache."""

    def __init__(self, folder, model, rows=ROWS):
        self.config, self.model, self.rows = json.loads((folder / "config.json").read_text()), model, rows
        self.w = {name: tensor.double() for name, tensor in load_file(folder / "model.safetensors").items()}

    def linear(self, name, x):
        return F.linear(x, self.w[f"{name}.weight"], self.w.get(f"{name}.bias"))

    def norm(self, name, x):
        return rms(x, self.w[f"{name}.weight"], self.config["rms_norm_eps"])

    def features(self, tokens):
        """Of every token before the last; states are counted from that of the embedding."""
        with torch.no_grad():
            states = self.model(torch.tensor([tokens]), output_hidden_states=True, use_cache=False).hidden_states
        both = torch.cat([states[id + 1][0, :-1] for id in self.config["dflash_config"]["target_layer_ids"]], -1)
        return self.norm("hidden_norm", self.linear("fc", both))

    def logits(self, tokens):
        """Logits [rows - 1, V] of the slots behind the last token."""
        own = self.config["dflash_config"]
        known, embedding = self.features(tokens), self.model.get_input_embeddings().weight.detach()
        x = embedding[[tokens[-1], *[own["mask_token_id"]] * (self.rows - 1)]]
        for i in range(self.config["num_hidden_layers"]):
            x = x + self.attention(f"layers.{i}.self_attn.", known, self.norm(f"layers.{i}.input_layernorm", x))
            inner, at = self.norm(f"layers.{i}.post_attention_layernorm", x), f"layers.{i}.mlp."
            gate, up = self.linear(f"{at}gate_proj", inner), self.linear(f"{at}up_proj", inner)
            x = x + self.linear(f"{at}down_proj", F.silu(gate) * up)
        return self.norm("norm", x)[1:] @ self.model.get_output_embeddings().weight.detach().T

    def attention(self, at, known, x):
        """Rows of a block see all tokens before them, and all of themselves."""
        every, before, heads = torch.cat((known, x)), len(known), self.config["num_attention_heads"]
        d = self.config["head_dim"]
        q, k = (self.norm(f"{at}{part}_norm", self.linear(f"{at}{part}_proj", rows).view(len(rows), -1, d))
                for part, rows in (("q", torch.cat((torch.zeros_like(known), x))), ("k", every)))
        q, k = turned(q, self.config["rope_theta"])[before:], turned(k, self.config["rope_theta"])
        v = self.linear(f"{at}v_proj", every).view(len(every), -1, d)
        k, v = (part.repeat_interleave(heads // part.shape[1], 1) for part in (k, v))
        weight = (torch.einsum("qhd,khd->hqk", q, k) / d ** .5).softmax(-1)
        return self.linear(f"{at}o_proj", torch.einsum("hqk,khd->qhd", weight, v).reshape(len(x), -1))
