"""Speculative images have the target's distribution, in a tiny world; caches, keys and counts hold."""

import pytest
import torch

from specdec_lib.continuous import loop
from specdec_lib.continuous.digits import PATCHES, classes
from specdec_lib.continuous.loop import ImagePlan, decode, decode_plain
from specdec_lib.continuous.noise import image_noise
from specdec_lib.continuous.patch_model import PatchModel
from specdec_lib.continuous.quality import energy_test, ks_distance, ks_limit
from specdec_lib.continuous.rule import DensityRule
from specdec_lib.continuous.transformer import Size

SMALL = {"mixture": Size(16, 2, 2), "diffusion": Size(16, 1, 2, 16, 1)}
IMAGES = 600


def pair(kind: str) -> tuple[PatchModel, PatchModel]:
    """Two untrained models that differ, with diffusion in few steps."""
    models = []
    for seed in (1, 2):
        model = PatchModel(f"{kind}.target", SMALL[kind], seed=seed).eval()
        if kind == "diffusion":
            torch.manual_seed(seed)
            model.head = type(model.head)(SMALL[kind], steps=3)
        with torch.no_grad():
            first = dict(PatchModel(f"{kind}.target", SMALL[kind], seed=1).body.named_parameters())
            for name, part in model.body.named_parameters():
                part.lerp_(first[name], 0.7)       # near each other, so that some patches are accepted
        models.append(model)
    if kind == "diffusion":
        models[1].head.load_state_dict(models[0].head.state_dict())
        with torch.no_grad():
            models[1].head.leave.bias += 0.05
    else:
        with torch.no_grad():
            models[1].head.load_state_dict(models[0].head.state_dict())
            models[1].head.out.bias += 0.1 * torch.randn(models[1].head.out.bias.shape,
                                                         generator=torch.Generator().manual_seed(0))
    return tuple(models)


@pytest.fixture(scope="module", params=["mixture", "diffusion"])
def models(request):
    return pair(request.param)


def plain_and_speculated(models, plan: ImagePlan, images: int = IMAGES):
    labels, some = classes(images), torch.arange(images)
    return decode_plain(models[0], labels, some), decode(*models, labels, some + images, plan)


@pytest.mark.parametrize("plan", [ImagePlan(), ImagePlan(depth=2, aligned=False, prefill=0.15)],
                         ids=["aligned", "prefilled"])
def test_speculated_images_have_the_targets_distribution(models, plan):
    plain, found = plain_and_speculated(models, plan)
    assert 0.01 < found.acceptance < 0.95
    for patch in (3, 9, PATCHES - 1):
        for dim in range(4):
            assert ks_distance(plain.tokens[:, patch, dim], found.tokens[:, patch, dim]) < ks_limit(IMAGES, IMAGES)
    one, two = (state.tokens[:500].flatten(1) for state in (plain, found))
    assert energy_test(one, two, 199).p_value > 0.01


def test_a_rule_that_is_not_exact_is_told_from_the_target():
    models = pair("diffusion")
    plain, found = plain_and_speculated(models, ImagePlan(rule=DensityRule(tries=1)), 1500)
    assert found.unresolved == int((found.tokens == 0).all(-1).sum()) > 0
    assert energy_test(plain.tokens.flatten(1), found.tokens.flatten(1), 199).p_value < 0.01


def test_the_drafts_noise_in_the_targets_chain_raises_acceptance():
    models, labels, images = pair("diffusion"), classes(100), torch.arange(100)
    together, apart = (decode(*models, labels, images, ImagePlan(aligned=on)).acceptance for on in (True, False))
    assert together > 2 * apart


def test_an_image_does_not_depend_on_its_batch(models):
    labels, images = classes(6), torch.arange(6)
    together = decode(*models, labels, images)
    alone = [decode(*models, labels[i:i + 1], images[i:i + 1]) for i in range(6)]
    assert torch.equal(together.origin, torch.cat([one.origin for one in alone]))
    assert torch.allclose(together.tokens, torch.cat([one.tokens for one in alone]), atol=1e-4)
    assert together.target_forwards == max(one.target_forwards for one in alone)


def test_a_draft_equal_to_the_target_is_accepted_whole_and_gives_the_plain_images(models):
    labels, images = classes(8), torch.arange(8)
    found = decode(models[0], models[0], labels, images, ImagePlan(depth=4))
    plain = decode_plain(models[0], labels, images)
    assert found.acceptance == 1
    assert torch.allclose(found.tokens, plain.tokens, atol=1e-4)
    assert (found.target_forwards, plain.target_forwards) == (4, 16), "4 drafted and a bonus, three times, and one"
    assert (found.origin == loop.BONUS).sum() == 3 * 8


def test_the_target_alone_makes_the_first_patches(models, monkeypatch):
    calls, step = [], models[1].body.step
    monkeypatch.setattr(models[1].body, "step", lambda *words: calls.append(words) or step(*words))
    for share, count in ((0.0, 0), (0.05, 1), (0.15, 3)):
        plan = ImagePlan(prefill=share)
        assert plan.first == count
        calls.clear()
        found = decode(*models, classes(4), torch.arange(4), plan)
        assert found.draft_forwards == len(calls)
        assert (found.origin[:, :count] == loop.PLAIN).all()
        assert (found.origin[:, count:] != loop.PLAIN).all()
        assert torch.allclose(found.tokens[:, :count],
                              decode_plain(models[0], classes(4), torch.arange(4)).tokens[:, :count], atol=1e-4)


@pytest.mark.parametrize("fed", [1, 3, 16])
def test_the_cache_gives_what_one_forward_over_all_slots_gives(models, fed):
    tokens, labels = torch.randn(5, PATCHES, 4, generator=torch.Generator().manual_seed(0)), classes(5)
    body = models[0].body
    cache, rows = body.cache(5), torch.arange(5)
    with torch.inference_mode():
        parts = [body.step(cache, rows, torch.arange(start, start + fed).expand(5, -1), tokens, labels)
                 for start in range(0, PATCHES, fed)]
        assert torch.allclose(torch.cat(parts, 1)[:, :PATCHES], body(tokens, labels), atol=1e-5)


def test_a_rejected_patch_leaves_nothing_in_the_cache(models):
    labels, rows = classes(2), torch.arange(2)
    wrong, right = torch.randn(2, 2, PATCHES, 4, generator=torch.Generator().manual_seed(0))
    cache, body = models[0].body.cache(2), models[0].body
    with torch.inference_mode():
        body.step(cache, rows, torch.arange(PATCHES).expand(2, -1), wrong, labels)
        again = body.step(cache, rows, torch.arange(PATCHES).expand(2, -1), right, labels)
        assert torch.allclose(again, body(right, labels), atol=1e-5)


def test_noise_is_keyed_by_image_and_purpose():
    some = image_noise(0, torch.tensor([3, 5]), 2)
    assert torch.equal(image_noise(0, torch.tensor([5]), 2).normals[0], some.normals[1])
    for other in (image_noise(1, torch.tensor([3]), 2), image_noise(0, torch.tensor([3]), 2, "target")):
        assert not torch.equal(other.normals[0], some.normals[0])


@pytest.mark.parametrize("wrong", [{"depth": 0}, {"depth": 16}, {"prefill": 1.0}, {"prefill": -0.1}])
def test_a_wrong_plan_is_named(wrong):
    with pytest.raises(ValueError, match="depth is 1 to 15"):
        ImagePlan(**wrong)
