"""What a method moves from the device to the host in a round, counted on a device that is not there."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from specdec_lib.models.device import to_device, wait_for_stream
from tests.test_cuda import METHODS

ONCE = ("ar", "sam", "prompt-lookup", "token-recycling", "sam+token-recycling")      # the statistics of its rows
TWICE = ("eagle", "eagle2", "block-diffusion", "ddtree", "diffusion-draft", "draft-model",   # and the draft, at once
         "published ddtree(price=0)", "published block-diffusion(cut=False)")
ROOT = Path(__file__).parents[2]
SPECS = {"specdiff": "specdiff(steps=1)"}          # in more steps it meets a token in two tensors; invented ones differ


def decoded_there(how: str, *names: str):
    """What `tests/fake_device.py` says: there a hidden wait and two devices in one operation are errors."""
    done = subprocess.run([sys.executable, "-m", "tests.fake_device", how, *names], capture_output=True, text=True,
                          cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def told():
    return decoded_there("captured", *ONCE, *TWICE, "diffuspec")


def rounds(one):
    """What each round moved and how much it drafted."""
    return list(zip(one["moved"], one["drafted"], strict=True))


@pytest.mark.parametrize("name", ONCE)
def test_plain_decoding_and_copies_move_one_thing_a_round(name, told):
    assert set(told[name]["moved"]) == {1}
    assert name == "ar" or max(told[name]["drafted"]) > 1


@pytest.mark.parametrize("name", TWICE)
def test_a_draft_that_is_made_at_once_is_moved_at_once(name, told):
    assert [moved for moved, drafted in rounds(told[name]) if drafted > 1] != []
    assert all(moved == 1 + (drafted > 0) for moved, drafted in rounds(told[name]))


def test_sequences_of_a_batch_move_their_statistics_at_once_and_their_chains_at_once(told):
    assert set(told["ar"]["together"]) == {1}
    assert set(told["eagle"]["together"]) <= {1, 2}
    assert told["eagle"]["together"][0] == 2
    assert max(told["draft-model"]["together"]) == 1 + max(told["draft-model"]["drafted"])
    assert 2 < max(told["eagle2"]["together"]) <= 1 + 5                        # a level of all trees at once


def test_no_round_but_the_first_waits_for_a_copy_to_the_device(told):
    assert {name: one["waited"] for name, one in told.items() if len(set(one["waited"])) > 1} == {}


def test_the_host_does_not_wait_for_whole_numbers_on_their_way_to_the_device(monkeypatch):
    asked, plain = [], torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, *to, **how: asked.append(how) or plain(tensor, *to, **how))
    assert to_device([3, 4], torch.device("cpu")).tolist() == [3, 4]
    assert to_device([], torch.device("cpu")).dtype == torch.long
    assert asked == [{"non_blocking": True}] * 2


def test_a_wait_is_for_the_own_stream(monkeypatch):
    waits = []
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(synchronize=lambda: waits.append(1)))
    wait_for_stream()
    assert waits == [1]


def test_a_lattice_moves_two_things(told):
    assert max(told["diffuspec"]["moved"]) <= 3


@pytest.mark.long
@pytest.mark.parametrize("how", ["captured", "eager"])
@pytest.mark.parametrize("name", METHODS)
def test_every_lossless_method_decodes_there(name, how):
    spec = SPECS.get(name, name)
    one = decoded_there(how, spec)[spec]
    assert min(one["moved"]) >= 1
    assert name == "ar" or max(one["drafted"]) >= 1
