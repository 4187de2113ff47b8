"""Shards are written once and whole; what is damaged is noticed, dropped and made again."""

import json

import pytest

from specdec_lib.training.data.shards import MANIFEST, Shards, read_shards
from specdec_lib.types import Refusal


def record(n):
    return {"source": "self", "temperature": 0.7, "prompt": f"what is {n}?\u2028ü", "output": [n, n + 1]}


@pytest.fixture
def folder(tmp_path):
    """Three shards of two records."""
    shards = Shards(tmp_path / "data", "tiny")
    for place in range(3):
        shards.write(place, [record(2 * place), record(2 * place + 1)])
    return tmp_path / "data"


@pytest.mark.parametrize("packed", [True, False])
def test_what_was_written_is_read_in_order(tmp_path, packed):
    shards = Shards(tmp_path, "tiny", packed)
    shards.write(0, map(record, range(3)))
    shards.write(1, [record(9)])
    assert list(read_shards(tmp_path, "tiny")) == list(shards) == [*map(record, range(3)), record(9)]
    assert (shards.records, shards.tokens, shards.free) == (4, 8, 2)


def test_the_same_records_make_the_same_bytes(folder, tmp_path):
    other = Shards(tmp_path / "other", "tiny").write(0, [record(0), record(1)])
    assert other.read_bytes() == (folder / other.name).read_bytes()
    assert other.read_bytes()[4:8] == bytes(4)     # no time in it


def test_a_damaged_shard_is_refused_by_readers_and_made_again_by_writers(folder):
    path = folder / "shard-00001.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-3] + b"abc")
    with pytest.raises(Refusal, match="shard-00001.jsonl.gz is damaged"):
        list(read_shards(folder))
    shards = Shards(folder, "tiny")
    assert shards.dropped == [path.name]
    assert not path.exists()
    assert shards.free == 1
    shards.write(1, [record(2), record(3)])
    assert list(read_shards(folder)) == list(map(record, range(6)))


def test_a_half_written_shard_and_one_that_the_manifest_does_not_know_are_dropped(folder):
    (folder / "shard-00003.jsonl.gz").write_bytes(b"written, but the manifest came to nothing")
    (folder / "shard-00004.jsonl.gz.partial").write_bytes(b"half")
    (folder / "notes.txt").write_text("mine")
    assert Shards(folder, "tiny").free == 3
    assert sorted(path.name for path in folder.iterdir())[0] == MANIFEST
    assert len(list(folder.glob("shard-*"))) == 3
    assert (folder / "notes.txt").exists()


def test_a_whole_shard_is_never_rewritten(folder):
    with pytest.raises(ValueError, match="never rewritten"):
        Shards(folder, "tiny").write(1, [record(5)])


def test_data_of_another_target_is_refused(folder):
    for attempt in (lambda: Shards(folder, "large"), lambda: list(read_shards(folder, "large"))):
        with pytest.raises(Refusal, match="another target"):
            attempt()
    assert len(list(read_shards(folder))) == 6


def test_a_folder_without_a_readable_manifest_is_refused(folder):
    for content in ("{", json.dumps([]), json.dumps({"target": "tiny"}), json.dumps({"target": "tiny", "shards": [1]})):
        (folder / MANIFEST).write_text(content)
        with pytest.raises(Refusal, match="cannot be read"):
            Shards(folder, "tiny")
    (folder / MANIFEST).unlink()
    with pytest.raises(Refusal, match="no generated data"):
        list(read_shards(folder))
