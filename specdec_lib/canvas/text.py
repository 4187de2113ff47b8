"""Masked diffusion language models as models of canvases: our trained ones, and Dream and LLaDA.

`world_text.open_world` opens a trained one for `specdec canvas`. Dream and LLaDA are opened from Python alone, by
`pretrained_canvas_model(load_pretrained(folder, tokens), end)` with `load_pretrained` of `heads/dream_llada.py`.
Two attentions. `causal` (`heads/diffusion.py`): a position sees all before it; those of a block that holds a mask also
see each other, but for a mask at the block's end, which the trained drafter never feeds. So an open block gets exactly
the distributions that the drafter gives it behind the same text, finished blocks are plain causal text, and the rows of
the prompt are computed once. `full` (`heads/dream_llada.py`): every position sees every other, nothing is kept.
With a shift (diffusion-lm, Dream) the row before a position predicts it, without (LLaDA) its own row does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.canvas.forecast import Forecast, RowForecast, forecast
from specdec_lib.canvas.types import Canvas
from specdec_lib.heads.diffusion import ATTENTION, CAUSAL, FULL
from specdec_lib.heads.dream_llada import Pretrained
from specdec_lib.models.llama.config import rope_table
from specdec_lib.models.llama.weights import LayerWeights, LlamaWeights
from specdec_lib.types import Refusal

KeptLayers = Sequence[tuple[Tensor, Tensor]]       # keys and values [rows, heads, positions, d] by layer
KEPT_PROMPTS = 4                                   # whose rows are kept, the last ones used


@dataclass(frozen=True)
class PromptRows:
    """What the area reads of the positions before it: keys and values by layer, and the last row's hidden state."""

    past: tuple[tuple[Tensor, Tensor], ...]        # per layer [kv_heads, prompt, head_dim] twice
    last: Tensor                                   # [1, hidden], after the last layer


@dataclass(frozen=True, eq=False)
class TextCanvasModel:
    """Forecasts a canvas's area, which ends the canvas; one forward for canvases of one prompt."""

    weights: LlamaWeights
    mask: int
    shifted: bool = True
    attention: str = CAUSAL
    end: tuple[int, ...] = ()
    kept: dict[tuple[int, ...], PromptRows] = field(default_factory=dict, repr=False)

    def __post_init__(self):
        if self.attention not in ATTENTION or self.attention == CAUSAL and not self.shifted:
            raise Refusal(f"attention is {FULL}, or {CAUSAL} with a shift, got {self.attention!r}")

    @property
    def vocab(self) -> int:
        return max(self.weights.shape.vocab, self.mask + 1)

    def __call__(self, canvases: Sequence[Canvas]) -> Forecast:
        """Refusal for an area that is not the end of the canvas, or follows nothing; see `CanvasModel`."""
        first = canvases[0]
        start, stop = first.area[0], len(first)
        if start == 0 or any(canvas.area != tuple(range(start, stop)) for canvas in canvases):
            raise Refusal("a text canvas is a prompt followed by the area to fill, of one length in all rows")
        if stop > self.weights.shape.context:
            raise Refusal(f"the canvas has {stop} positions and the model holds {self.weights.shape.context}")
        with torch.inference_mode():
            if self.attention == FULL:
                out = [logits for canvas in canvases for logits in self.full_logits(canvas)]
            else:
                out = self.causal_logits(canvases, start)
        return forecast(torch.stack(tuple(out)), first.area, None, self.weights.ids)

    @property
    def caches(self) -> bool:
        """With `causal` attention nothing outside the open block changes: there is nothing to approximate."""
        return self.attention == FULL

    def keep(self, canvas: Canvas) -> tuple[RowForecast, KeptLayers]:
        """One whole forward, and the keys and values of all positions; see `block_cache.CachingModel`."""
        with torch.inference_mode():
            hidden, kept = self.through(self.embedded(canvas, range(len(canvas))), 0, None, None)
            found = self.logits(hidden[:, canvas.area[0] - self.shifted:len(canvas) - self.shifted])
        return forecast(found, canvas.area, None, self.weights.ids)[0], kept

    def within(self, canvas: Canvas, kept: KeptLayers, positions: tuple[int, ...]) -> RowForecast:
        """The forecast of these neighbouring positions against what was kept of the others."""
        start, stop = positions[0] - self.shifted, positions[-1] + 1
        others = tuple((without(keys, start, stop), without(values, start, stop)) for keys, values in kept)
        with torch.inference_mode():
            hidden, _ = self.through(self.embedded(canvas, range(start, stop)), start, None, others)
            found = self.logits(hidden[:, :len(positions)])
        return forecast(found, positions, None, self.weights.ids)[0]

    def embedded(self, canvas: Canvas, positions: range) -> Tensor:
        """The embeddings [1, n, hidden] of these positions."""
        return self.weights.embedding[torch.tensor([[canvas.tokens[at] for at in positions]],
                                                   device=self.weights.device)]

    def full_logits(self, canvas: Canvas) -> Tensor:
        """Logits [1, area, columns] where every position sees every other one."""
        hidden, _ = self.through(self.embedded(canvas, range(len(canvas))), 0, None, None)
        return self.logits(hidden[:, canvas.area[0] - self.shifted:len(canvas) - self.shifted])

    def causal_logits(self, canvases: Sequence[Canvas], start: int) -> Tensor:
        """Logits [rows, area, columns]; a row's prompt is read once, or taken from the last call."""
        prompts = [self.prompt_rows(canvas.tokens[:start]) for canvas in canvases]
        past = tuple((torch.stack([rows.past[layer][0] for rows in prompts]),
                      torch.stack([rows.past[layer][1] for rows in prompts]))
                     for layer in range(len(self.weights.layers)))
        area = torch.tensor([canvas.answer for canvas in canvases], device=self.weights.device)
        seen = torch.stack([area_sight(canvas) for canvas in canvases]).to(area.device)
        seen = F.pad(seen, (start, 0), value=True)[:, None]
        hidden, _ = self.through(self.weights.embedding[area], start, seen, past)
        return self.logits(torch.cat((torch.stack([rows.last for rows in prompts]), hidden[:, :-1]), 1))

    def prompt_rows(self, prompt: tuple[int, ...]) -> PromptRows:
        """The rows of this prompt, kept for the next call."""
        if prompt not in self.kept:
            while len(self.kept) >= KEPT_PROMPTS:
                self.kept.pop(next(iter(self.kept)))
            size = len(prompt)
            seen = torch.ones(size, size, dtype=torch.bool, device=self.weights.device).tril()
            x = self.weights.embedding[torch.tensor([prompt], device=self.weights.device)]
            hidden, past = self.through(x, 0, seen[None, None], None)
            self.kept[prompt] = PromptRows(tuple((keys[0], values[0]) for keys, values in past), hidden[0, -1:])
        return self.kept[prompt]

    def through(self, x: Tensor, start: int, seen: Tensor | None, past) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """x [rows, new, hidden] after all layers, and the keys and values of all positions by layer.

        The new positions begin at `start`; `seen` [rows, 1, new, all] is None where everything is.
        """
        stop = start + x.shape[1]
        cos, sin = (table[start:] for table in rope_table(self.weights.shape, stop, x.dtype, x.device))
        out = []
        for place, layer in enumerate(self.weights.layers):
            q, k, v = self.heads(x, layer, cos, sin)
            if past is not None:
                k, v = (torch.cat(pair, 2) for pair in zip(past[place], (k, v), strict=True))
            out.append((k, v))
            x = self.after(x, layer, q, k, v, seen)
        return x, out

    def heads(self, x: Tensor, layer: LayerWeights, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries and keys, and values [rows, heads, new, head_dim] of one layer."""
        shape, rows = self.weights.shape, x.shape[:2]
        mixed = layer.qkv(F.rms_norm(x, x.shape[-1:], None, shape.eps).flatten(0, 1))
        q, k, v = mixed.view(*rows, -1, shape.head_dim).transpose(1, 2).split(
            (shape.heads, shape.kv_heads, shape.kv_heads), 1)
        if layer.q_norm is not None:
            q = F.rms_norm(q, q.shape[-1:], layer.q_norm, shape.eps)
            k = F.rms_norm(k, k.shape[-1:], layer.k_norm, shape.eps)
        half = shape.head_dim // 2
        q, k = (turned * cos + turned.roll(half, -1) * sin for turned in (q, k))
        return q, k, v

    def after(self, x: Tensor, layer: LayerWeights, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None) -> Tensor:
        """The rest of a layer. Attention by plain products: a row's result does not depend on the other rows."""
        k, v = (heads.repeat_interleave(self.weights.shape.group, 1) for heads in (k, v))
        scores = q @ k.mT                          # the scale is part of the query's weights
        if seen is not None:
            scores = scores.masked_fill(~seen, -torch.inf)
        read = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        x = x + layer.out(read.flatten(0, 1)).view(x.shape)
        gate, up = layer.gate_up(F.rms_norm(x, x.shape[-1:], None, self.weights.shape.eps).flatten(0, 1)).chunk(2, -1)
        return x + layer.down(F.silu(gate) * up).view(x.shape)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [rows, positions, columns] in single precision at least."""
        found = self.weights.head(self.weights.normed(hidden).flatten(0, 1))
        return found.to(torch.promote_types(found.dtype, torch.float32)).view(*hidden.shape[:2], -1)


def without(heads: Tensor, start: int, stop: int) -> Tensor:
    """Keys or values [rows, heads, positions, d] of all positions but `start` to `stop`."""
    return torch.cat((heads[:, :, :start], heads[:, :, stop:]), 2)


def area_sight(canvas: Canvas) -> Tensor:
    """[area, area] bool, which positions of the area each one sees under `causal` attention."""
    size = len(canvas.area)
    masked = torch.tensor([token == canvas.mask for token in canvas.answer])
    block = torch.arange(size) // (canvas.block or size)
    open_block = torch.zeros(int(block[-1]) + 1, dtype=torch.bool).index_put_((block[masked],), torch.tensor(True))
    last = torch.cat((block[1:] != block[:-1], torch.tensor([True])))
    ahead = (block[:, None] == block) & open_block[block] & ~(last & masked)
    return torch.ones(size, size, dtype=torch.bool).tril() | ahead


def text_canvas(prompt: Sequence[int], length: int, mask: int, block: int) -> Canvas:
    """A prompt followed by `length` masks, filled in blocks."""
    return Canvas((*prompt, *(mask,) * length), mask, tuple(range(len(prompt), len(prompt) + length)), block)


def pretrained_canvas_model(model: Pretrained, end: Sequence[int] = ()) -> TextCanvasModel:
    """Dream, with its shift, or LLaDA, without, as a model of canvases; its weights are shared."""
    return TextCanvasModel(model.weights, model.mask, model.family.shifted, FULL, tuple(end))
