"""What drafters hand to their C code (`head_rows.h`): products, a vocabulary's rows, and numbers."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

from specdec_lib.heads.draft_vocabulary import DraftVocabulary
from specdec_lib.models.llama.compiled_layers import address_of
from specdec_lib.models.llama.compiled_linear import ADDRESS, INT64, CompiledLinear, LinearCode, no_memory
from specdec_lib.models.llama.packed_linear import PackedLinear
from specdec_lib.models.llama.weights import Linear


class ProductRecord(ctypes.Structure):
    """`Product` of the C code."""

    _fields_ = (("multiply", ADDRESS), ("matrix", ADDRESS), ("out", INT64))


class VocabularyRecord(ctypes.Structure):
    """`Vocabulary` of the C code."""

    _fields_ = (("trained", ProductRecord), ("text", ProductRecord), ("added", INT64), ("size", INT64))


def product_record(layer: CompiledLinear | Linear) -> ProductRecord:
    """This layer, which is compiled, as the C code calls it."""
    assert not isinstance(layer, PackedLinear)     # the caller asked `one_code`
    return ProductRecord(address_of(layer.code.multiply), layer.address, layer.out)


def take_over(record: VocabularyRecord, vocabulary: DraftVocabulary) -> None:
    """Writes the output rows of the text's own tokens into the record."""
    record.added = len(vocabulary.ids) - len(vocabulary.trained)
    record.text = ProductRecord() if vocabulary.head is None else product_record(vocabulary.head)


def one_code(layers: Iterable[Any]) -> LinearCode | None:
    """The compiled code of all these layers; None where one is not compiled, or they differ."""
    codes = {id(code): code for code in (getattr(layer, "code", None) for layer in layers)}
    return next(iter(codes.values())) if len(codes) == 1 else None


def whole_numbers(values: Iterable[int]) -> ctypes.Array:
    """These numbers for the C code."""
    some = tuple(values)
    return (INT64 * len(some))(*some)


def checked(failed: int) -> None:
    """MemoryError where the C code found no memory."""
    if failed:
        raise no_memory()
