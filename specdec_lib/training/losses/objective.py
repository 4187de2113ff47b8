"""The objective of a batch: every slot that can be learned, its loss, and the weight of its depth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from specdec_lib.training.data.batches import Batch
from specdec_lib.training.losses.chunked_head import DISTRIBUTION, LABELS, TeacherRows, slot_losses, weighted_loss
from specdec_lib.training.losses.distillation import DEPTH_WEIGHTS, SLOT_LOSSES, dpace_weights
from specdec_lib.training.nets.base import TrainableDrafter


@dataclass(frozen=True)
class Objective:
    """The loss of a slot and the weights of depths; see `distillation.py`."""

    slot: str = "ce"                               # ce, tv or mixed
    depth: str = "decay"                           # decay, dpace or streak
    smooth: float | None = None                    # for dpace and streak; None: 0.5 for dpace, 0 for streak
    labels: str = DISTRIBUTION                     # the target's at the slot, or token: the text's own token

    def __post_init__(self):
        if self.slot not in SLOT_LOSSES or self.depth not in DEPTH_WEIGHTS:
            raise ValueError(f"there is no loss {self.slot!r} with weights {self.depth!r}: take one of "
                             f"{', '.join(SLOT_LOSSES)} and one of {', '.join(DEPTH_WEIGHTS)}")
        if self.labels not in LABELS:
            raise ValueError(f"there are no labels {self.labels!r}: take {' or '.join(LABELS)}")
        if self.smooth is not None and (self.depth == "decay" or not 0 <= self.smooth < 1):
            raise ValueError(f"dpace and streak are smoothed by a share from 0 to below 1, got {self.smooth} for "
                             f"{self.depth}")

    def by_depth(self, probs: Tensor) -> Tensor:
        """The weights of slots whose labels have these probabilities [depth, n].

        D-PACE is the streak of smoothed probabilities, so with the same `smooth` both are equal.
        """
        return DEPTH_WEIGHTS[self.depth](probs) if self.smooth is None else dpace_weights(probs, self.smooth)

    def __call__(self, drafter: TrainableDrafter, batch: Batch) -> tuple[Tensor, dict[str, list[float]]]:
        """The loss per anchor, and per entry of `slots` the mean loss and the share of slots whose best token is right.

        If the drafter has `loss(batch, objective)`, this calls it instead.
        """
        own_loss = getattr(drafter, "loss", None)
        if own_loss is not None:
            return own_loss(batch, self)
        streams = drafter.slots(batch)
        parts = [slot_labels(drafter, batch, k if drafter.unrolled else 0, self.labels) for k in range(len(streams))]
        weights = self.weights(drafter, streams, parts)
        total, anchors = 0.0, max(1, int(parts[0][0].sum()))
        told: dict[str, list[float]] = {"loss": [], "right": []}
        for x, (chosen, dist), weight in zip(streams, parts, weights, strict=True):
            part, slots = weighted_loss(x.flatten(0, 1)[chosen], drafter.frozen.rows, dist, weight[chosen], self.slot)
            total = total + part / anchors
            told["loss"].append(mean(slots.loss))
            told["right"].append(mean((slots.best == dist.columns[:, 0]).float()))
        return cast(Tensor, total), told           # there is at least one stream

    def weights(self, drafter: TrainableDrafter, streams: list[Tensor], parts: list) -> Tensor:
        """One weight for every entry and position [entries, B * S]; independent drafters all have weight one."""
        blank = torch.ones(len(streams), streams[0].shape[:2].numel(), device=streams[0].device)
        if not drafter.unrolled or self.depth == "decay":
            return self.by_depth(blank) if drafter.unrolled else blank
        probs = torch.zeros_like(blank)
        for k, (x, (chosen, dist)) in enumerate(zip(streams, parts, strict=True)):
            probs[k, chosen] = slot_losses(x.flatten(0, 1)[chosen], drafter.frozen.rows, dist).prob
        return self.by_depth(probs)


def slot_labels(drafter: TrainableDrafter, batch: Batch, ahead: int, kind: str) -> tuple[Tensor, TeacherRows]:
    """Where slot `ahead` can be learned [B * S] bool, and its labels there."""
    dist = drafter.frozen.labels(batch, ahead, kind)
    chosen = batch.drafted(1 + ahead).flatten() & dist.covered
    return chosen, TeacherRows(*(part[chosen] for part in dist))


def mean(values: Tensor) -> float:
    return float(values.mean()) if len(values) else 0.0
