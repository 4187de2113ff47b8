"""Weights as codes of 4 or 8 bits in groups of 32 inputs: w = d q + m, the layouts Q4_0, Q4_1 and Q8_0 of a GGUF.

A checkpoint that was converted from such a GGUF in float32 still holds its codes: `codes_of` finds them, and the test
is that d q + m gives every weight back bit for bit. Other weights are rounded to codes, which makes another model.
Codes of other layouts (K-quants) are not found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

GROUP = 32
TRIED = 64                                         # output rows that a layout is tried on before all others


class GroupCodes(NamedTuple):
    """A matrix [out, in] in codes."""

    codes: Tensor                                  # [out, in], uint8 from 0 to 15 or int8
    scale: Tensor                                  # d [out, groups], float16
    minimum: Tensor | None                         # m [out, groups], float16; None = 0
    bits: int                                      # 4 or 8
    own: bool                                      # whether these are the very weights that were given

    def dense(self) -> Tensor:
        """The weights d q + m [out, in] in float32."""
        out, into = self.codes.shape
        scale, minimum = (None if part is None else part.float().repeat_interleave(GROUP, 1)[:, :into]
                          for part in (self.scale, self.minimum))
        assert scale is not None
        weight = self.codes.float() * scale        # exact: 11 bits times 8
        return weight if minimum is None else weight + minimum

    def rows(self, ids: Tensor) -> GroupCodes:
        """The codes of these outputs."""
        return self._replace(codes=self.codes[ids], scale=self.scale[ids],
                             minimum=None if self.minimum is None else self.minimum[ids])


def codes_of(weight: Tensor, bits: int = 4) -> GroupCodes:
    """The checkpoint's own codes of weight [out, in] where it holds some, else the weights rounded to `bits` bits."""
    for fit in (q4_1, q4_0, q8_0) if weight.dtype == torch.float32 and weight.shape[1] % GROUP == 0 else ():
        if gives_back(fit(weight[:TRIED]), weight[:TRIED]) and gives_back(found := fit(weight), weight):
            return found._replace(own=True)
    return (q4_1 if bits == 4 else q8_0)(weight)


def gives_back(found: GroupCodes, weight: Tensor) -> bool:
    """Whether the codes are these weights, bit for bit."""
    return torch.equal(found.dense(), weight)


def q4_1(weight: Tensor) -> GroupCodes:
    """Sixteen steps from the least of a group to the largest: where codes were made so, each group has 0 and 15."""
    groups = grouped(weight)
    least, most = groups.aminmax(dim=-1)
    scale, minimum = ((most - least) / 15).half(), least.half()
    return GroupCodes(nearest(groups, scale, minimum, 0, 15)[:, :weight.shape[1]].to(torch.uint8), scale, minimum, 4,
                      False)


def q4_0(weight: Tensor) -> GroupCodes:
    """d (q - 8), where code 0 is the weight of the largest size, of either sign."""
    groups = grouped(weight)
    largest = groups.gather(-1, groups.abs().argmax(-1, keepdim=True))[..., 0]
    scale = (largest / -8).half()
    minimum = scale * -8
    return GroupCodes(nearest(groups, scale, minimum, 0, 15)[:, :weight.shape[1]].to(torch.uint8), scale, minimum, 4,
                      False)


def q8_0(weight: Tensor) -> GroupCodes:
    """d q with q from -127 to 127."""
    groups = grouped(weight)
    scale = (groups.abs().amax(-1) / 127).half()
    return GroupCodes(nearest(groups, scale, torch.zeros_like(scale), -127, 127)[:, :weight.shape[1]].to(torch.int8),
                      scale, None, 8, False)


def grouped(weight: Tensor) -> Tensor:
    """Groups [out, groups, GROUP] in float32; the last weight of a row fills its last group."""
    weight = weight.float()
    short = -weight.shape[1] % GROUP
    if short:
        weight = F.pad(weight[:, None], (0, short), mode="replicate")[:, 0]
    return weight.view(len(weight), -1, GROUP)


def nearest(groups: Tensor, scale: Tensor, minimum: Tensor, low: int, high: int) -> Tensor:
    """The codes [out, in] that come closest to these groups."""
    d = scale.float()[..., None]
    codes = (groups - minimum.float()[..., None]) / torch.where(d == 0, 1, d)
    return codes.round_().clamp_(low, high).nan_to_num_().flatten(1)


def joined(parts: Sequence[GroupCodes]) -> GroupCodes:
    """Matrices of the same inputs, one below the other; with different layouts, in the wider one."""
    bits, some = max(part.bits for part in parts), any(part.minimum is not None for part in parts)
    minima = [torch.zeros_like(part.scale) if part.minimum is None else part.minimum for part in parts]
    return GroupCodes(torch.cat([part.codes.to(torch.uint8 if bits == 4 else torch.int8) for part in parts]),
                      torch.cat([part.scale for part in parts]), torch.cat(minima) if some else None, bits,
                      all(part.own for part in parts))
