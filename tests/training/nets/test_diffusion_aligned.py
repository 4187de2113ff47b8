"""Streak distillation starts as its base, sees wholly masked blocks alone, and learns a low-rank difference."""

from dataclasses import replace

import pytest
import torch

from specdec_lib.checkpoints.checkpoint_files import Checkpoint
from specdec_lib.checkpoints.quantize import pack
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.training.losses.chunked_head import TOKEN, slot_losses
from specdec_lib.training.losses.diffusion import Mix, draw_masks
from specdec_lib.training.losses.distillation import expected_streak
from specdec_lib.training.losses.objective import Objective
from specdec_lib.training.nets.diffusion_finetune import (
    ALIGNED_RANK,
    WHOLLY_MASKED,
    FinetunedDiffusion,
    aligned_diffusion,
)
from specdec_lib.training.nets.diffusion_lm import DiffusionNet
from specdec_lib.training.recipes import recipe
from tests.training.lessons import IDS, answered, batch_of, checkpoint, learned, logits, stirred
from tests.training.tiny import tiny_examples

STREAK = Objective("ce", "streak", 0.1)


def base_of(drafter) -> Checkpoint:
    return replace(checkpoint("diffusion-lm", drafter), card={"sha256": "abc"})


@pytest.fixture(scope="module")
def base(target):
    return stirred(DiffusionNet(target, IDS, (0, 1, 3), (2, 4), rank=3))


@pytest.fixture(scope="module")
def batch(target, data):
    return batch_of(target, data)


def test_before_its_first_step_it_drafts_as_its_base_does_and_random_weights_do_not(target, base, batch):
    one, other = (aligned_diffusion(target, IDS, random, base_of(base)) for random in (False, True))
    for k, (mine, theirs, apart) in enumerate(zip(*(logits(drafter, batch) for drafter in (one, base, other)),
                                                  strict=True)):
        assert torch.allclose(mine, theirs, atol=1e-6), k
        assert not torch.allclose(apart, theirs, atol=1e-2), k


def test_layers_blocks_and_vocabulary_are_the_bases_and_its_meta_names_the_base(target, base):
    drafter = aligned_diffusion(target, torch.arange(8), base=base_of(base))
    assert torch.equal(drafter.state()["ids"], IDS)
    assert drafter.meta() == base.meta() | {"base": {"name": "diffusion-lm", "sha256": "abc"}}
    with pytest.raises(ValueError, match="starts from a trained checkpoint"):
        aligned_diffusion(target, IDS)


def test_its_blocks_are_wholly_masked_and_the_text_has_no_loss(target, base, batch):
    drafter = aligned_diffusion(target, IDS, base=base_of(base))
    drawn = draw_masks(batch, drafter.mix, drafter.blocks)
    assert drawn.whole.all()
    assert drawn.masked.all()
    spoken = FinetunedDiffusion(target, base_of(base), replace(WHOLLY_MASKED, text=1.0), rank=3)
    assert STREAK(spoken, batch)[0] > STREAK(drafter, batch)[0] > 0


def test_its_gradient_is_that_of_minus_the_expected_streak_of_the_text(target, base, batch):
    """Without smoothing, of the text's own tokens, which the target need not find the likeliest; at every anchor."""
    drafter = FinetunedDiffusion(target, replace(base_of(base), meta=base.meta() | {"blocks": [4]}),
                                 Mix(masked=0, text=0, noised=0, anchors=99, spacing=1), rank=3)
    assert (batch.top_ids[..., 0] != batch.tokens.roll(-1, 1))[batch.drafted(1)].float().mean() > 0.5
    Objective("ce", "streak", labels=TOKEN)(drafter, batch)[0].backward()
    mine = drafter.norm.grad.clone()
    drafter.zero_grad()
    rows = batch.drafted(1)
    probs = torch.zeros(4, *rows.shape)
    for k, x in enumerate(drafter.slots(batch)):
        columns = drafter.frozen.columns[batch.later(batch.tokens, k + 1)]
        chosen = batch.drafted(1 + k) & (columns >= 0)
        logp = (x[chosen] @ drafter.frozen.rows.T).log_softmax(-1)
        probs[k] = probs[k].masked_scatter(chosen, logp.gather(1, columns[chosen][:, None]).exp())
    (-expected_streak(probs.flatten(1)).sum() / rows.sum()).backward()
    assert mine.norm() > 1e-4
    assert torch.allclose(mine, drafter.norm.grad, atol=1e-6, rtol=1e-3)


def test_it_makes_longer_streaks_than_its_base(target):
    data = answered(target, tiny_examples(4), 12)
    batch = batch_of(target, data)
    sure = torch.full_like(batch.top_logp, -1e9)
    sure[..., 0] = 0                               # a law of chances would bound the streak
    batch = replace(batch, top_logp=sure)
    start = learned(DiffusionNet(target, IDS, (0, 1, 3), (4,), rank=16), batch, 12, 0.005)
    drafter = FinetunedDiffusion(target, base_of(start), Mix(masked=0, text=0, noised=0, anchors=16, spacing=1),
                                 rank=16)
    optimiser = torch.optim.Adam(drafter.parameters(), lr=0.02)

    def streak() -> float:
        with torch.no_grad():
            probs = torch.zeros(4, batch.tokens.numel())
            for k, x in enumerate(drafter.slots(batch)):
                dist = drafter.frozen.distribution(batch, k)
                chosen = batch.drafted(1 + k).flatten() & dist.covered
                probs[k, chosen] = slot_losses(x.flatten(0, 1)[chosen], drafter.frozen.rows,
                                               type(dist)(*(part[chosen] for part in dist))).prob
        return float(expected_streak(probs).sum() / batch.drafted(1).sum())

    before = streak()
    for place in range(15):
        optimiser.zero_grad()
        STREAK(drafter, replace(batch, seed=place))[0].backward()
        optimiser.step()
    assert streak() > before + 0.5


def test_of_the_default_target_it_is_a_few_megabytes_on_top():
    shape = LlamaConfig(layers=1, hidden=576, heads=9, kv_heads=3, head_dim=64, mlp=1536, vocab=8192, context=2048,
                        tied=True)
    target = Transformer.random(shape)             # one layer of it stands for the three
    base = base_of(DiffusionNet(target, torch.arange(8192)))
    drafter = aligned_diffusion(target, base.state["ids"], base=base)
    tensors, about = pack(drafter.state(), recipe("diffusion-lm-aligned").plan, base.state.__getitem__)
    layer, rest = (sum(tensor.numel() * tensor.element_size() for name, tensor in tensors.items()
                       if name.startswith("layers") == one) for one in (True, False))
    assert about["layers.0.down"]["scheme"] == f"+rank{ALIGNED_RANK}"
    assert 1.3e6 < 3 * layer + rest < 2.1e6
