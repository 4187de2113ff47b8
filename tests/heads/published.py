"""Random heads in the three published layouts, and what a plain forward over whole sequences says of them.

The forward reads the folder by itself, keeps no cache, and is written from the layouts' descriptions: one token more is
one more pass over everything. Nothing of the package's own heads is used.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from specdec_lib import catalog
from specdec_lib.dice import Dice
from specdec_lib.loop import decode
from specdec_lib.sampling import Sampling
from specdec_lib.types import NO_DICE

VOCAB, HIDDEN, HEADS, KV, MLP, LAYERS = 97, 24, 4, 2, 40, 7
LAYER = {"model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": 36, "num_hidden_layers": 1,
         "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 6, "vocab_size": VOCAB, "hidden_act": "silu",
         "max_position_embeddings": 2048, "rms_norm_eps": 0.03, "rope_theta": 300.0}
TOKENS = (3, 5, 8, 40, 41, 60, 96)                 # the draft vocabulary where it is not the whole one
SPOKEN = {"speculators_config": {"algorithm": "eagle3"}, "draft_vocab_size": len(TOKENS)}


@dataclass(frozen=True)
class Published:
    """A layout to write: its config, the beginnings of its names, the levels it reads, what it has besides."""

    config: dict
    layer: str                                     # the beginning of the layer's names
    taps: tuple[int, ...]                          # what a reader must take of a target of seven layers
    more: dict = field(default_factory=dict)       # tensors besides the usual: name -> size
    first: str = ""                                # before every name
    third: bool = True                             # EAGLE-3
    ids: tuple[int, ...] = TOKENS
    fc: str = "fc"


EAGLE3 = {**LAYER, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": len(TOKENS)}
SPEC3 = {**SPOKEN, "speculators_model_type": "eagle3", "transformer_layer_config": LAYER,
         "eagle_aux_hidden_state_layer_ids": [1, 3, 6]}
SPEC1 = {"speculators_config": {"algorithm": "eagle"}, "speculators_model_type": "eagle", "layernorms": False,
         "fusion_bias": True, "transformer_layer_config": LAYER}
WHOLE = tuple(range(VOCAB))
ALL = {
    "eagle3": Published(EAGLE3, "midlayer.", (2, 3, 4), {"embed_tokens.weight": (VOCAB, HIDDEN), "t2d": (VOCAB,)}),
    "eagle3, layers counted by their outputs": Published(
        {**EAGLE3, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 2, 4], "use_aux_hidden_state": True}},
        "midlayer.", (1, 3, 5), first="model."),
    "eagle3, whole vocabulary, biases, norms of heads": Published(
        {**EAGLE3, "draft_vocab_size": VOCAB, "norm_before_residual": True}, "layers.0.", (2, 3, 4),
        {"layers.0.self_attn.q_proj.bias": (18,), "layers.0.self_attn.o_proj.bias": (HIDDEN,),
         "layers.0.self_attn.q_norm.weight": (6,), "layers.0.self_attn.k_norm.weight": (6,),
         "layers.0.mlp.up_proj.bias": (36,)}, ids=WHOLE),
    "speculators eagle3": Published({**SPEC3, "norm_before_residual": True}, "layers.0.", (1, 3, 6),
                                    {"verifier_norm.weight": (HIDDEN,)}),
    "speculators eagle3, every norm": Published(
        {**SPEC3, "norm_before_residual": False, "norm_before_fc": True, "fc_norm": True, "norm_output": True},
        "layers.0.", (1, 3, 6), {"input_norm.weight": (3 * HIDDEN,), "fc_norm.0.weight": (HIDDEN,),
                                 "fc_norm.1.weight": (HIDDEN,), "fc_norm.2.weight": (HIDDEN,)}),
    "eagle1": Published(LAYER, "layers.0.", (LAYERS,), {"embed_tokens.weight": (VOCAB, HIDDEN), "fc.bias": (HIDDEN,)},
                        third=False, ids=WHOLE),
    "speculators eagle": Published(
        SPEC1, "transformer.", (LAYERS,), {
            "fusion_fc.bias": (HIDDEN,), "transformer.self_attn.q_proj.bias": (18,),
            "transformer.self_attn.k_proj.bias": (6,), "transformer.self_attn.v_proj.bias": (6,)},
        third=False, ids=WHOLE, fc="fusion_fc"),
}


def tensors_of(kind: Published, seed: int = 3, vocab: int = VOCAB) -> dict[str, torch.Tensor]:
    """Random tensors of a layout, norms around one."""
    h, wide, pair, mlp = HIDDEN, 18, 6, 36
    into = 2 * h if kind.third else h
    sizes = {f"{kind.fc}.weight": (h, (len(kind.taps) if kind.third else 2) * h)}
    sizes |= {f"{kind.layer}self_attn.{part}_proj.weight": (out, into) for part, out in
              (("q", wide), ("k", pair), ("v", pair))}
    sizes |= {f"{kind.layer}self_attn.o_proj.weight": (h, wide), f"{kind.layer}mlp.gate_proj.weight": (mlp, h),
              f"{kind.layer}mlp.up_proj.weight": (mlp, h), f"{kind.layer}mlp.down_proj.weight": (h, mlp),
              f"{kind.layer}post_attention_layernorm.weight": (h,)}
    if kind.third:
        sizes |= {f"{kind.layer}input_layernorm.weight": (h,), f"{kind.layer}hidden_norm.weight": (h,),
                  "norm.weight": (h,), "lm_head.weight": (len(kind.ids), h)}
    dice, made = torch.Generator().manual_seed(seed), {}
    for name, size in {**sizes, **kind.more}.items():
        value = torch.randn(size, generator=dice) / (1 if len(size) == 1 else size[-1] ** .5)
        made[name] = value.abs() + .5 if name.endswith("norm.weight") or ".fc_norm" in f".{name}" else value
    if "t2d" in made:
        made["t2d"] = torch.zeros(vocab, dtype=torch.bool)        # nobody reads it
    if kind.third and len(kind.ids) < vocab:
        made["d2t"] = torch.tensor(kind.ids) - torch.arange(len(kind.ids))
    return made


def written(folder, kind: Published, **tensors):
    """The folder of a head; a tensor given as None is left out."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {**tensors_of(kind), **{name.replace("__", "."): tensor for name, tensor in tensors.items()}}
    save_file({kind.first + name: tensor for name, tensor in state.items() if tensor is not None},
              folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(kind.config))
    return folder


def rms(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def turned(x, theta: float):
    """Rotary angles for x [rows, heads, d] at positions 0, 1, ..."""
    rows, _, d = x.shape
    angles = torch.arange(rows).float()[:, None] * (1 / theta ** (torch.arange(0, d, 2).float() / d))
    cos, sin = torch.cat((angles, angles), -1).cos().to(x), torch.cat((angles, angles), -1).sin().to(x)
    first, second = x.chunk(2, -1)
    return x * cos[:, None] + torch.cat((-second, first), -1) * sin[:, None]


class Plain:
    """A head in a folder for a model of transformers, in double precision; `taps` are given, not read."""

    def __init__(self, folder, model, taps):
        config = json.loads((folder / "config.json").read_text())
        state = load_file(folder / "model.safetensors")
        self.w = {name.removeprefix("model.").replace("midlayer.", "layers.0.").replace("transformer.", "layers.0.")
                  .replace("fusion_fc", "fc"): tensor.double() if tensor.is_floating_point() else tensor
                  for name, tensor in state.items()}
        self.config, self.layer = config, config.get("transformer_layer_config", config)
        self.model, self.taps, self.third = model, taps, "norm.weight" in self.w
        self.embedding = self.w.get("embed_tokens.weight", model.get_input_embeddings().weight.detach())

    def linear(self, name, x):
        out = x @ self.w[f"{name}.weight"].T
        return out + self.w[f"{name}.bias"] if f"{name}.bias" in self.w else out

    def states(self, tokens):
        """The tapped states of the target for every token of the text."""
        with torch.no_grad():
            states = self.model(torch.tensor([tokens]), output_hidden_states=True, use_cache=False).hidden_states
        return [states[tap][0] for tap in self.taps]

    def features(self, tokens):
        """What a row reads of the target for every token of the text but the last [n - 1, ...]."""
        taps = [state[:-1] for state in self.states(tokens)]
        if not self.third:
            return taps[0]
        eps, both = self.layer["rms_norm_eps"], torch.cat(taps, -1)
        if self.config.get("norm_before_fc"):
            both = rms(both, self.w["input_norm.weight"], eps)
        if self.config.get("fc_norm"):
            both = torch.cat([rms(part, self.w[f"fc_norm.{i}.weight"], eps)
                              for i, part in enumerate(both.chunk(len(taps), -1))], -1)
        return self.linear("fc", both)

    def forward(self, g, tokens):
        """(output that a child reads, logits) of every row [n, ...], from features g and the tokens after them."""
        e, eps = self.embedding[list(tokens)], self.layer["rms_norm_eps"]
        if self.third:
            before = self.w["layers.0.hidden_norm.weight"]
            residual = rms(g, before, eps) if self.config.get("norm_before_residual") else g
            read = torch.cat((rms(e, self.w["layers.0.input_layernorm.weight"], eps), rms(g, before, eps)), -1)
        else:
            residual = read = self.linear("fc", torch.cat((e, g), -1))
        x = residual + self.attention(read)
        inner = rms(x, self.w["layers.0.post_attention_layernorm.weight"], eps)
        gate, up = self.linear("layers.0.mlp.gate_proj", inner), self.linear("layers.0.mlp.up_proj", inner)
        x = x + self.linear("layers.0.mlp.down_proj", F.silu(gate) * up)
        if not self.third:
            return x, x @ self.model.get_output_embeddings().weight.detach().T
        last = rms(x, self.w["norm.weight"], eps)
        return last if self.config.get("norm_output") else x, last @ self.w["lm_head.weight"].T

    def attention(self, read):
        rows, heads, kv = len(read), self.layer["num_attention_heads"], self.layer["num_key_value_heads"]
        at, eps = "layers.0.self_attn.", self.layer["rms_norm_eps"]
        q, k, v = (self.linear(f"{at}{part}_proj", read).view(rows, count, -1)
                   for part, count in (("q", heads), ("k", kv), ("v", kv)))
        if f"{at}q_norm.weight" in self.w:
            q, k = rms(q, self.w[f"{at}q_norm.weight"], eps), rms(k, self.w[f"{at}k_norm.weight"], eps)
        q, k = turned(q, self.layer["rope_theta"]), turned(k, self.layer["rope_theta"])
        k, v = (part.repeat_interleave(heads // kv, 1) for part in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** .5
        scores = scores + torch.full((rows, rows), float("-inf"), dtype=scores.dtype).triu(1)
        return self.linear(f"{at}o_proj", torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).reshape(rows, -1))

    def after(self, tokens, path):
        """Logits [rows] after the text and this path of drafted tokens."""
        g, row_tokens = self.features(list(tokens)), list(tokens[1:])
        for token in path:
            g, row_tokens = torch.cat((g, self.forward(g, row_tokens)[0][-1:])), [*row_tokens, token]
        return self.forward(g, row_tokens)[1][-1]

    def scores(self, tokens, draft):
        """Logits [1 + nodes, rows] after the text and after every node."""
        paths = [(), *(tuple(draft.tokens[node] for node in draft.path(node)) for node in range(len(draft)))]
        return torch.stack([self.after(tokens, path) for path in paths])


def emits_plain_decodings_ids(spec, target, kit_of, sources):
    """Greedy and drawn ids of a method are plain decoding's, and of what these sources drafted some is kept, not all.

    `kit_of(target, sampling)` makes the kit of one decode.
    """
    def output(spec, prompt, sampling):
        fresh = target.fresh()
        *_, last = decode(prompt, fresh, *catalog.build(spec, kit_of(fresh, sampling)), max_new_tokens=30,
                          sampling=sampling, dice=NO_DICE if sampling is None else Dice(5))
        return last

    seen, warm = [], Sampling(temperature=1.0)
    for prompt in ((1, 2), (3, 1, 4, 1, 5), (6, 6, 6, 2, 0, 3, 5)):
        seen.append(output(spec, prompt, None))
        assert seen[-1].output == output("ar", prompt, None).output
        assert output(f"{spec}@match", prompt, warm).output == output("ar@match", prompt, warm).output
    mine = [(len(round.draft), len(round.verdict.path)) for last in seen for round in last.rounds
            if set(round.draft.source) & sources]
    assert 0 < sum(kept for _, kept in mine) < sum(drafted for drafted, _ in mine)
