"""A folder of recordings: loaded by family, refused when it is empty or lacks a family."""

import shutil

import pytest

from specdec_lib.models.replay import Recording, load_recording, save_recording, shipped_recordings
from specdec_lib.recordings import folder
from specdec_lib.recordings.folder import find_recordings, load_recordings, recorded_drafters, with_lattices
from specdec_lib.types import Refusal


def test_the_shipped_recordings_or_those_of_a_folder_are_found(tmp_path):
    assert find_recordings() == shipped_recordings()
    shutil.copy(shipped_recordings()["qa"], tmp_path / "mine.safetensors")
    found = load_recordings(str(tmp_path))
    assert list(found) == ["mine"]
    assert load_recordings(found) == found          # a cell that is run a second time


@pytest.mark.parametrize("tokens", [1, folder.SHORTEST - 1, folder.SHORTEST])
def test_an_answer_that_is_too_short_for_a_notebook_is_refused(tmp_path, tokens):
    one = load_recording(shipped_recordings()["qa"])
    save_recording(Recording(one.tokens[:one.prompt + tokens], one.prompt, one.row_stats, {}, {}, one.about),
                   tmp_path / "short.safetensors")
    if tokens == folder.SHORTEST:
        assert list(load_recordings(tmp_path)) == ["short"]
    else:
        with pytest.raises(Refusal, match=f"of short has {tokens} output tokens, and notebooks need 12: record a"):
            find_recordings(tmp_path)


def test_a_damaged_file_is_refused_by_its_reader(tmp_path):
    (tmp_path / "qa.safetensors").write_bytes(b"nothing")
    with pytest.raises(Refusal, match="damaged"):
        load_recordings(tmp_path)


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(Refusal, match=r"there are no recordings in .*: make some with `specdec record --out"):
        find_recordings(tmp_path)
    with pytest.raises(Refusal, match="no recording of the `family` 'poetry'; there are: math_reasoning, multi_turn"):
        find_recordings()["poetry"]


def test_drafters_and_lattices_that_no_recording_holds_are_refused_with_the_command_that_adds_them():
    whole = load_recording(shipped_recordings()["qa"])
    bare = Recording(whole.tokens, whole.prompt, whole.row_stats, {"eagle": whole.drafts["eagle"]}, {}, whole.about)
    assert recorded_drafters({"a": whole, "b": bare}, ["draft-lm", "eagle"]) == ["eagle"]
    with pytest.raises(Refusal, match=r"hold any of draft-lm, eagle2: add one with `specdec record --add --drafters"):
        recorded_drafters({"a": whole, "b": bare}, ["draft-lm", "eagle2"])
    assert list(with_lattices({"a": whole, "b": bare}, "diffusion-lm")) == ["a"]
    with pytest.raises(Refusal, match="holds the slots of diffusion-lm: add them with `specdec record --add"):
        with_lattices({"b": bare}, "diffusion-lm")
    with pytest.raises(Refusal, match="no drafter 'eagle2'; it has: eagle: name one of these, or add it with"):
        bare.drafts["eagle2"]
