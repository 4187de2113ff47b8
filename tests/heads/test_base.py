"""Trained drafters beside a target in 4 bits multiply 8-bit codes on every processor, and change no id."""

from dataclasses import replace

import pytest
import torch

from specdec_lib import catalog
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.heads import base, block_diffusion, diffusion, draft_lm, eagle, exits
from specdec_lib.loop import decode
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.llama.four_bit_linear import FourBitLinear
from specdec_lib.models.llama.four_bit_weights import fuse_four_bit
from specdec_lib.models.llama.weights import MATRICES
from tests.models.llama.test_four_bit_weights import SHAPE, random_tensors
from tests.worlds import random_block_diffusion, random_diffusion, random_eagle, random_exits, random_lengths

IDS = tuple(range(0, SHAPE.vocab, 2))              # that the drafters know
TEXT = tuple(i * 7 % SHAPE.vocab for i in range(40))


@pytest.fixture(scope="module", params=[torch.bfloat16, torch.float32], ids=["bf16 kernels", "none"])
def world(request):
    """A kit on a random target in 4 bits, on a processor with bfloat16 kernels or without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "default_dtype", lambda device: request.param)
        target = Transformer(fuse_four_bit(SHAPE, random_tensors))
        heads = {"eagle": random_eagle(SHAPE, (0, 2, 3), IDS), "early-exit": random_exits(SHAPE, (1, 2), IDS),
                 "block-diffusion": random_block_diffusion(SHAPE, (0, 1, 2), IDS),
                 "diffusion-lm": random_diffusion(SHAPE, IDS), "draft-lm": random_diffusion(SHAPE, IDS, seed=8),
                 "length-predictor": random_lengths(SHAPE, ("eagle",))}
        small = Transformer(draft_lm.PACKED(heads["draft-lm"], target.weights))
        yield Kit(target, TokenizerFacts(vocab=SHAPE.vocab), nodes=6, draft=small, checkpoints=heads,
                  parts=catalog.make_part)


def test_every_network_multiplies_codes_and_has_the_targets_numbers(world):
    kit = world
    lm, heads = kit.target.fresh(), kit.checkpoints
    head, block = eagle.eagle_head(heads["eagle"], lm), block_diffusion.block_head(heads["block-diffusion"], lm)
    slots = diffusion.diffusion_lm(heads["diffusion-lm"], lm.weights)
    early = exits.PACKED(heads["early-exit"], lm.weights)[1]
    assert {kit.target.dtype, kit.draft.dtype, slots.model.dtype, head.cache.kv.dtype,
            block.cache.kv.dtype, early.norm.dtype} == {torch.bfloat16}
    assert block.rope[0].dtype == (torch.bfloat16 if block.attention is None else torch.float32)
    assert head.embedding is block.embedding is lm.weights.embedding
    assert torch.equal(early.head.dense(), lm.weights.head.dense()[list(IDS)])
    layers = [*kit.draft.weights.layers, *slots.model.weights.layers, *block.weights.layers, head.weights.layer]
    matrices = [getattr(layer, name) for layer in layers for name in MATRICES]
    others = [head.weights.fc, block.weights.fc, block.weights.inject, block.weights.correction, early.down, early.up]
    assert {type(matrix) for matrix in (*matrices, *others, early.head, head.weights.head)} == {FourBitLinear}
    assert all(layer.fused for layer in layers)


@pytest.mark.parametrize("spec", ["eagle(depth=3)", "eagle2", "eagle@adaeagle", "draft-model(depth=3)", "early-exit",
                                  "block-diffusion", "diffusion-draft(depth=3,steps=2)"])
def test_the_ids_are_those_of_plain_decoding_in_4_bits(spec, world):
    kit, found = world, []
    for name in ("ar", spec):
        own = replace(kit, target=kit.target.fresh(), indexes={}, memory={})
        *_, session = decode(TEXT, own.target, *catalog.build(name, own), max_new_tokens=24)
        found.append(session)
    assert sum(len(row.draft) for row in found[1].rounds) > 8
    assert found[0].output == found[1].output or not kit.target.batch_invariant
