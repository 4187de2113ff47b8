"""Drafters multiply the very codes that their checkpoint stores, where a CPU computes in bfloat16, and only there."""

import pytest
import torch

from specdec_lib.checkpoints.quantize import pack, unpack
from specdec_lib.heads import drafter_linear as drafters
from specdec_lib.heads.draft_lm import draft_lm_weights
from specdec_lib.heads.eagle import EagleHead
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.four_bit_linear import FourBitLinear, compiled_with
from specdec_lib.models.llama.group_codes import q8_0
from specdec_lib.types import Draft
from tests.models.llama.test_four_bit_weights import SHAPE
from tests.worlds import random_diffusion, random_eagle

IDS = tuple(range(0, SHAPE.vocab, 2))
CPU = torch.device("cpu")


def stored(seed: int, out: int, into: int, scheme: str = "int8/64") -> torch.Tensor:
    """A matrix as a checkpoint gives it back."""
    matrix = torch.randn(out, into, generator=torch.Generator().manual_seed(seed)) * into ** -0.5
    return unpack(*pack({"w": matrix}, {"w": scheme}))["w"]


@pytest.mark.parametrize("size", [(7, 64), (33, 192), (576, 1728)])
def test_a_matrix_that_was_stored_in_codes_is_found_bit_for_bit(size):
    weight = stored(1, *size)
    codes = drafters.stored_codes(weight)
    assert codes.own
    assert codes.bits == 8
    assert torch.equal(codes.dense(), weight)
    assert torch.equal(FourBitLinear(codes).dense(torch.float32), weight)


@pytest.mark.parametrize("scheme", ["int8/128", "int4/32", "float16"])
def test_any_other_matrix_is_rounded_to_codes(scheme):
    weight = stored(2, 20, 128, scheme)
    error = (drafters.stored_codes(weight).dense() - weight).norm() / weight.norm()
    assert error < 0.01
    narrow = stored(3, 20, 96)                     # its last group of 64 is cut
    assert (drafters.stored_codes(narrow).dense() - narrow).norm() / narrow.norm() < 0.01


def test_codes_are_for_bfloat16_on_a_cpu_with_a_compiler(monkeypatch):
    assert drafters.uses_codes(CPU, torch.bfloat16) == (compiled_with() is not None)
    assert not drafters.uses_codes(CPU, torch.float32)
    assert not drafters.uses_codes(torch.device("cuda"), torch.bfloat16)
    monkeypatch.setattr(drafters, "compiled_with", lambda: None)
    assert not drafters.uses_codes(CPU, torch.bfloat16)
    target = Transformer.random(SHAPE, dtype=torch.bfloat16).weights
    assert not isinstance(drafters.drafter_linear(stored(4, 8, 64), target), FourBitLinear)


def test_a_code_with_its_share_of_a_scale_takes_eight_and_a_half_bits():
    narrow, wide = (Transformer.random(SHAPE, dtype=dtype).weights for dtype in (torch.bfloat16, torch.float32))
    assert drafters.drafter_size(narrow) == (8.5 / 16 if compiled_with() else 1)
    assert drafters.drafter_size(wide) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
def test_a_draft_model_of_the_target_s_dtype_scores_as_in_single_precision(dtype, words):
    state = random_diffusion(SHAPE, IDS, seed=3).state
    target = Transformer.random(SHAPE, seed=1, dtype=dtype)
    small = draft_lm_weights(state, target.weights)
    coded = isinstance(small.layers[0].qkv, FourBitLinear)
    assert coded == (small.layers[0].fused is not None and dtype == torch.bfloat16) == drafters.uses_codes(CPU, dtype)
    wide = Transformer.random(SHAPE, seed=1, dtype=torch.float64)
    want = Transformer(draft_lm_weights(state, wide.weights))(words(9), Draft((3, 5), (-1, 0))).logits
    found = Transformer(small)(words(9), Draft((3, 5), (-1, 0))).logits
    assert (found.double() - want).abs().max() < (0.05 if dtype == torch.bfloat16 else 1e-4) * want.abs().max()


def test_a_row_of_a_head_in_codes_has_the_same_bits_with_a_chain_behind_it(words):
    target, state = Transformer.random(SHAPE, seed=2, dtype=torch.bfloat16), random_eagle(SHAPE, (0, 2, 3), IDS).state
    chain = EagleHead(state, (0, 2, 3), target.fresh())(words(12), Draft((1, 2, 3), (-1, 0, 1)))
    one = EagleHead(state, (0, 2, 3), target.fresh())(words(12), Draft())
    assert torch.equal(chain.logits[:1], one.logits)


def test_the_output_rows_are_the_codes_of_a_target_that_has_some():
    target = Transformer.random(SHAPE, seed=5, dtype=torch.bfloat16).weights
    ids = torch.tensor(IDS)
    rows = target.embedding if SHAPE.tied else target.head.dense()
    found = drafters.output_rows(target, ids)
    if isinstance(found, FourBitLinear):
        assert torch.equal(found.dense(torch.float32), q8_0(rows[ids]).dense())
