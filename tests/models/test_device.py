"""What a method moves from the device to the host in a round, counted on a device that is not there."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ONCE = ("ar", "sam", "prompt-lookup", "token-recycling", "sam+token-recycling")      # the statistics of its rows
TWICE = ("eagle", "block-diffusion", "diffusion-draft")                              # and the draft, which is one chain
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def told():
    """What `tests/fake_device.py` says: there a hidden wait and two devices in one operation are errors."""
    done = subprocess.run([sys.executable, "-m", "tests.fake_device", "captured", *ONCE, *TWICE, "eagle2",
                           "diffuspec", "draft-model"], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ONCE)
def test_plain_decoding_and_copies_move_one_thing_a_round(name, told):
    assert set(told[name]["moved"]) == {1}
    assert name == "ar" or max(told[name]["drafted"]) > 1


@pytest.mark.parametrize("name", TWICE)
def test_a_drafted_chain_is_moved_at_once(name, told):
    assert [moved for moved, drafted in zip(*told[name].values(), strict=True) if drafted > 1] != []
    assert all(moved == 1 + (drafted > 0) for moved, drafted in zip(*told[name].values(), strict=True))


def test_a_tree_moves_one_thing_a_level_and_a_draft_model_one_a_token(told):
    assert max(told["eagle2"]["moved"]) <= 1 + 4
    assert max(told["diffuspec"]["moved"]) <= 3
    assert all(moved == 1 + drafted for moved, drafted in zip(*told["draft-model"].values(), strict=True))
