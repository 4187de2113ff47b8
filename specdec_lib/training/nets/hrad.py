"""H-RAD in training: its network, the weights of its classes, and the figures of a classifier beside the majority.

Source: SpecBranch (arXiv 2506.01979); how the paper weighs its classes is not known to us, so by default they are not.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdec_lib.heads.hrad import CLASSES, LAYERS, class_scores
from specdec_lib.training.data.pending_drafts import PendingDrafts

ROWS = 4096                                        # classified at a time


class HradNet(nn.Module):
    """The network of `heads.hrad` over the states of `levels` layers, trained on a frozen `embedding` [V, hidden]."""

    embedding: Tensor                              # a buffer

    def __init__(self, embedding: Tensor, eps: float, levels: int, wide: int, narrow: int, dropout: float = 0.0,
                 seed: int = 0):
        super().__init__()
        self.eps, self.dropout = eps, dropout
        self.register_buffer("embedding", embedding, persistent=False)
        dice = torch.Generator().manual_seed(seed)
        sizes = (levels + 1) * embedding.shape[1], wide, narrow, len(CLASSES)
        self.weight = nn.ParameterDict({layer: torch.randn(after, before, generator=dice) * (2 / before) ** 0.5
                                        for layer, before, after in zip(LAYERS, sizes, sizes[1:], strict=False)})
        self.bias = nn.ParameterDict({layer: torch.zeros(size) for layer, size in zip(LAYERS, sizes[1:], strict=True)})

    def forward(self, tokens: Tensor, states: Tensor, dice: torch.Generator | None = None) -> Tensor:
        """Scores [n, 3]; with `dice`, of a training step, whose dropout they alone decide."""
        return class_scores(self.embedding[tokens], states, [self.weight[layer] for layer in LAYERS],
                            [self.bias[layer] for layer in LAYERS], self.eps, self.drop_with(dice))

    def drop_with(self, dice: torch.Generator | None):
        """Zeroes a share of its argument and scales the rest, so that the mean stays; nothing without dice."""
        if dice is None or not self.dropout:
            return lambda x: x
        kept = 1 - self.dropout
        return lambda x: x * torch.empty(x.shape).bernoulli_(kept, generator=dice).to(x.device) / kept

    def state(self) -> dict[str, Tensor]:
        """The tensors under the names of a checkpoint."""
        return {f"{layer}.{kind}": values[layer].detach() for layer in LAYERS
                for kind, values in (("weight", self.weight), ("bias", self.bias))}

    def take(self, state: Mapping[str, Tensor]) -> None:
        """Copies tensors as `state` gives them into the parameters."""
        with torch.no_grad():
            for layer in LAYERS:
                self.weight[layer].copy_(state[f"{layer}.weight"])
                self.bias[layer].copy_(state[f"{layer}.bias"])


def class_weights(labels: Tensor, balance: float) -> Tensor:
    """Loss weights [3]: frequency to the power of -`balance`, scaled so that their mean over the examples is 1.

    `balance` 0 weighs every example alike, 1 every class. A class without examples has weight 0.
    """
    counts = torch.bincount(labels, minlength=len(CLASSES)).double()
    raw = torch.where(counts > 0, counts.clamp(min=1) ** -balance, 0.0)
    return (raw * counts.sum() / (raw * counts).sum()).float()


def class_loss(model: HradNet, train: PendingDrafts, rows: Tensor, labels: Tensor, weights: Tensor,
               dice: torch.Generator) -> Tensor:
    """The mean weighted cross-entropy of these rows."""
    device = model.embedding.device
    scores = model(train.tokens[rows].to(device), train.states[rows].to(device), dice)
    wanted = labels[rows].to(device)
    return (F.cross_entropy(scores, wanted, reduction="none") * weights.to(device)[wanted]).mean()


def classify(model: HradNet, drafts: PendingDrafts) -> Tensor:
    """The likeliest class [n] of each draft."""
    device = model.embedding.device
    with torch.no_grad():
        parts = [model(drafts.tokens[some].to(device), drafts.states[some].to(device)).argmax(-1).cpu()
                 for some in torch.arange(len(drafts)).split(ROWS)]
    return torch.cat(parts)


def class_figures(predicted: Tensor, labels: Tensor) -> dict:
    """Accuracy, and for each true class how often each class was predicted for it; both [n], n at least 1."""
    table = [[int(((labels == true) & (predicted == said)).sum()) for said in range(len(CLASSES))]
             for true in range(len(CLASSES))]
    sizes = [sum(row) for row in table]
    return {"positions": len(labels), "accuracy": round(sum(table[c][c] for c in range(len(CLASSES))) / len(labels), 4),
            "recall": {name: round(row[c] / size, 4) if size else None
                       for c, (name, row, size) in enumerate(zip(CLASSES, table, sizes, strict=True))},
            "predicted as none, some, all": dict(zip(CLASSES, table, strict=True))}


def paired_counts(one: Tensor, other: Tensor, labels: Tensor) -> dict[str, int]:
    """Where only one of two predictions [n] is right: the counts of a paired comparison."""
    first, second = one == labels, other == labels
    return {"it alone is right": int((first & ~second).sum()), "the other alone is right": int((second & ~first).sum())}
