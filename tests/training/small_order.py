"""A folder with a random target, a file of its answers, and a training of twenty steps."""

import pytest
import torch

from specdec_lib.hub.tokenizer import Tokenizer
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.training import pipeline as module
from specdec_lib.training.fit import Settings
from tests.training.folder import answers_file, model_folder

MADE = {"command": "specdec train", "commit": "abc"}
LONG = 9.0                                         # minutes for what is not to be cut


def quiet(*_):
    """Nobody listens."""


@pytest.fixture(scope="module", name="folder")
def folder_fixture(tmp_path_factory):
    torch.set_num_threads(1)
    return model_folder(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module", name="target")
def target_fixture(folder):
    return Transformer.load(folder)


@pytest.fixture(scope="module", name="text")
def text_fixture(folder):
    return Tokenizer(folder)


@pytest.fixture(scope="module", name="data")
def data_fixture(folder, tmp_path_factory):
    return answers_file(folder, tmp_path_factory.mktemp("data") / "answers.jsonl")


@pytest.fixture(name="twenty_steps")
def twenty_steps_fixture(monkeypatch):
    """Fits of twenty large steps, however many minutes they are given."""
    monkeypatch.setattr(module, "Settings", lambda **given: Settings(**given | {"steps": 20, "rate": 0.02}))
