"""The diffusion language model starts from the small draft model, as a difference from it."""

from dataclasses import replace

import pytest
import torch

from specdec_lib.checkpoints.quantize import pack
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.training.nets.diffusion_finetune import MASKS, RANK, diffusion_from_draft_lm
from specdec_lib.training.nets.draft_lm import DraftLMNet
from specdec_lib.training.recipes import recipe
from tests.training.lessons import IDS, batch_of, checkpoint, logits, stirred


@pytest.fixture(scope="module")
def draft(target):
    return stirred(DraftLMNet(target, IDS, (0, 3)))


@pytest.fixture(scope="module")
def base(draft):
    return replace(checkpoint("draft-lm", draft), card={"sha256": "abc"})


def test_before_its_first_step_its_first_slot_is_the_draft_models(target, data, draft, base):
    batch = batch_of(target, data)
    mine, theirs = logits(diffusion_from_draft_lm(target, IDS, base=base), batch)[0], logits(draft, batch)[0]
    apart = logits(diffusion_from_draft_lm(target, IDS, True, base), batch)[0]
    assert torch.allclose(mine, theirs, atol=1e-5)
    assert not torch.allclose(apart, theirs, atol=1e-2)


def test_it_takes_layers_and_vocabulary_of_its_base_and_names_it(target, base):
    drafter = diffusion_from_draft_lm(target, torch.arange(8), base=base)
    assert torch.equal(drafter.state()["ids"], IDS)
    assert drafter.meta() == {"layers": [0, 3], "blocks": [4, 8], "shifted": True,
                              "base": {"name": "draft-lm", "sha256": "abc"}}
    with pytest.raises(ValueError, match="starts from a trained checkpoint"):
        diffusion_from_draft_lm(target, IDS)


def test_it_learns_drafts_masks_among_tokens_and_the_text(target, base):
    assert min(MASKS.draft, MASKS.masked, MASKS.text, MASKS.noised) > 0
    assert diffusion_from_draft_lm(target, IDS, base=base).mix == MASKS
    assert recipe("diffusion-lm").upon == "draft-lm"
    assert recipe("diffusion-lm").plan["layers.*"] == f"+rank{RANK}"


def test_of_the_default_target_it_stays_below_its_share_of_the_repository():
    shape = LlamaConfig(layers=1, hidden=576, heads=9, kv_heads=3, head_dim=64, mlp=1536, vocab=8192, context=2048,
                        tied=True)
    target = Transformer.random(shape)             # one layer of it stands for the three
    start = checkpoint("draft-lm", DraftLMNet(target, torch.arange(8192)))
    state, plan = diffusion_from_draft_lm(target, IDS, base=start).state(), recipe("diffusion-lm").plan
    tensors, about = pack(state, plan, start.state.__getitem__)
    layer, rest = (sum(tensor.numel() * tensor.element_size() for name, tensor in tensors.items()
                       if name.startswith("layers") == one) for one in (True, False))
    assert about["layers.0.down"]["scheme"] == "+rank128"
    assert 2.8e6 < 3 * layer + rest < 3.6e6
