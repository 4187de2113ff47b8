"""Every trainable drafter can be made, stored by its recipe, and read back unchanged."""

from dataclasses import replace
from fnmatch import fnmatchcase
from types import SimpleNamespace

import pytest
import torch

from specdec_lib import catalog
from specdec_lib.checkpoints.checkpoint_files import load_checkpoint, save_checkpoint
from specdec_lib.checkpoints.fingerprint import fingerprint
from specdec_lib.specs import parse_part
from specdec_lib.training.recipes import DEPTH, NAMES, RECIPES, recipe, spec_of, start
from specdec_lib.types import Refusal
from tests.training.lessons import IDS, batch_of, logits, ready
from tests.training.tiny import tiny_examples, tiny_target

CARD = {"target": "tiny", "made": {}, "settings": {}, "measured": {}, "limits": []}
DRAFTERS = [name for name, which in RECIPES.items() if not which.fills]
LESSONS = SimpleNamespace(ids=IDS)                 # all that a start asks of a course


@pytest.fixture(scope="module")
def target():
    return tiny_target(layers=6)


def made(name, target, folder=None):
    """The recipe; what it goes on from is untrained, and stands in the folder if there is one."""
    which = recipe(name)
    if not which.upon or folder is None:
        return ready(name, target)
    under = made(which.upon, target, folder)
    drafter = start(under, target, LESSONS)
    return replace(which, base=save_checkpoint(folder, which.upon, drafter.state(), drafter.meta(), CARD, under.plan,
                                               target.weights, {}))


def test_the_names_are_those_that_methods_ask_for():
    assert NAMES == ("eagle", "draft-lm", "diffusion-lm", "diffusion-lm-aligned", "diffusion-lm-full", "early-exit",
                     "block-diffusion", "ngram", "length-predictor", "h-rad")


def test_a_rate_without_the_tokens_of_the_text_is_among_the_limits_of_a_drafter_that_has_them(target):
    assert not hasattr(start(ready("block-diffusion", target), target, LESSONS), "text_tokens")
    assert any("leaves out the text's own tokens" in limit for limit in recipe("block-diffusion").limits)


@pytest.mark.parametrize("name", ["medusa", "", "Eagle", "ngram"])
def test_another_name_is_refused_with_those_there_are(name):
    with pytest.raises(Refusal, match=rf"no drafter named '{name}' to train; there are: eagle, draft-lm, diff"):
        recipe(name)


@pytest.mark.parametrize("name", DRAFTERS)
def test_what_is_stored_drafts_like_what_was_trained(target, tmp_path, name):
    which = made(name, target, tmp_path)
    drafter, other = start(which, target, LESSONS), start(which, target, LESSONS, random=True)
    dice = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in drafter.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=dice))
    save_checkpoint(tmp_path, name, drafter.state(), drafter.meta(), CARD, which.plan, target.weights,
                    fingerprint(target, None))
    stored = load_checkpoint(tmp_path, name, target.weights)
    batch = batch_of(target, tiny_examples(3), drafter.levels)
    trained, apart = logits(drafter, batch), logits(other, batch)
    other.take(stored.state)
    rough = 0.2 if any("int4" in scheme for scheme in which.plan.values()) else 0.05       # four bits err by a tenth
    for a, b, c in zip(trained, logits(other, batch), apart, strict=True):
        rows = batch.drafted(1)
        assert (a - b)[rows].norm() < rough * (a - c)[rows].norm()
    assert stored.meta == drafter.meta()
    assert torch.equal(stored.state["ids"], IDS)


@pytest.mark.parametrize("name", RECIPES)
def test_a_plan_names_tensors_that_there_are(target, name):
    state = start(made(name, target), target, LESSONS).state()
    for pattern in recipe(name).plan:
        assert any(fnmatchcase(tensor, pattern) for tensor in state), pattern


@pytest.mark.parametrize("name", RECIPES)
def test_a_random_start_is_another_start_of_the_same_shapes(target, name):
    one, other = (start(made(name, target), target, LESSONS, random).state() for random in (False, True))
    assert {key: tensor.shape for key, tensor in one.items()} == {key: tensor.shape for key, tensor in other.items()}
    assert any(not torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("name", DRAFTERS)
def test_the_method_that_drafts_with_it_is_in_the_catalogue(name):
    which = recipe(name)
    words, values = parse_part(spec_of(which, "exit 3" if name == "early-exit" else ""))
    assert words == (which.method or name)
    assert words in catalog.methods()
    assert values == {"depth": DEPTH, **({"layer": 3} if name == "early-exit" else {}), **which.asked}


def test_parts_of_an_early_exit_are_its_layers_and_others_have_none(target):
    built = {name: start(made(name, target), target, LESSONS) for name in RECIPES}
    parts = {name: recipe(name).parts(drafter.meta()) for name, drafter in built.items()}
    assert parts.pop("early-exit") == ("exit 1", "exit 2", "exit 3")
    assert set(parts.values()) == {("",)}
    assert built["eagle"].depth <= DEPTH            # measured at least as deep as it was unrolled
