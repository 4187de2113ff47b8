"""A head of ours in the speculators format, in which vLLM serves EAGLE-3 heads: config and tensors, nothing rounded.

What our network (`EagleWeights`) is in that layout: its norms of embedding, feature and attention's output have no
weights, since training keeps them in the matrices behind (here ones); attention's 1 / sqrt(head size) is in the
queries (here taken out again, exactly where the head size is a power of 4); the feature before its norm is the residual
(`norm_before_residual` off); a drafted row's feature is the output before the last norm (`norm_output` off). Each
tapped state is divided by its own size before `fc`, which is `fc_norm` with weights of one. EAGLE-3's first layout has
no such norm, and no matrix can do its work, so a head of ours cannot be written in it. The embedding is the target's
and left out. Newer versions of vLLM read `fc_norm` (EAGLE 3.1); no exported head has been served yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from specdec_lib.heads.base import TargetWeights, checked_tensors, draft_vocabulary
from specdec_lib.models.llama.config import LlamaConfig, Rope
from specdec_lib.types import Refusal

FIRST_LAYOUT = "eagle3"
NOT_EXACT = ("a head of ours divides each tapped hidden state by its own size before fc, and the layout eagle3 has no"
             " such norm: give --format speculators, whose fc_norm it is")


def refuse_inexact(kind: str, taps: Sequence[int] = (), layers: int = 0) -> None:
    """Raises Refusal for a layout that cannot express a head of ours with these taps of so many layers."""
    if kind == FIRST_LAYOUT:
        raise Refusal(NOT_EXACT)
    if layers and layers in taps:
        raise Refusal(f"this head reads the last hidden state after the target's norm (tap {layers} of {layers}),"
                      " and the format counts the states before it: train one with lower taps")


def exported_tensors(state: Mapping[str, Tensor], taps: int, target: TargetWeights) -> dict[str, Tensor]:
    """The tensors of the folder, float32 but for the two maps of tokens; rows of the output rise with their tokens."""
    shape, h = target.shape, target.shape.hidden
    wide, pairs = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    checked_tensors(state, {"fc": (h, taps * h), "qkv": (wide + 2 * pairs, 2 * h), "out": (h, wide), "gate_up": (-1, h),
                            "down": (h, -1), "norm": (h,)}, target)
    ids = draft_vocabulary(state, target).cpu().sort().values
    q, k, v = state["qkv"].float().split((wide, pairs, pairs))
    gate, up = state["gate_up"].float().chunk(2)
    rows = target.embedding if shape.tied else target.head.dense()
    attention, mlp = "layers.0.self_attn.", "layers.0.mlp."
    made = {"fc.weight": state["fc"], f"{attention}q_proj.weight": q * shape.head_dim ** 0.5,
            f"{attention}k_proj.weight": k, f"{attention}v_proj.weight": v, f"{attention}o_proj.weight": state["out"],
            f"{mlp}gate_proj.weight": gate, f"{mlp}up_proj.weight": up, f"{mlp}down_proj.weight": state["down"],
            "norm.weight": state["norm"], "lm_head.weight": rows[ids.to(rows.device)]}
    norms = ("layers.0.input_layernorm", "layers.0.hidden_norm", "layers.0.post_attention_layernorm",
             *(f"fc_norm.{i}" for i in range(taps)))
    made |= {f"{name}.weight": torch.ones(h) for name in norms}
    made = {name: tensor.detach().cpu().float().contiguous().clone() for name, tensor in made.items()}
    drafted = torch.zeros(shape.vocab, dtype=torch.bool).index_fill_(0, ids, True)
    return made | {"d2t": ids - torch.arange(len(ids)), "t2d": drafted}


def exported_config(state: Mapping[str, Tensor], meta: Mapping[str, Any], shape: LlamaConfig, verifier: str,
                    architectures: Sequence[str]) -> dict[str, Any]:
    """The `config.json`; `verifier` is the target's name, `shape` its shape, `meta` the checkpoint's."""
    layer = {"model_type": "llama", "hidden_size": shape.hidden, "intermediate_size": state["down"].shape[1],
             "num_hidden_layers": 1, "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads,
             "head_dim": shape.head_dim, "vocab_size": shape.vocab, "max_position_embeddings": shape.context,
             "rms_norm_eps": shape.eps, "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
             "tie_word_embeddings": False, "num_aux_hidden_states": len(meta["taps"]), **rope_settings(shape.rope)}
    proposal = {"proposal_type": "greedy", "speculative_tokens": meta.get("trained_depth", 5), "accept_tolerance": 0.0,
                "verifier_accept_k": 1}
    return {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "torch_dtype": "float32",
            "draft_vocab_size": len(state["ids"]), "target_hidden_size": None,
            "eagle_aux_hidden_state_layer_ids": list(meta["taps"]), "norm_before_residual": False,
            "norm_before_fc": False, "fc_norm": True, "norm_output": False, "tie_word_embeddings": False,
            "speculators_config": {"algorithm": "eagle3", "default_proposal_method": "greedy",
                                   "proposal_methods": [proposal],
                                   "verifier": {"name_or_path": verifier, "architectures": list(architectures)}},
            "transformer_layer_config": layer}


def rope_settings(rope: Rope) -> dict[str, Any]:
    """The angles as transformers spells them; Refusal for those of a Phi, whose heads may be rotated in part."""
    if rope.kind == "longrope":
        raise Refusal("this target's angles are LongRoPE's, which a head in this format cannot have")
    if rope.kind == "default":
        return {"rope_theta": rope.theta}
    scaling = {"rope_type": rope.kind, "factor": rope.factor}
    if rope.kind == "llama3":
        scaling |= {"low_freq_factor": rope.low, "high_freq_factor": rope.high,
                    "original_max_position_embeddings": rope.original}
    if rope.kind == "yarn":
        scaling |= {"beta_slow": rope.low, "beta_fast": rope.high, "attention_factor": rope.scale,
                    "original_max_position_embeddings": rope.original}
    return {"rope_theta": rope.theta, "rope_scaling": scaling}
