"""A folder of recordings: loaded by family, refused when it is empty or lacks a family."""

import shutil

import pytest

from specdec_lib.models.replay import shipped_recordings
from specdec_lib.recordings.folder import find_recordings, load_recordings
from specdec_lib.types import Refusal


def test_the_shipped_recordings_or_those_of_a_folder_are_found(tmp_path):
    assert find_recordings() == shipped_recordings()
    shutil.copy(shipped_recordings()["qa"], tmp_path / "mine.safetensors")
    found = load_recordings(str(tmp_path))
    assert list(found) == ["mine"]
    assert load_recordings(found) == found          # a cell that is run a second time


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(Refusal, match=r"there are no recordings in .*: make some with `specdec record --out"):
        find_recordings(tmp_path)
    with pytest.raises(Refusal, match="no recording of 'poetry': `family` is one of math_reasoning, multi_turn"):
        find_recordings()["poetry"]
