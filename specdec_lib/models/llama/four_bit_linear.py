"""Linear layers with weights of 4 or 8 bits, in our own C code (`four_bit.c`), for bfloat16 activations on a CPU.

A layer may hold the norm before it: a norm's weight cannot be multiplied into codes, so it multiplies the activations.
`dense` gives the matrix with that norm, as `PackedLinear` holds it. Bits do not depend on other rows by construction.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.models.large_pages import copied
from specdec_lib.models.llama.compiled_linear import (
    ADDRESS,
    INT64,
    PLAIN,
    LinearCode,
    compiled_functions,
    product,
)
from specdec_lib.models.llama.group_codes import GROUP, GroupCodes
from specdec_lib.types import Refusal

SOURCE = Path(__file__).with_name("four_bit.c")
LANES = 16                                         # outputs of a tile
COUNTS = ("out", "in", "bits", "minima")
ADDRESSES = ("codes", "scales", "norm", "factor", "bias")


class CodesRecord(ctypes.Structure):
    """`Matrix` of the C code."""

    _fields_ = [*((name, INT64) for name in COUNTS), *((name, ADDRESS) for name in ADDRESSES)]


class FourBitLinear:
    """y = W (norm x) + b for x [n, in] in bfloat16, with W [out, in] in codes; its rows are multiplied by `factor`."""

    def __init__(self, codes: GroupCodes, norm: Tensor | None = None, factor: Tensor | None = None,
                 bias: Tensor | None = None, code: LinearCode | None = None):
        self.code = code or compiled_code()
        self.out, self.into = codes.codes.shape
        self.bits, self.own = codes.bits, codes.own
        self.codes, self.scales = (copied(part) for part in (packed_codes(codes), packed_scales(codes)))
        self.norm, self.factor, self.bias = (None if part is None else part.float().contiguous()
                                             for part in (norm, factor, bias))
        self.minima = codes.minimum is not None
        places = (self.codes, self.scales, self.norm, self.factor, self.bias)
        self.record = CodesRecord(self.out, self.into, self.bits, self.minima,
                                   *(None if part is None else part.data_ptr() for part in places))
        self.address = ctypes.addressof(self.record)

    def __call__(self, x: Tensor, eps: float = PLAIN) -> Tensor:
        """y [n, out] in bfloat16; with `eps`, x is divided by its root mean square first."""
        return product(self, x, eps)

    def dense(self, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        """The matrix [out, in] that x is multiplied by, with norm and factor, rounded once."""
        weight = self.unpacked().dense()
        weight = weight if self.factor is None else weight * self.factor[:, None]
        return (weight if self.norm is None else weight * self.norm).to(dtype)

    def rows(self, ids: Tensor) -> FourBitLinear:
        """The same layer with these output rows alone."""
        factor, bias = (None if part is None else part[ids] for part in (self.factor, self.bias))
        return FourBitLinear(self.unpacked().rows(ids), self.norm, factor, bias, self.code)

    def unpacked(self) -> GroupCodes:
        """The codes as they were given."""
        groups = -(-self.into // GROUP)
        kind = torch.uint8 if self.bits == 4 else torch.int8
        codes = unpacked_codes(self.codes, self.bits).to(kind)[:self.out, :self.into]
        scale, *minimum = self.scales.permute(2, 0, 3, 1).reshape(1 + self.minima, -1, groups)[:, :self.out]
        return GroupCodes(codes, scale, minimum[0] if minimum else None, self.bits, self.own)


def compiled_code() -> LinearCode:
    """The compiled functions; Refusal where nothing compiles."""
    code = compiled_with()
    if code is None:
        raise Refusal("--dtype int4 runs in C code that is compiled once, and no C compiler works here: install one,"
                      " such as gcc, or take --dtype bfloat16")
    return code


@cache
def compiled_with(*options: str) -> LinearCode | None:
    """The functions compiled with these options (-DPORTABLE: in plain C); None where nothing compiles."""
    return compiled_functions(SOURCE, options, torch.bfloat16)


def tile_name(code: LinearCode) -> str:
    """The instructions that this code multiplies with."""
    name = code.library.tile_name
    name.argtypes, name.restype = (), ctypes.c_char_p
    return name().decode()


def packed_codes(given: GroupCodes) -> Tensor:
    """Codes [tiles, groups, loads, LANES, 4 bytes], see `four_bit.c`."""
    codes = given.codes.view(torch.uint8)
    codes = F.pad(codes, (0, -codes.shape[1] % GROUP, 0, -codes.shape[0] % LANES))
    codes = codes.view(-1, LANES, codes.shape[1] // GROUP, given.bits, 8 // given.bits, 4)
    parts = [part.permute(0, 2, 3, 1, 4) for part in codes.unbind(4)]
    first = parts[0].contiguous()
    return first ^ 128 if given.bits == 8 else first.add_(parts[1], alpha=16)


def unpacked_codes(packed: Tensor, bits: int) -> Tensor:
    """The codes [outputs with padding, inputs with padding] as bytes."""
    tiles, groups = packed.shape[:2]
    parts = torch.stack((packed & 15, packed >> 4) if bits == 4 else (packed ^ 128,), -2)
    codes = parts.permute(0, 3, 1, 2, 4, 5).reshape(tiles * LANES, groups * GROUP)
    return codes if bits == 4 else codes.view(torch.int8)


def packed_scales(given: GroupCodes) -> Tensor:
    """Scales [tiles, groups, d and m, LANES] in float16."""
    parts = [given.scale] if given.minimum is None else [given.scale, given.minimum]
    padded = [F.pad(part, (0, 0, 0, -len(part) % LANES)) for part in parts]
    return torch.stack(padded).view(len(parts), -1, LANES, padded[0].shape[1]).permute(1, 3, 0, 2).contiguous()
