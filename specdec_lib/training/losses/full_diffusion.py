"""The loss of a fully bidirectional diffusion model: whole answers, masked at random.

A rate t is drawn for each text, and each token of its answer is hidden with that probability; prompts are never hidden.
The row before a hidden token predicts it, as in the language model it starts from (Dream and DiffuLLaMA keep that
shift), with a cross-entropy of weight 1 / t, clipped (`random_masking.py`). The label is the true token: the target's
distribution does not depend on the tokens behind. Sources: Gong et al. 2025 (DiffuLLaMA, arXiv 2410.17891); Nie
et al. 2025 (LLaDA) for masking answers alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.training.data.batches import Batch
from specdec_lib.training.losses.chunked_head import certain_labels, slot_losses, weighted_loss
from specdec_lib.training.losses.objective import Objective, mean
from specdec_lib.training.losses.random_masking import MOST, hidden_weights, hide_tokens, mask_rates
from specdec_lib.training.nets.base import normed
from specdec_lib.training.nets.decoder_layer import scaled

RATES = (0.25, 0.5, 0.75, 1.0)                     # of masking, at which held-out answers are filled in
QUARTERS = 4                                       # of the rates, by which a step reports its results


class Hidden(NamedTuple):
    """Which tokens of each text are hidden [B, S], at which rate [B], and which columns each row sees [B, 1, S, S]."""

    masked: Tensor
    rates: Tensor
    seen: Tensor


class TrainedRows(NamedTuple):
    """Rows [B, S] whose next token is hidden, rows whose next token can be learned, and its column [B, S]."""

    rows: Tensor
    learnable: Tensor
    columns: Tensor


def draw_hidden(batch: Batch, anneal: int = 0) -> Hidden:
    """The hidden tokens and seen columns of a step, from the batch's seed; `anneal` steps open the columns behind."""
    dice, device = torch.Generator().manual_seed(batch.seed), batch.tokens.device
    t = mask_rates((len(batch.tokens),), dice)
    masked = hide_tokens(t, batch.tokens.shape[1], dice).to(device) & batch.drafted(0)
    return Hidden(masked, t.to(device), visible_columns(batch, 1.0 if anneal < 1 else (batch.step + 1) / anneal, dice))


def visible_columns(batch: Batch, share: float, dice: torch.Generator | None = None) -> Tensor:
    """[B, 1, S, S] bool, which columns each row sees: itself, all before it and this share of those behind, no padding.

    A random share that grows to one over the first steps is DiffuLLaMA's annealing for smaller models; its larger
    models see everything from the start.
    """
    size, device = batch.tokens.shape[1], batch.tokens.device
    seen = torch.ones(size, size, dtype=torch.bool, device=device)
    if share < 1:
        seen = seen.tril() | (torch.rand(size, size, generator=dice) < share).to(device)
    real = torch.arange(size, device=device) < batch.stop[:, None]
    return seen & real[:, None, None]


def streams(drafter, tokens: Tensor, masked: Tensor, seen: Tensor) -> Tensor:
    """Normed hidden states [B, S, hidden] of texts whose masked tokens are masks; row t predicts token t + 1."""
    eps, group = drafter.shape.eps, drafter.shape.group
    x = torch.where(masked[..., None], drafter.mask, drafter.frozen.embed(tokens))
    for layer in drafter.layers:
        q, k, v = layer.heads(scaled(x, eps), *drafter.frozen.angles(tokens.shape[1]))
        k, v = (heads.repeat_interleave(group, 1) for heads in (k, v))
        x = layer.rest(x, F.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=1.0))
    return normed(x, drafter.norm, eps)


def masked_rows(drafter, batch: Batch, masked: Tensor) -> TrainedRows:
    """Which rows of these texts are trained, and on which columns."""
    columns = drafter.frozen.columns[batch.later(batch.tokens, 1)]
    learnable = batch.drafted(1) & (columns >= 0)
    return TrainedRows(batch.later(masked, 1) & learnable, learnable, columns)


def full_diffusion_loss(drafter, batch: Batch, objective: Objective) -> tuple[Tensor, dict[str, list[float]]]:
    """The loss per text, and for each quarter of the masking rates the mean loss and the share of correct tokens."""
    drawn = draw_hidden(batch, drafter.anneal)
    ask = masked_rows(drafter, batch, drawn.masked)
    weight = hidden_weights(ask.rows, drawn.rates, ask.learnable, MOST) / len(batch.tokens)
    x, columns = streams(drafter, batch.tokens, drawn.masked, drawn.seen)[ask.rows], ask.columns[ask.rows]
    total, slots = weighted_loss(x, drafter.frozen.rows, certain_labels(columns), weight[ask.rows], objective.slot)
    quarter = (drawn.rates * QUARTERS).long().clamp(max=QUARTERS - 1)[:, None].expand_as(ask.rows)[ask.rows]
    right = (slots.best == columns).float()
    return total, {name: [mean(values[quarter == k]) for k in range(QUARTERS)]
                   for name, values in (("loss", slots.loss), ("right", right))}


def fill_quality(drafter, batches: Iterable[tuple[Batch, object]]) -> dict:
    """Hidden tokens of held-out answers at each of `RATES`: nats a token, share filled correctly in one step, counts.

    All rows see each other, and every model measured on these batches gets the same masks.
    """
    sums = torch.zeros(3, len(RATES), dtype=torch.float64)
    fast = drafter.frozen.rows.dtype != torch.float32
    for place, (batch, _) in enumerate(batches):
        seen, dice = visible_columns(batch, 1.0), torch.Generator().manual_seed(place)
        for k, rate in enumerate(RATES):
            t = torch.full((len(batch.tokens),), rate)
            masked = hide_tokens(t, batch.tokens.shape[1], dice).to(seen.device) & batch.drafted(0)
            ask = masked_rows(drafter, batch, masked)
            with torch.no_grad(), torch.autocast(seen.device.type, torch.bfloat16, enabled=fast):
                x = streams(drafter, batch.tokens, masked, seen)[ask.rows]
            columns = ask.columns[ask.rows]
            found = slot_losses(x, drafter.frozen.rows, certain_labels(columns))
            sums[:, k] += torch.tensor([float(found.loss.sum()), float((found.best == columns).sum()), len(columns)])
    loss, right, count = sums
    return {"rates": list(RATES), "nats_per_token": (loss / count.clamp(min=1)).tolist(),
            "right": (right / count.clamp(min=1)).tolist(), "tokens": count.int().tolist()}
