"""Keyed random numbers for images: the same seed, image, position and purpose always give the same numbers.

So an image does not depend on the batch it is in, plain and speculative decoding can start from the same noise, and
target and draft can share the noise of a denoising chain or not. A drafted token that is cut off before it is tested
leaves its numbers unused: nothing that was kept depends on them, so the position may take them again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_lib.continuous.digits import DIM, PATCHES

DRAFT, TARGET = "draft", "target"                  # whose noise: an aligned target takes the draft's


@dataclass(frozen=True)
class ImageNoise:
    """The numbers of some images: `normals [n, 16, draws, 4]`, `picks [n, 16]` and `coins [n, 16]`."""

    normals: Tensor
    picks: Tensor
    coins: Tensor


def generator(*key) -> torch.Generator:
    """A generator that this key alone determines."""
    digest = hashlib.sha256("|".join(map(str, key)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def image_noise(seed: int, images: Tensor, draws: int, whose: str = DRAFT) -> ImageNoise:
    """The numbers of these images, by their numbers [n]."""
    parts = []
    for image in images.tolist():
        dice = generator(seed, image, whose)
        parts.append((torch.rand(2, PATCHES, generator=dice), torch.randn(PATCHES, draws, DIM, generator=dice)))
    uniform = torch.stack([part[0] for part in parts])
    return ImageNoise(torch.stack([part[1] for part in parts]), uniform[:, 0], uniform[:, 1])


def proposals(seed: int, images: Tensor, positions: Tensor, start: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers for the residual proposals from `start` on: normals [m, count, 4], picks and coins [m, count]."""
    normals, uniform = [], []
    for image, position in zip(images.tolist(), positions.tolist(), strict=True):
        dice = generator(seed, image, "residual", position, start)
        normals.append(torch.randn(count, DIM, generator=dice))
        uniform.append(torch.rand(2, count, generator=dice))
    both = torch.stack(uniform)
    return torch.stack(normals), both[:, 0], both[:, 1]
