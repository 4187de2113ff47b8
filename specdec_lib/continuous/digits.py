"""The 8 x 8 digits: images as 16 real tokens of 4 pixels each, and back.

Data: 1,797 images of handwritten digits (Alpaydin and Kaynak 1998, UCI), the file that scikit-learn ships. Pixels are
whole numbers from 0 to 16, so a density of them would be infinite: Gaussian noise of half a level is added.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from specdec_lib.files import file_sha256
from specdec_lib.types import Refusal

SHIPPED = Path(__file__).parents[2] / "data" / "digits" / "digits.csv.gz"
SHA256 = "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"
SIDE, PATCH = 8, 2                                 # pixels of an image and of a patch, each way
PATCHES, DIM = (SIDE // PATCH) ** 2, PATCH ** 2    # tokens of an image and numbers of a token
CLASSES, BRIGHTEST = 10, 16
NOISE = 0.5                                        # of the noise that is added, in levels
HELD = 5                                           # every fifth image is held out


class Digits(NamedTuple):
    """Images [n, 8, 8] with levels 0 to 16 as float32, and their classes [n]."""

    images: Tensor
    labels: Tensor

    def part(self, held: bool) -> Digits:
        """The held-out images, or all others."""
        chosen = (torch.arange(len(self.labels)) % HELD == 0) == held
        return Digits(self.images[chosen], self.labels[chosen])


def load_digits(path: Path = SHIPPED) -> Digits:
    """All images; Refusal where the file is missing or is not the one that scikit-learn ships."""
    if not path.is_file() or file_sha256(path) != SHA256:
        raise Refusal(f"{path} is missing or damaged: copy it again from the repository")
    with gzip.open(path, "rt") as lines:
        rows = np.loadtxt(lines, delimiter=",", dtype=np.float32)
    return Digits(torch.from_numpy(rows[:, :-1]).reshape(-1, SIDE, SIDE), torch.from_numpy(rows[:, -1]).long())


def tokens_of(images: Tensor) -> Tensor:
    """Tokens [n, 16, 4] of images [n, 8, 8], row by row; level 0 is -1 and level 16 is 1."""
    n, half = len(images), SIDE // PATCH
    cut = images.reshape(n, half, PATCH, half, PATCH).transpose(2, 3)
    return cut.reshape(n, PATCHES, DIM) / (BRIGHTEST / 2) - 1


def images_of(tokens: Tensor) -> Tensor:
    """Images [n, 8, 8] of tokens [n, 16, 4], in levels; not rounded and not clamped."""
    n, half = len(tokens), SIDE // PATCH
    cut = tokens.reshape(n, half, half, PATCH, PATCH).transpose(2, 3)
    return (cut.reshape(n, SIDE, SIDE) + 1) * (BRIGHTEST / 2)


def with_noise(images: Tensor, dice: torch.Generator) -> Tensor:
    """The images with Gaussian noise of half a level: a continuous variable, whose density is finite."""
    return images + NOISE * torch.randn(images.shape, generator=dice)


def classes(count: int) -> Tensor:
    """Classes for `count` images, each as often as the others: 0, 1, ..., 9, 0, ..."""
    return torch.arange(count) % CLASSES
