"""Published EAGLE heads in a folder: which layout it is, what its config says, and which tensors it must have.

Layouts, and where they were read: EAGLE-1 and EAGLE-2 (`cnets1.py` of github.com/SafeAILab/EAGLE), EAGLE-3 (`cnets.py`
and `modeling_llama_kv.py` there), and the speculators format with the types `eagle3` and `eagle`
(github.com/vllm-project/speculators; as served: `llama_eagle3.py`, `speculators/algos.py` of vLLM). What a row computes
is in `public_eagle.py`. What is easily misread:

- Taps. The reference takes the states that enter layers 2, n // 2 and n - 3 of n, counted from 0: the output of that
  many layers, which is how `Transformer.taps` counts. `eagle_aux_hidden_state_layer_ids` beside the other settings is
  counted so too (vLLM). Inside `eagle_config` it names layers by their outputs, from 0: one more here (SGLang's
  `set_eagle3_layers_to_capture`). EAGLE-1 reads the last state after the target's norm. In EAGLE-3 that number would
  mean the last state before the norm, which targets here do not keep, so it is refused.
- Shift. Row t holds the feature of token t and the embedding of token t + 1, at position t; only differences of
  positions matter. The first token has no row. A drafted row takes the output of its parent as its feature.
- `d2t` holds differences: draft token i is target token i + d2t[i]. `t2d` follows from it and is not read.
- Residual. With `norm_before_residual` the normed feature is added to attention, else the feature as it is. It is off
  where EAGLE-3's config is silent; speculators and vLLM fill a missing one differently, so there it is refused.
- `fc_norm` norms each tapped state, `norm_before_fc` all of them together (`input_norm`), before `fc`. With
  `norm_output` a drafted row's feature is the output after the last norm, else before it. All are off by default.
- The embedding and EAGLE-1's output matrix are the target's, unless the folder has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from specdec_lib.models.llama.config import LlamaConfig, config_of
from specdec_lib.models.llama.weights import side_by_side
from specdec_lib.types import Refusal

EAGLE1, EAGLE3 = "EAGLE-1", "EAGLE-3"
TYPES = {"eagle": EAGLE1, "eagle3": EAGLE3}        # speculators_model_type
LAYERS = ("midlayer.", "layers.0.", "transformer.")              # how layouts begin the names of the layer's tensors
UNREAD = ("t2d", "verifier_norm.weight", "verifier_lm_head.weight")
TAP_IDS = "eagle_aux_hidden_state_layer_ids"
Sizes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class EagleLayout:
    """One head: enough to build its forward. `names` maps our names of tensors to those of the folder."""

    name: str                                      # as a person calls it
    kind: str                                      # EAGLE1 or EAGLE3
    shape: LlamaConfig                             # of its one layer, with its own heads and angles
    rows: int                                      # tokens that it can draft
    taps: tuple[int, ...]                          # of the target, as `Transformer.taps` counts them
    names: Mapping[str, str] = field(default_factory=dict, compare=False)
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False


def layout_of(name: str, config: Mapping[str, Any], sizes: Sizes, target: LlamaConfig) -> EagleLayout:
    """The head that this `config.json` and these tensors describe, for a target of this shape.

    Refusal where it is none that is known here, does not fit the target, or where a tensor is missing, unknown or of
    another size.
    """
    names = our_names(sizes)
    kind, spoken = kind_of(name, config, names), "speculators_model_type" in config
    layer = config.get("transformer_layer_config") if spoken else config
    if not isinstance(layer, Mapping):
        raise Refusal(f"the config.json of {name} holds no transformer_layer_config: fetch the head again")
    shape = head_shape(name, layer, config, target)
    if "layer.self_attn.q_norm.weight" in names:
        shape = replace(shape, head_norms=True)
    if kind == EAGLE1:
        found = EagleLayout(name, kind, shape, shape.vocab, (target.layers,), names)
        if switch(name, config, "layernorms"):
            raise Refusal(f"{name} has the further norms of `layernorms`, which readers of the format place differently"
                          " from each other: only heads without them are supported")
    else:
        found = eagle3_layout(name, config, shape, names, target.layers, spoken)
    check_tensors_of(found, sizes)
    return found


def our_names(sizes: Iterable[str]) -> dict[str, str]:
    """Our name of every tensor that is read -> its name in the folder."""
    out = {}
    for there in sizes:
        name = there.removeprefix("model.").replace("fusion_fc.", "fc.", 1)
        start = next((start for start in LAYERS if name.startswith(start)), None)
        name = name if start is None else f"layer.{name.removeprefix(start)}"
        if name not in UNREAD and not name.endswith("rotary_emb.inv_freq"):
            out[name] = there
    return out


def kind_of(name: str, config: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """EAGLE1 or EAGLE3; Refusal for any other network."""
    if "speculators_model_type" in config or "speculators_config" in config:
        kind = config.get("speculators_model_type")
        if not isinstance(kind, str) or kind not in TYPES:
            raise Refusal(f"{name} is a speculator of type {kind!r}, and only {' and '.join(TYPES)} are supported")
        return TYPES[kind]
    if any(there.startswith("layer.") for there in names):
        if "draft_vocab_size" in config or "layer.hidden_norm.weight" in names:
            return EAGLE3
        if "fc.weight" in names:
            return EAGLE1
    raise Refusal(f"{name} is no EAGLE head that is known here: there are the layouts of EAGLE-1 and EAGLE-3, and the"
                  " speculators format")


def head_shape(name: str, layer: Mapping[str, Any], config: Mapping[str, Any], target: LlamaConfig) -> LlamaConfig:
    """The shape of the head's layer; Refusal where there are several, or it is not as wide as the target."""
    try:
        shape = config_of({**layer, "model_type": layer.get("model_type") or "llama"})
    except Refusal as why:
        raise Refusal(f"the head {name} cannot be run: {why}") from None
    if shape.layers != 1:
        raise Refusal(f"{name} has {shape.layers} layers, and only heads of one layer are supported")
    check_width(name, shape, config.get("target_hidden_size") or shape.hidden, target)
    return shape


def check_width(name: str, shape: LlamaConfig, wide: int, target: LlamaConfig) -> None:
    """Refusal where a published drafter of this shape, for a target so wide, does not fit this target."""
    if (wide, shape.hidden) != (target.hidden, target.hidden):
        raise Refusal(f"{name} has a hidden size of {shape.hidden} for a target of {wide}, and this target has"
                      f" {target.hidden}: it was trained for another model")
    if shape.vocab != target.vocab:
        raise Refusal(f"{name} knows a vocabulary of {shape.vocab} tokens, and this target has {target.vocab}:"
                      " it was trained for another model")


def eagle3_layout(name: str, config: Mapping[str, Any], shape: LlamaConfig, names: Mapping[str, str], layers: int,
                  spoken: bool) -> EagleLayout:
    """The settings of an EAGLE-3 head for a target of so many layers; `spoken`: in the speculators format."""
    if spoken and not isinstance(config.get("norm_before_residual"), bool):
        raise Refusal(f"the config.json of {name} does not say norm_before_residual, and readers of the format fill it"
                      " in differently: add it as it was trained")
    if not switch(name, config, "use_aux_hidden_state", True):
        raise Refusal(f"{name} reads no tapped hidden states (use_aux_hidden_state is off), and only heads that do are"
                      " supported")
    rows = config.get("draft_vocab_size")
    rows = shape.vocab if rows is None else rows
    if type(rows) is not int or not 2 <= rows <= shape.vocab:
        raise Refusal(f"the config.json of {name} gives a draft_vocab_size of {rows!r}, and it is a whole number of 2"
                      f" to {shape.vocab}: fetch the head again")
    on = {word: switch(name, config, word) for word in ("norm_before_residual", "norm_before_fc", "fc_norm",
                                                        "norm_output")}
    return EagleLayout(name, EAGLE3, shape, rows, taps_of(name, config, layers), names, **on)


def switch(name: str, config: Mapping[str, Any], word: str, otherwise: bool = False) -> bool:
    """A setting that is on or off, here or inside `eagle_config`; Refusal for any other value."""
    value = inner(config).get(word, config.get(word))
    if value is not None and not isinstance(value, bool):
        raise Refusal(f"the config.json of {name} gives {word} as {value!r}, and it is true or false:"
                      " fetch the head again")
    return otherwise if value is None else value


def inner(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings in `eagle_config`, where some trainers put them."""
    found = config.get("eagle_config")
    return found if isinstance(found, Mapping) else {}


def taps_of(name: str, config: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    """The states that an EAGLE-3 head reads of a target of so many layers; Refusal where it has no such states."""
    given, nested = config.get(TAP_IDS), inner(config).get(TAP_IDS)
    if not all(isinstance(ids, list) and all(type(id) is int for id in ids) for ids in (given or [], nested or [])):
        raise Refusal(f"the config.json of {name} gives {TAP_IDS} that are no list of whole numbers: fetch the head"
                      " again")
    taps = tuple(given or [id + 1 for id in nested or []] or (2, layers // 2, layers - 3))
    check_taps(name, taps, layers)
    return taps


def check_taps(name: str, taps: Sequence[int], layers: int) -> None:
    """Refusal where a target of so many layers keeps no such states."""
    if any(not 0 <= tap < layers for tap in taps) or any(a >= b for a, b in pairwise(taps)):
        raise Refusal(f"{name} reads the hidden states after {', '.join(map(str, taps))} layers, and of a target of"
                      f" {layers} layers they must rise and lie between 0 and {layers - 1}: it was trained for another"
                      " model")


def check_tensors_of(layout: EagleLayout, sizes: Sizes) -> None:
    """Refusal where a tensor is missing, of another size, or one that the layout does not have."""
    start = next((start for start in LAYERS if any(start in there for there in layout.names.values())), LAYERS[1])
    check_sizes(layout.name, f"{layout.kind}'s layout", {name: (there, sizes[there]) for name, there in
                                                        layout.names.items()},
                needed_sizes(layout), possible_sizes(layout), lambda name: name.replace("layer.", start, 1))


def check_sizes(name: str, kind: str, held: Mapping[str, tuple[str, tuple[int, ...]]], needed: Sizes, possible: Sizes,
                shown: Callable[[str], str] = str) -> None:
    """Refusal where a published drafter lacks a tensor, or holds one that is unknown or of another size.

    `held` gives the name in the folder and the size of each tensor by our name; `shown` names a missing one.
    """
    lacking = [shown(ours) for ours in needed if ours not in held]
    if lacking:
        raise Refusal(f"{name} lacks {shortened(lacking)} of {kind}: fetch the head again")
    unknown = [there for ours, (there, _) in held.items() if ours not in needed and ours not in possible]
    if unknown:
        raise Refusal(f"{name} has {shortened(unknown)}, which {kind} with these settings does not have: it is another"
                      " network")
    for ours, (there, size) in held.items():
        wanted = {**needed, **possible}[ours]
        if size != wanted:
            raise Refusal(f"in {name} the tensor {there} is {side_by_side(size)} and by its config.json and this target"
                          f" {side_by_side(wanted)}: it was trained for another model")


def shortened(names: list[str]) -> str:
    """The first names of a list, and how many more there are."""
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"the tensor{'s' if len(names) > 1 else ''} {', '.join(names[:4])}{more}"


def needed_sizes(layout: EagleLayout) -> dict[str, tuple[int, ...]]:
    """The size of every tensor without which the head cannot be run, by our name."""
    shape, h = layout.shape, layout.shape.hidden
    wide, pairs = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    third = layout.kind == EAGLE3
    into = 2 * h if third else h
    sizes = {"fc.weight": (h, len(layout.taps) * h if third else 2 * h)}
    sizes |= {f"layer.self_attn.{part}_proj.weight": (out, into) for part, out in
              (("q", wide), ("k", pairs), ("v", pairs))}
    sizes |= {"layer.self_attn.o_proj.weight": (h, wide), "layer.mlp.gate_proj.weight": (shape.mlp, h),
              "layer.mlp.up_proj.weight": (shape.mlp, h), "layer.mlp.down_proj.weight": (h, shape.mlp),
              "layer.post_attention_layernorm.weight": (h,)}
    if shape.head_norms:
        sizes |= {f"layer.self_attn.{part}_norm.weight": (shape.head_dim,) for part in "qk"}
    if third:
        sizes |= {"layer.input_layernorm.weight": (h,), "layer.hidden_norm.weight": (h,), "norm.weight": (h,),
                  "lm_head.weight": (layout.rows, h)}
        sizes |= {"d2t": (layout.rows,)} if layout.rows < shape.vocab else {}
        sizes |= {"input_norm.weight": (len(layout.taps) * h,)} if layout.norm_before_fc else {}
        sizes |= {f"fc_norm.{i}.weight": (h,) for i in range(len(layout.taps))} if layout.fc_norm else {}
    return sizes


def possible_sizes(layout: EagleLayout) -> dict[str, tuple[int, ...]]:
    """The size of every tensor that the head may have and does without: biases, own embedding, own output matrix."""
    shape, needed = layout.shape, needed_sizes(layout)
    biases = {name.replace(".weight", ".bias"): size[:1] for name, size in needed.items()
              if "_proj." in name or name == "fc.weight"}
    whole = (shape.vocab, shape.hidden)
    return {**biases, "embed_tokens.weight": whole, "d2t": (layout.rows,),
            **({"lm_head.weight": whole} if layout.kind == EAGLE1 else {})}
