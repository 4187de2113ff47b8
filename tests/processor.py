"""What is known of this processor's kernels, for tests of what rests on them."""

import torch

from specdec_lib.models.llama.compiled import ON_ARM, processor_flags
from specdec_lib.models.llama.packed_linear import packs_dtype

# Builds of C code with fewer instructions than an x86 processor may have; on ARM there is one build.
NARROWER = {} if ON_ARM else {"products of bfloat16 emulated": ("-mno-avx512bf16",),
                              "vectors of AVX2": ("-mno-avx512f",)}


def torch_keeps_rows() -> bool:
    """Whether torch's kernels give a row of bfloat16 the same bits among others.

    With AMX a sum over values depends on the rows beside it.
    """
    return packs_dtype(torch.bfloat16) and "amx_tile" not in processor_flags()
