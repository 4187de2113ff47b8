"""Recipes that start from a checkpoint: their base, put beside the new one, or an earlier one of their own name."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from specdec_lib.checkpoints.checkpoint_files import load_checkpoint, save_checkpoint
from specdec_lib.checkpoints.fingerprint import fingerprint
from specdec_lib.training.base_checkpoint import (
    begun_from,
    copy_folder,
    go_on_from,
    refuse_going_on,
    start_from_base,
)
from specdec_lib.training.nets.diffusion_finetune import diffusion_from_draft_lm
from specdec_lib.training.nets.diffusion_lm import DiffusionNet
from specdec_lib.training.nets.draft_lm import DraftLMNet
from specdec_lib.training.nets.eagle import EagleNet
from specdec_lib.training.recipes import recipe, start
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


def eagle_in(folder, target, seed=0, taps=()):
    drafter = stirred(EagleNet(target, IDS, taps), seed)
    return stored(folder, "eagle", drafter, target)


def going_on(target, folder):
    return go_on_from(recipe("eagle"), folder, target, None, "tiny")


def test_without_a_folder_to_go_on_from_a_recipe_is_unchanged(target):
    assert going_on(target, None) is recipe("eagle")


def test_an_earlier_checkpoint_of_its_name_is_where_the_fit_starts_and_never_where_the_random_control_does(
        target, places):
    kept = eagle_in(places[1], target)
    which, lessons = going_on(target, places[1]), SimpleNamespace(ids=IDS)
    begun, usual = start(which, target, lessons).state(), start(recipe("eagle"), target, lessons).state()
    for name in ("fc", "qkv", "norm"):
        assert torch.equal(begun[name], kept.state[name])
        assert not torch.equal(begun[name], usual[name])
    control, blank = start(which, target, lessons, True).state(), start(recipe("eagle"), target, lessons, True).state()
    assert all(torch.equal(control[name], blank[name]) for name in blank)
    assert begun_from(which) == {"begun_from": {"sha256": kept.card["sha256"], "tokens_seen": None}}
    which.begun.card.pop("made")                   # edited by hand
    assert begun_from(which)["begun_from"]["tokens_seen"] is None
    assert begun_from(recipe("eagle")) == {}


def test_a_folder_without_one_and_one_that_reads_other_layers_are_refused(target, places):
    put(places[1], target)
    with pytest.raises(Refusal, match="there is no eagle in .* to go on from; it holds diffusion-lm"):
        going_on(target, places[1])
    eagle_in(places[0], target, taps=(0, 1, 2))
    with pytest.raises(Refusal, match=r"was made with taps \[0, 1, 2\], and this one has"):
        start(going_on(target, places[0]), target, SimpleNamespace(ids=IDS))


@pytest.mark.parametrize("name", ["block-diffusion", "diffusion-lm", "ngram", "h-rad"])
def test_what_is_stored_as_a_difference_of_low_rank_or_counted_cannot_go_on(name):
    with pytest.raises(Refusal, match=f"--from is for eagle, draft-lm, early-exit, got it for {name}"):
        refuse_going_on(name)
    for able in ("eagle", "draft-lm", "early-exit"):
        refuse_going_on(able)
