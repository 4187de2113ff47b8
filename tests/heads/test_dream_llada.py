"""Pretrained diffusion models load from their own names, and draft nothing but what the target knows."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from specdec_lib.heads.diffusion import DiffusionLM
from specdec_lib.heads.dream_llada import load_pretrained
from specdec_lib.types import Refusal

VOCAB, HIDDEN, HEADS, MLP, LAYERS, MASK, PAD = 41, 24, 4, 40, 2, 37, 35
KNOWN = frozenset(range(35))                       # of the target; 35 and 36 it has never heard of
TEXT = (4, 9, 20, 31, 8, 11, 2)
OWN = {"mask_token_id": MASK, "pad_token_id": PAD, "rope_theta": 1000.0}
CONFIGS = {
    "Dream": OWN | {"model_type": "Dream", "num_hidden_layers": LAYERS, "hidden_size": HIDDEN, "vocab_size": VOCAB,
                    "num_attention_heads": HEADS, "num_key_value_heads": 2, "intermediate_size": MLP,
                    "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
                    "hidden_act": "silu", "use_sliding_window": False, "sliding_window": None, "rope_scaling": None},
    "LLaDA": OWN | {"model_type": "llada", "n_layers": LAYERS, "d_model": HIDDEN, "vocab_size": VOCAB,
                    "n_heads": HEADS, "n_kv_heads": HEADS, "mlp_hidden_size": MLP, "max_sequence_length": 64,
                    "rms_norm_eps": 1e-5, "weight_tying": False, "block_type": "llama", "layer_norm_type": "rms",
                    "activation_type": "silu", "rope": True, "include_bias": False, "include_qkv_bias": False,
                    "clip_qkv": None}}
PLACES = {                                         # embedding, last norm, head, then of each layer
    "Dream": ("model.embed_tokens", "model.norm", "lm_head", "model.layers.{}.input_layernorm",
              "model.layers.{}.self_attn.q_proj", "model.layers.{}.self_attn.k_proj",
              "model.layers.{}.self_attn.v_proj", "model.layers.{}.self_attn.o_proj",
              "model.layers.{}.post_attention_layernorm", "model.layers.{}.mlp.gate_proj",
              "model.layers.{}.mlp.up_proj", "model.layers.{}.mlp.down_proj"),
    "LLaDA": ("model.transformer.wte", "model.transformer.ln_f", "model.transformer.ff_out",
              *(f"model.transformer.blocks.{{}}.{name}" for name in (
                  "attn_norm", "q_proj", "k_proj", "v_proj", "attn_out", "ff_norm", "ff_proj", "up_proj", "ff_out")))}


@dataclass
class Made:
    """A model folder, and everything in it by its own name."""

    folder: Path
    config: dict
    tensors: dict[str, torch.Tensor]

    def write(self, **changes) -> "Made":
        (self.folder / "config.json").write_text(json.dumps(self.config | changes))
        save_file(self.tensors, self.folder / "model.safetensors")
        return self

    def without(self, name: str) -> "Made":
        del self.tensors[name]
        return self.write()

    def head(self, known=KNOWN, window=None, **options) -> DiffusionLM:
        return load_pretrained(self.folder, known, torch.float64, **options).head(window)


def made(family: str, folder: Path) -> Made:
    """Random weights under this family's own names; Dream has biases on queries, keys and values."""
    dice, config = torch.Generator().manual_seed(3), CONFIGS[family]
    keys = HIDDEN // HEADS * config.get("num_key_value_heads", HEADS)
    shapes = [(VOCAB, HIDDEN), (HIDDEN,), (VOCAB, HIDDEN), (HIDDEN,), (HIDDEN, HIDDEN), (keys, HIDDEN), (keys, HIDDEN),
              (HIDDEN, HIDDEN), (HIDDEN,), (MLP, HIDDEN), (MLP, HIDDEN), (HIDDEN, MLP)]
    tensors = {}
    for layer in range(LAYERS):
        for place, shape in zip(PLACES[family], shapes, strict=True):
            tensor = torch.randn(shape, generator=dice, dtype=torch.float64)
            tensors[place.format(layer) + ".weight"] = tensor.abs() + .5 if len(shape) == 1 else 2 * tensor / HIDDEN**.5
            if family == "Dream" and place[-6:] in ("q_proj", "k_proj", "v_proj"):
                tensors[place.format(layer) + ".bias"] = torch.randn(shape[0], generator=dice, dtype=torch.float64)
    return Made(folder, config, tensors).write()


@pytest.fixture(params=["Dream", "LLaDA"])
def model(request, tmp_path) -> Made:
    return made(request.param, tmp_path)


def by_hand(model: Made, canvas) -> torch.Tensor:
    """Logits [canvas, VOCAB], every position seeing every other, step by step from the tensors as they are stored."""
    family = "Dream" if model.config["model_type"] == "Dream" else "LLaDA"
    eps, get, d = model.config["rms_norm_eps"], model.tensors, HIDDEN // HEADS
    names = PLACES[family]
    angle = torch.outer(torch.arange(len(canvas)).double(), 1000.0 ** (-torch.arange(0, d, 2).double() / d))

    def norm(x, name):
        return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * get[name + ".weight"]

    def linear(x, name):
        return x @ get[name + ".weight"].T + get.get(name + ".bias", 0.0)

    def turned(x):                                 # [heads, canvas, d]: coordinate i turns with i + d / 2
        a, b = x[..., :d // 2], x[..., d // 2:]
        return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)

    x = get[names[0] + ".weight"][list(canvas)]
    for layer in range(LAYERS):
        first, query, key, value, out, second, gate, up, down = (name.format(layer) for name in names[3:])
        y = norm(x, first)
        q, k, v = (linear(y, name).view(len(canvas), -1, d).transpose(0, 1) for name in (query, key, value))
        k, v = (part.repeat_interleave(HEADS // len(part), 0) for part in (k, v))
        seen = (turned(q) @ turned(k).transpose(1, 2) / d ** .5).softmax(-1) @ v
        x = x + linear(seen.transpose(0, 1).reshape(len(canvas), -1), out)
        y = norm(x, second)
        x = x + linear(torch.nn.functional.silu(linear(y, gate)) * linear(y, up), down)
    return linear(norm(x, names[1]), names[2])


def wanted(model: Made, depth: int, known=KNOWN) -> torch.Tensor:
    """Log-probabilities [depth, known] of the slots: Dream's stand a row before their masks, LLaDA's in them."""
    first = len(TEXT) - (model.config["model_type"] == "Dream")
    return by_hand(model, (*TEXT, *(MASK,) * depth))[first:first + depth, sorted(known)].log_softmax(-1)


@pytest.mark.parametrize("depth", [1, 4])
def test_its_distributions_are_those_of_a_plain_bidirectional_forward(model, depth):
    head = model.head()
    assert float((head.dists(TEXT, depth) - wanted(model, depth)).abs().max()) < 1e-5
    assert head.shifted == (model.config["model_type"] == "Dream")
    assert head.fed == len(TEXT) + depth


def test_causal_attention_or_a_shift_by_one_row_changes_its_distributions(model):
    head = model.head()
    weights, dists = head.model.weights, head.dists(TEXT, 3)
    for other in (DiffusionLM(weights, head.shifted, mask=MASK), DiffusionLM(weights, not head.shifted, None, "full",
                                                                             MASK)):
        assert float((other.dists(TEXT, 3) - dists).abs().max()) > 1e-2


def test_neither_mask_nor_padding_nor_a_token_that_the_target_does_not_know_is_ever_drafted(model):
    everything = frozenset(range(VOCAB))
    assert set(model.head(everything).ids.tolist()) == everything - {MASK, PAD}
    assert set(model.head().ids.tolist()) == KNOWN
    [rows] = (tensor for name, tensor in model.tensors.items() if name in ("lm_head.weight",
                                                                           "model.transformer.ff_out.weight"))
    rows[MASK], rows[PAD] = 1e3 * rows[0], -1e3 * rows[0]           # one of the two is the best of any row
    assert set(by_hand(model, (*TEXT, *(MASK,) * 5)).argmax(-1).tolist()) <= {MASK, PAD}
    assert set(model.write().head().lattice(TEXT, 5, 3).ids.flatten().tolist()) <= KNOWN


def test_padding_with_the_end_of_a_text_may_be_drafted_since_a_drafter_has_to_end(model):
    head = model.head(frozenset(range(VOCAB)), end={PAD})
    assert PAD in head.ids.tolist()
    assert MASK not in head.ids.tolist()


def test_a_longer_text_than_it_was_trained_for_is_windowed_and_it_says_by_how_much(model):
    dream = model.config["model_type"] == "Dream"
    context = 2048 if dream else 64
    head = model.head()
    assert head.window == context
    assert head.unseen(context, 4) == 4
    assert head.unseen(context - 4, 4) == 0
    text = tuple(int(t) for t in torch.randint(0, 35, (40,), generator=torch.Generator().manual_seed(1)))
    narrow = model.head(window=11)
    assert narrow.unseen(len(text), 4) == 33
    assert torch.equal(narrow.dists(text, 4), model.head().dists(text[33:], 4))
    assert narrow.fed == 11


def test_decodes_share_the_weights_alone(model):
    loaded = load_pretrained(model.folder, KNOWN, torch.float64)
    one, two = loaded.head(), loaded.head()
    one.dists(TEXT, 2)
    assert one.model.weights is two.model.weights
    assert (one.forwards, two.forwards) == (1, 0)
    assert loaded.name == model.folder.name


@pytest.mark.parametrize(("family", "name"), [
    ("Dream", "model.layers.1.self_attn.k_proj.bias"), ("Dream", "lm_head.weight"),
    ("LLaDA", "model.transformer.blocks.1.ff_proj.weight"), ("LLaDA", "model.transformer.wte.weight"),
    ("LLaDA", "model.transformer.ff_out.weight")])
def test_a_tensor_that_is_missing_is_named_as_the_family_names_it(tmp_path, family, name):
    with pytest.raises(Refusal, match=f"lacks the tensor {name}: the download is incomplete"):
        made(family, tmp_path).without(name).head()


def test_pickled_weights_are_not_read(model):
    (model.folder / "model.safetensors").rename(model.folder / "pytorch_model.bin")
    with pytest.raises(Refusal, match="no .safetensors file"):
        model.head()


@pytest.mark.parametrize(("options", "sentence"), [
    ({"vocab": VOCAB + 1}, f"knows {VOCAB} tokens and the target {VOCAB + 1}"),
    ({"known": {MASK, PAD, 3}}, "too few tokens in common")])
def test_a_target_that_it_cannot_draft_for_is_refused(model, options, sentence):
    with pytest.raises(Refusal, match=sentence):
        model.head(**options)


def test_a_mask_beyond_the_vocabulary_is_refused(model):
    with pytest.raises(Refusal, match=f"mask of .* is token 99 and its vocabulary has {VOCAB}"):
        model.write(mask_token_id=99).head()
    family = {"Dream": 151666}.get(model.config["model_type"], 126336)
    with pytest.raises(Refusal, match=f"is token {family} and"):       # the family's own, where the config names none
        model.write(mask_token_id=None).head()


@pytest.mark.parametrize("place", ["q_proj.weight", "ff_out.weight", "wte.weight", "tokens.weight", "norm.weight"])
def test_tensors_of_other_sizes_than_its_config_says_are_refused(model, place):
    for name in [name for name in model.tensors if name.endswith(place)]:
        model.tensors[name] = torch.cat((model.tensors[name],) * 2, -1)
        with pytest.raises(Refusal, match=f"{name} of .* and its config.json says"):
            model.write().head()
        model.tensors[name] = model.tensors[name].chunk(2, -1)[0].clone()
