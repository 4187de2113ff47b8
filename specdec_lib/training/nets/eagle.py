"""An EAGLE-3 head in training: one layer that reads three hidden states of the target and the next token.

Source: Li et al. 2025 (arXiv 2503.01840), training-time test: at depth k the hidden input is the head's own output at
depth k - 1, and a row sees the true rows before it and its own drafted ones. It starts from the target's last layer
with the last tap passed through, so that it starts as a weak drafter and not as a random one; where transformers runs
the target, its layers are of another kind, and it starts from random weights.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from specdec_lib.heads.base import Target
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.training.data.batches import Batch
from specdec_lib.training.nets.base import Frozen, normed, usual_size
from specdec_lib.training.nets.decoder_layer import TrainableLayer, causal, fused_state, scaled


def default_taps(layers: int) -> tuple[int, ...]:
    """A low, a middle and a high layer: 2, half of the layers, three below the last (EAGLE-3's choice)."""
    return tuple(sorted({min(2, layers), max(1, layers // 2), max(1, layers - 3)}))


class EagleNet(nn.Module):
    """The head in training (see `nets.base.TrainableDrafter`); `depth` unrolled steps."""

    unrolled = True
    text_tokens = True                             # it drafts those of its text too: `heads/draft_vocabulary.py`

    def __init__(self, target: Target, ids: Tensor, taps: tuple[int, ...] = (), depth: int = 3,
                 random: bool = False):
        super().__init__()
        self.frozen = Frozen(target, ids)
        self.levels, self.depth = taps or default_taps(target.layers), depth
        self.shape = target.shape
        copied = copied_start(target, self.levels) if isinstance(target, Transformer) and not random else None
        start = copied or random_start(self.shape, len(self.levels))
        self.fc = nn.Parameter(start.pop("fc"))
        self.norm = nn.Parameter(start.pop("norm"))
        self.layer = TrainableLayer(self.shape, start)

    def slots(self, batch: Batch, depth: int | None = None) -> list[Tensor]:
        """Row t of entry k belongs to anchor t: it drafts token t + 1 + k from hidden states before t alone."""
        return [normed(self.shifted(x), self.norm, self.shape.eps) for x in self.unroll(batch, depth or self.depth)]

    @staticmethod
    def shifted(x: Tensor) -> Tensor:
        """Rows moved to their anchors: the head's row t reads the state of token t and the token t + 1, its anchor."""
        return torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1]), 1)

    def unroll(self, batch: Batch, depth: int) -> list[Tensor]:
        """The head's output [B, S, hidden] at every depth."""
        size, eps = batch.tokens.shape[1], self.shape.eps
        streams = [scaled(batch.streams[level], eps) for level in self.levels]
        x = torch.nn.functional.linear(torch.cat(streams, -1), self.fc)
        keys: list[Tensor] = []
        values: list[Tensor] = []
        out: list[Tensor] = []
        for k in range(depth):
            token = self.frozen.embed(batch.later(batch.tokens, 1 + k))
            inputs = torch.cat((scaled(token, eps), scaled(x, eps)), -1)
            q, key, value = self.layer.heads(inputs, *self.frozen.angles(size, k))
            keys.append(key)
            values.append(value)
            attended = causal(q, key, value) if k == 0 else drafted_attention(q, keys, values)
            x = self.layer.rest(x, attended)
            out.append(x)
        return out

    def take(self, state: Mapping[str, Tensor]) -> None:
        """Takes over trained tensors, as `state` gives them."""
        with torch.no_grad():
            for name, parameter in {"fc": self.fc, "norm": self.norm, **dict(self.layer.named_parameters())}.items():
                parameter.copy_(state[name])

    def state(self) -> dict[str, Tensor]:
        layer = {name: parameter.detach() for name, parameter in self.layer.named_parameters()}
        return {"fc": self.fc.detach(), **layer, "norm": self.norm.detach(), "ids": self.frozen.ids}

    def meta(self) -> dict:
        return {"taps": list(self.levels), "trained_depth": self.depth}


def drafted_attention(q: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
    """Row t sees the true rows 0..t (keys[0]) and, of every deeper step, its own row alone; [B, heads, S, d]."""
    group, size = q.shape[1] // keys[0].shape[1], q.shape[2]
    keys = [key.repeat_interleave(group, 1) for key in keys]
    values = [value.repeat_interleave(group, 1) for value in values]
    hidden = torch.full((size, size), float("-inf"), device=q.device).triu(1)
    scores = (q @ keys[0].transpose(-1, -2)).float() + hidden
    own = torch.stack([(q * key).sum(-1).float() for key in keys[1:]], -1)              # [B, heads, S, k]
    weight = torch.softmax(torch.cat((scores, own), -1), -1).to(q.dtype)
    attended = weight[..., :size] @ values[0]
    for step, value in enumerate(values[1:]):
        attended = attended + weight[..., size + step, None] * value
    return attended


def copied_start(target: Transformer, taps: tuple[int, ...]) -> dict[str, Tensor]:
    """The target's last layer with zero weights for the token; `fc` passes the last tap through at its usual size."""
    shape, state = target.shape, fused_state(target.weights.layers[-1], target.shape.head_dim)
    state["qkv"] = torch.cat((torch.zeros_like(state["qkv"]), state["qkv"]), 1)
    fc = torch.zeros(shape.hidden, len(taps) * shape.hidden)
    fc[:, -shape.hidden:] = torch.eye(shape.hidden) * usual_size(target, taps[-1])
    return state | {"fc": fc, "norm": target.weights.norm.detach().float().cpu().clone()}


def random_start(shape: LlamaConfig, taps: int, seed: int = 0) -> dict[str, Tensor]:
    """Random weights of these shapes, the norm of ones: where nothing can be copied, and the control where it can."""
    dice = torch.Generator().manual_seed(seed)
    hidden, heads = shape.hidden, shape.heads * shape.head_dim
    sizes = {"qkv": (heads + 2 * shape.kv_heads * shape.head_dim, 2 * hidden), "out": (hidden, heads),
             "gate_up": (2 * shape.mlp, hidden), "down": (hidden, shape.mlp), "fc": (hidden, taps * hidden)}
    start = {name: torch.randn(size, generator=dice) * size[1] ** -0.5 for name, size in sizes.items()}
    return start | {"norm": torch.ones(hidden)}
