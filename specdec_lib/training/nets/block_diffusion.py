"""A block drafter in training: an EAGLE head's row and masks behind it, all of which see the rows before them.

Source: DFlash (arXiv 2602.06036); anchor slot, correction and confidence as in DSpark (arXiv 2607.05147); the first
layer and what it reads from EAGLE-3 (arXiv 2503.01840), whose deeper rows are masks here as in P-EAGLE (arXiv
2602.01469). It starts from a trained EAGLE head: with its other layers' gates at zero, a slot of the anchor alone is
that head's first step. Rows are those of the head: row j joins the target's hidden state of token j with token j + 1,
and the anchor t is in row t - 1, so no slot sees the hidden state from which the target itself predicts the label.

Ours: the correction is a matrix over the target's embedding, `rows(C) . A E[word]`, of a slot's best candidates alone;
DSpark's is of rank 256 over all tokens. And the losses: cross-entropy with the target's distribution, weighted by
0.8^k, plus half that of the corrected distribution; DFlash takes the text's token with weights exp(-k / 4), DSpark 0.1
cross-entropy + 0.9 L1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lib.checkpoints.checkpoint_files import Checkpoint
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.weights import MATRICES, random_weights
from specdec_lib.training.data.batches import Batch
from specdec_lib.training.losses.block_diffusion import best_corrected, block_loss
from specdec_lib.training.losses.block_masks import in_parts
from specdec_lib.training.losses.objective import Objective
from specdec_lib.training.nets.base import Frozen, normed
from specdec_lib.training.nets.decoder_layer import fused_state, kept_tensors, layers_of, load_tensors, scaled
from specdec_lib.training.nets.diffusion_finetune import base_checkpoint
from specdec_lib.training.nets.eagle import copied_start, default_taps, random_start
from specdec_lib.training.nets.lora import GatedLayer, LowRankLayer

VECTORS = ("fc", "norm", "mask", "correction", "confidence")
AT_ONCE = 32                                       # anchors of a sequence whose blocks exist at the same time


class Context(NamedTuple):
    """What blocks read of their texts."""

    features: Tensor                               # [B, S, hidden] of the target's hidden states, through `fc`
    seen: list[tuple[Tensor, Tensor]]              # per layer the keys and values [B, kv_heads, S, d] of all rows

    def of(self, texts: Tensor) -> Context:
        """That of these texts [b] alone."""
        return Context(self.features[texts], [(keys[texts], values[texts]) for keys, values in self.seen])


class BlockDiffusionNet(nn.Module):
    """The drafter in training (see `nets.base.TrainableDrafter`); anchor t drafts tokens t + 1 to t + `block` at once.

    Its first layer starts as that of `head`, an EAGLE head's tensors (by default an untrained one's), the others as the
    target's layers `chosen` behind gates of zero; `rank` is the rank of each matrix's difference from its start.
    """

    unrolled = True

    def __init__(self, target: Transformer, ids: Tensor, taps: tuple[int, ...] = (), chosen: tuple[int, ...] = (),
                 block: int = 8,                   # slots; DSpark 7, DFlash 16 for targets of 4 B and more
                 rank: int = 80,                   # three layers of SmolLM2-135M are 2.1 MB, of 3.5 in all
                 anchors: int = 32,                # blocks of each sequence in a step, drawn again every time
                 candidates: int = 32,             # tokens of a slot that the correction scores
                 correction_weight: float = 0.5,   # weight of the corrected distribution's loss
                 confidence_weight: float = 1.0,   # weight of the confidence's loss (DSpark)
                 head: Mapping[str, Tensor] | None = None, random: bool = False):
        super().__init__()
        shape, h = target.shape, target.shape.hidden
        self.frozen, self.shape, self.levels = Frozen(target, ids), shape, tuple(taps) or default_taps(target.layers)
        self.chosen = chosen or tuple(range(max(0, target.layers - 2), target.layers))
        self.block, self.anchors, self.candidates = block, anchors, min(candidates, len(ids))
        self.correction_weight, self.confidence_weight = correction_weight, confidence_weight
        begun = (random_start(shape, len(self.levels)) if random else
                 copied_start(target, self.levels) if head is None else head)
        source = random_weights(replace(shape, vocab=1), seed=1) if random else target.weights
        self.first = LowRankLayer(shape, {name: begun[name] for name in MATRICES}, rank, seed=len(self.chosen))
        self.layers = nn.ModuleList(GatedLayer(shape, fused_state(source.layers[i], shape.head_dim), rank, i)
                                    for i in self.chosen)
        self.fc, self.norm = (nn.Parameter(begun[name].float().cpu().clone()) for name in ("fc", "norm"))
        self.mask = nn.Parameter(target.weights.embedding.float().mean(0).cpu().repeat(max(1, block - 1), 1))
        self.correction, self.confidence = nn.Parameter(torch.zeros(h, h)), nn.Parameter(torch.zeros(2 * h))
        self.base: dict[str, str] | None = None    # the checkpoint of `head`, by name and checksum

    def loss(self, batch: Batch, objective: Objective) -> tuple[Tensor, dict[str, list[float]]]:
        """The loss per anchor of random blocks of this batch, and figures by slot; see `losses/block_diffusion.py`."""
        return block_loss(self, batch, objective)

    def slots(self, batch: Batch, depth: int | None = None) -> list[Tensor]:
        """Row t of entry k drafts token t + 1 + k, uncorrected. ValueError for more slots than a block has."""
        return self.slots_at(batch, self.block if depth is None else depth, torch.ones_like(batch.tokens) > 0)

    def slots_at(self, batch: Batch, depth: int, anchors: Tensor) -> list[Tensor]:
        """The same at these anchors [B, S] alone, zeros at the others."""
        if depth > self.block:
            raise ValueError(f"a block of {self.block} has no slot {depth}")
        context = self.context(batch)
        out = torch.zeros(*batch.tokens.shape, depth, self.shape.hidden, device=batch.tokens.device)
        for texts, rows, real in in_parts(anchors, AT_ONCE):
            made = self.blocks(batch.tokens[texts], rows, context.of(texts))[:, :, :depth]
            out[texts[:, None].expand_as(rows)[real], rows[real]] = made[real]
        return list(out.unbind(2))

    def proposed(self, x: Tensor, before: Tensor) -> Tensor:
        """The column [n] chosen in slots of hidden states x [n, hidden], given the true tokens `before` [n]."""
        return best_corrected(self, x, before)

    def context(self, batch: Batch) -> Context:
        """The features of these texts, and what the layers see of the row of every token."""
        eps, angles = self.shape.eps, self.frozen.angles(batch.tokens.shape[1])
        streams = [scaled(batch.streams[level], eps) for level in self.levels]
        features = F.linear(torch.cat(streams, -1), self.fc)
        alone = scaled(features, eps)
        pair = torch.cat((scaled(self.frozen.embed(batch.later(batch.tokens, 1)), eps), alone), -1)
        return Context(features, [self.first.keys_values(pair, *angles),
                                  *(layer.keys_values(alone, *angles) for layer in layers_of(self))])

    def blocks(self, tokens: Tensor, anchors: Tensor, context: Context) -> Tensor:
        """Normed hidden states [B, A, block, hidden] of the blocks at these anchors [B, A] of the texts [B, S]."""
        eps, group, size = self.shape.eps, self.shape.group, self.block
        rows = (anchors - 1).clamp(min=0)          # the first token has no feature before it: zeros
        g = context.features.gather(1, rows[..., None].expand(-1, -1, self.shape.hidden)) * (anchors > 0)[..., None]
        g = g[:, :, None].expand(-1, -1, size, -1).flatten(1, 2)
        first = self.frozen.embed(tokens.gather(1, anchors))[:, :, None]
        inputs = torch.cat((first, self.mask[:size - 1].expand(*anchors.shape, -1, -1)), 2).flatten(1, 2)
        places = (rows[..., None] + torch.arange(size, device=rows.device)).flatten(1)
        cos, sin = (table[places][:, None] for table in (self.frozen.cos, self.frozen.sin))
        visible = seen_rows(rows, size, tokens.shape[1])[:, None]
        x, read = g, torch.cat((scaled(inputs, eps), scaled(g, eps)), -1)
        for layer, (keys, values) in zip((self.first, *layers_of(self)), context.seen, strict=True):
            q, k, v = layer.heads(read if layer is self.first else scaled(x, eps), cos, sin)
            k, v = (torch.cat(pair, 2).repeat_interleave(group, 1) for pair in ((keys, k), (values, v)))
            x = layer.rest(x, F.scaled_dot_product_attention(q, k, v, attn_mask=visible, scale=1.0))
        return normed(x, self.norm, eps).unflatten(1, (-1, size))

    def take(self, state: Mapping[str, Tensor]) -> None:
        """Takes over trained tensors, as `state` gives them."""
        load_tensors(self, VECTORS, state)
        for name in MATRICES:
            self.first.take(name, state[name])
        with torch.no_grad():
            for i, layer in enumerate(gated_layers(self)):
                for name, gate in layer.gates.items():
                    gate.copy_(state[f"gates.{i}.{name}"])

    def state(self) -> dict[str, Tensor]:
        first = {name: getattr(self.first, name).detach() for name in MATRICES}
        gates = {f"gates.{i}.{name}": gate.detach() for i, layer in enumerate(gated_layers(self))
                 for name, gate in layer.gates.items()}
        return kept_tensors(self, VECTORS) | first | gates | {"ids": self.frozen.ids}

    def meta(self) -> dict:
        return {"taps": list(self.levels), "layers": list(self.chosen), "block": self.block,
                "candidates": self.candidates} | ({"base": self.base} if self.base else {})


def block_drafter(target: Transformer, ids: Tensor, random: bool = False, base: Checkpoint | None = None
                  ) -> BlockDiffusionNet:
    """The drafter that starts from the EAGLE head `base`; taps and vocabulary are that one's, so `ids` is not used."""
    head = base_checkpoint(base)
    net = BlockDiffusionNet(target, head.state["ids"], tuple(head.meta["taps"]), head=head.state, random=random)
    net.base = {"name": head.name, "sha256": head.card.get("sha256", "")}                # "": not stored yet
    return net


def gated_layers(net: BlockDiffusionNet) -> Iterable[GatedLayer]:
    """Its layers behind the first, which a ModuleList does not say the kind of."""
    return cast(Iterable[GatedLayer], net.layers)


def seen_rows(rows: Tensor, size: int, context: int) -> Tensor:
    """[B, A * size, context + A * size]: a slot sees the rows before its block's first and all slots of its block."""
    at = rows.repeat_interleave(size, 1)
    block = torch.arange(at.shape[1], device=at.device) // size
    before = torch.arange(context, device=at.device) < at[..., None]
    return torch.cat((before, (block == block[:, None]).expand(len(at), -1, -1)), -1)
