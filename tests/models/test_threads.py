"""Replaying takes one thread; a model takes all of them, before or after."""

import pytest
import torch

from specdec_lib.canvas.world_sudoku import load_sudoku
from specdec_lib.hub.load import load_lm
from specdec_lib.models import replay, threads
from specdec_lib.types import Refusal

PATH = next(iter(replay.shipped_recordings().values()))


@pytest.fixture(autouse=True)
def _two_threads(monkeypatch):
    monkeypatch.setattr(threads, "STATE", threads.ThreadState())
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def load(folder, **options):
    with pytest.raises(Refusal):                   # after the threads are set
        load_lm(folder, torch.float32, "cpu", **options)


def test_a_recording_is_replayed_with_one_thread_and_a_model_gets_back_what_there_was(tmp_path):
    replay.load_recording(PATH)
    assert torch.get_num_threads() == 1
    load(tmp_path)
    assert torch.get_num_threads() == 2
    replay.load_recording(PATH)
    assert torch.get_num_threads() == 2


def test_boards_are_filled_with_one_thread(tmp_path):
    load_sudoku()
    assert torch.get_num_threads() == 1
    load(tmp_path)
    assert torch.get_num_threads() == 2
    load_sudoku()
    assert torch.get_num_threads() == 2


def test_threads_that_were_asked_for_stay(tmp_path):
    replay.load_recording(PATH)
    load(tmp_path, threads=3)
    assert torch.get_num_threads() == 3
