"""Blocks whose rows see both ways give the same in compiled attention as in torch's, but for rounding."""

import random

import pytest
import torch

from specdec_lib.heads.block_diffusion import BlockHead
from specdec_lib.heads.diffusion import DiffusionLM, diffusion_weights
from specdec_lib.models.llama.path_attention import has_vectors
from specdec_lib.models.llama.row_stats import MOST
from specdec_lib.types import Draft
from tests.heads.test_eagle_rows import IDS, SHAPE, TAPS, target_of
from tests.worlds import random_block_diffusion, random_diffusion

NEAR = {"bf16": .3, "fp32": 2e-5}                  # a first feature of zeros makes the most of bf16's rounding
pytestmark = pytest.mark.skipif(not has_vectors(), reason="the C code has no vectors for this processor")


def words(n: int) -> tuple[int, ...]:
    return tuple(random.Random(n).randrange(97) for _ in range(n))


@pytest.mark.parametrize("kind", NEAR)
@pytest.mark.parametrize("length", [1, 2, 30, 700])
def test_a_block_drafter_scores_its_slots_alike(length, kind, monkeypatch):
    target, checkpoint = target_of(kind), random_block_diffusion(SHAPE, TAPS, IDS)
    mine = BlockHead(checkpoint.state, checkpoint.meta, target)
    assert mine.attention is not None
    monkeypatch.setattr("specdec_lib.heads.block_diffusion.compiled_attention", lambda *_: None)
    plain = BlockHead(checkpoint.state, checkpoint.meta, target.fresh())
    assert plain.attention is None
    mine.candidates = plain.candidates = len(IDS)          # all of them, or near ties choose others
    text = words(length)
    for new in ((), (5, 8), (9,)):
        text += new
        one, other = (head.lattice(text, 4, len(IDS)) for head in (mine, plain))
        order = one.ids.argsort(1), other.ids.argsort(1)
        one, other = (lattice.logp.gather(1, places) for lattice, places in zip((one, other), order, strict=True))
        assert float((one - other).abs().max()) < NEAR[kind]


@pytest.mark.parametrize(("kind", "steps"), [("bf16", 1), ("fp32", 1), ("fp32", 3)])
@pytest.mark.parametrize("length", [1, 2, 30, 700])
def test_a_diffusion_model_scores_its_slots_alike(length, kind, steps):
    weights = diffusion_weights(random_diffusion(SHAPE, IDS).state, target_of(kind).weights)
    mine, plain = DiffusionLM(weights), DiffusionLM(weights)
    assert mine.model.blocks is not None
    plain.model.blocks = None
    plain.model.table = plain.model.angles()
    text = words(length)
    for new in ((), (5, 8), (9,)):
        text += new
        one, other = (head.dists(text, 5, steps) for head in (mine, plain))
        assert float((one - other).abs().max()) < NEAR[kind]
    assert [head.fed for head in (mine, plain)] == [mine.fed] * 2


@pytest.mark.parametrize("kind", NEAR)
def test_one_more_mask_changes_what_the_slots_before_it_are(kind):
    """The second slot sees the masks behind it; the first is read from the text."""
    weights = diffusion_weights(random_diffusion(SHAPE, IDS).state, target_of(kind).weights)
    model = DiffusionLM(weights)
    assert not torch.equal(model.dists(words(30), 2)[1], model.dists(words(30), 5)[1])
    assert model.model.cache.rows.draft != Draft()


def test_more_candidates_than_the_c_code_keeps_are_drafted_in_python():
    checkpoint = random_block_diffusion(SHAPE, TAPS, tuple(range(97)), candidates=MOST + 6)
    head = BlockHead(checkpoint.state, checkpoint.meta, target_of("bf16"))
    assert (head.candidates, head.compiled) == (MOST + 6, None)
    assert head(words(20), 4).lattice.ids.shape == (4, MOST + 6)
    few = BlockHead(checkpoint.state, {**checkpoint.meta, "candidates": MOST}, target_of("bf16"))
    assert few.compiled is not None
