"""A recipe with a base finds it, and puts it beside the new checkpoint."""

from dataclasses import replace

import pytest
import torch

from specdec_lib.checkpoints.checkpoint_files import load_checkpoint, save_checkpoint
from specdec_lib.checkpoints.fingerprint import fingerprint
from specdec_lib.training.base_checkpoint import copy_folder, start_from_base
from specdec_lib.training.nets.diffusion_finetune import diffusion_from_draft_lm
from specdec_lib.training.nets.diffusion_lm import DiffusionNet
from specdec_lib.training.nets.draft_lm import DraftLMNet
from specdec_lib.training.recipes import recipe
from specdec_lib.types import Refusal
from tests.training.lessons import IDS, stirred
from tests.training.tiny import tiny_target

NAME, BASE = "diffusion-lm-aligned", "diffusion-lm"
CARD = {"target": "tiny", "made": {}, "settings": {}, "measured": {}, "limits": []}


@pytest.fixture(scope="module")
def target():
    return tiny_target()


@pytest.fixture
def places(tmp_path):
    return tmp_path / "out", tmp_path / "shipped"


def put(folder, target, seed=0):
    drafter = stirred(DiffusionNet(target, IDS, (0, 1, 3)), seed)
    return stored(folder, BASE, drafter, target)


def stored(folder, name, drafter, target):
    return save_checkpoint(folder, name, drafter.state(), drafter.meta(), CARD | {"settings": drafter.meta()},
                           recipe(name).plan,
                           target.weights, fingerprint(target, None))


def found(target, places, say=lambda line: None):
    return start_from_base(recipe(NAME), places[0], target, None, "tiny", places[1], say)


def test_a_recipe_without_a_base_is_unchanged(target, places):
    assert start_from_base(recipe("eagle"), places[0], target, None, "tiny", places[1]) is recipe("eagle")


def test_the_one_in_the_folder_comes_before_the_shipped_one(target, places):
    mine, _ = put(places[0], target, 0), put(places[1], target, 1)
    which = found(target, places)
    assert which.base.card["sha256"] == mine.card["sha256"]
    assert replace(which, base=None) == recipe(NAME)


def test_else_the_shipped_base_is_used_and_copied_beside_the_new_checkpoint(target, places):
    shipped, said = put(places[1], target), []
    which = found(target, places, said.append)
    assert which.base.card["sha256"] == shipped.card["sha256"]
    assert "shipped diffusion-lm" in said[0]
    assert {path.name for path in places[0].iterdir()} == {BASE}
    assert all((places[0] / BASE / path.name).read_bytes() == path.read_bytes()
               for path in (places[1] / BASE).iterdir())
    again = found(target, places)
    assert torch.equal(again.base.state["layers.0.qkv"], which.base.state["layers.0.qkv"])


def test_a_shipped_base_is_copied_with_its_own_base(target, places):
    draft = stored(places[1], "draft-lm", stirred(DraftLMNet(target, IDS)), target)
    shipped = stored(places[1], BASE, diffusion_from_draft_lm(target, IDS, base=draft), target)
    which = found(target, places)
    assert which.base.card["sha256"] == shipped.card["sha256"]
    assert {path.name for path in places[0].iterdir()} == {BASE, "draft-lm"}
    assert torch.equal(load_checkpoint(places[0], BASE, target.weights).state["layers.0.qkv"],
                       shipped.state["layers.0.qkv"])


def test_with_neither_it_is_refused_with_the_command_that_makes_one(target, places):
    with pytest.raises(Refusal, match=r"^diffusion-lm-aligned goes on from the checkpoint diffusion-lm, and there is "
                                      r"none in .*out: `specdec train diffusion-lm --target tiny --out .*` makes it$"):
        found(target, places)


def test_one_of_another_target_is_refused_and_not_copied(target, places):
    put(places[1], target)
    with pytest.raises(Refusal, match="tiny has another architecture: `specdec train diffusion-lm --target tiny`"):
        found(tiny_target(hidden=32), places)
    assert not places[0].exists()


def test_a_copy_that_failed_leaves_nothing(tmp_path):
    with pytest.raises(FileNotFoundError):
        copy_folder(tmp_path / "absent", tmp_path / "place")
    assert not list(tmp_path.iterdir())
