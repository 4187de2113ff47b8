"""Quality of generated digits: a small classifier, the Frechet distance in its features, and the energy distance.

The classifier is trained here, on the real images that generation learned from, in about a second. The Frechet
distance (Heusel et al. 2017) is computed in its last hidden layer, so its numbers compare with nothing but each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.continuous.digits import BRIGHTEST, CLASSES, SIDE, Digits, with_noise

HIDDEN, FEATURES = 64, 16


class Classifier(NamedTuple):
    """Weights and biases of three layers; images [n, 8, 8] in levels."""

    layers: tuple[tuple[Tensor, Tensor], ...]

    def features(self, images: Tensor) -> Tensor:
        """The last hidden layer [n, 16]."""
        x = images.reshape(-1, SIDE * SIDE) / BRIGHTEST
        for weight, bias in self.layers[:-1]:
            x = F.linear(x, weight, bias).relu()
        return x

    def logits(self, images: Tensor) -> Tensor:
        return F.linear(self.features(images), *self.layers[-1])

    def right(self, images: Tensor, labels: Tensor) -> Tensor:
        """1 where the image is taken for its class [n], else 0."""
        return (self.logits(images).argmax(-1) == labels).float()


def train_classifier(digits: Digits, steps: int = 400, seed: int = 0) -> Classifier:
    """Trains on these images, with the same noise that generated images have."""
    dice = torch.Generator().manual_seed(seed)
    sizes = (SIDE * SIDE, HIDDEN, FEATURES, CLASSES)
    layers = tuple(((torch.randn(after, before, generator=dice) * (2 / before) ** 0.5).requires_grad_(),
                    torch.zeros(after).requires_grad_()) for before, after in zip(sizes, sizes[1:], strict=False))
    optimiser = torch.optim.Adam([part for layer in layers for part in layer], lr=4e-3)
    for _ in range(steps):
        some = torch.randint(len(digits.labels), (128,), generator=dice)
        loss = F.cross_entropy(Classifier(layers).logits(with_noise(digits.images[some], dice)), digits.labels[some])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return Classifier(tuple((weight.detach(), bias.detach()) for weight, bias in layers))


def frechet_distance(one: Tensor, two: Tensor) -> float:
    """|m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^(1/2)) of features [n, d] (Heusel et al. 2017, equation 6)."""
    one, two = one.double(), two.double()
    first, second = torch.cov(one.T), torch.cov(two.T)
    values, vectors = torch.linalg.eigh(first)
    root = vectors * values.clamp(min=0).sqrt() @ vectors.T
    mixed = torch.linalg.eigvalsh(root @ second @ root).clamp(min=0).sqrt().sum()
    return float((one.mean(0) - two.mean(0)).square().sum() + first.trace() + second.trace() - 2 * mixed)


def interval(values: Tensor, statistic: Callable[[Tensor], float], draws: int = 200, seed: int = 0) -> list[float]:
    """95 % bootstrap interval of a statistic of rows."""
    dice = torch.Generator().manual_seed(seed)
    found = torch.tensor([statistic(values[torch.randint(len(values), (len(values),), generator=dice)])
                          for _ in range(draws)], dtype=torch.float64)
    return [float(x) for x in torch.quantile(found, torch.tensor([0.025, 0.975], dtype=torch.float64))]


class EnergyTest(NamedTuple):
    """The energy distance of two samples, and the share of splits with at least this one, the samples' own included."""

    distance: float
    p_value: float


def energy_test(one: Tensor, two: Tensor, splits: int = 499, seed: int = 0,
                labels: tuple[Tensor, Tensor] | None = None) -> EnergyTest:
    """2 E|X - Y| - E|X - X'| - E|Y - Y'| of samples [n, d] and [m, d], with a permutation test (Szekely 2013).

    `labels` [n] and [m]: rows are exchanged within a class alone. For samples whose class counts were chosen: splits
    across classes would differ in their class counts, which the samples cannot, and the p-value would be too large.
    """
    n, m = len(one), len(two)
    both = torch.cat((one, two)).double()
    apart = torch.cdist(both, both)
    dice = torch.Generator().manual_seed(seed)
    classes = torch.zeros(n + m) if labels is None else torch.cat(labels)
    places = classes.argsort(stable=True)
    orders = torch.arange(n + m).repeat(splits + 1, 1)
    for order in orders[1:]:                       # sorted by class and a random number: a permutation of each class
        order[places] = (classes + torch.rand(n + m, generator=dice, dtype=torch.float64)).argsort()
    sides = torch.full((splits + 1, n + m), -1 / m, dtype=torch.float64)
    sides.scatter_(1, orders[:, :n], 1 / n)
    found = -((sides @ apart) * sides).sum(1)
    return EnergyTest(float(found[0]), float((found >= found[0] * (1 - 1e-12)).double().mean()))


def ks_distance(one: Tensor, two: Tensor) -> float:
    """The largest distance between the distribution functions of two samples [n] and [m] (Kolmogorov, Smirnov)."""
    one, two = one.sort().values, two.sort().values
    places = torch.cat((one, two))
    shares = [torch.searchsorted(side, places, right=True) / len(side) for side in (one, two)]
    return float((shares[0] - shares[1]).abs().max())


def ks_limit(n: int, m: int, alpha: float = 1e-3) -> float:
    """The distance that two samples of one distribution exceed with probability `alpha`, for large samples."""
    return float((-torch.log(torch.tensor(alpha / 2)) / 2 * (n + m) / (n * m)).sqrt())
