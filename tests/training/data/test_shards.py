"""Shards are written once and whole; what is damaged is noticed, dropped and made again."""

import hashlib
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
    assert [shards.before(place) for place in (0, 1, 2)] == [0, 6, 8]


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


def test_shards_and_downloads_of_another_program_are_never_removed(tmp_path):
    (tmp_path / "film.mkv.partial").write_text("mine")
    assert Shards(tmp_path / "new", "tiny").free == Shards(tmp_path, "tiny").free == 0
    (tmp_path / MANIFEST).unlink()
    (tmp_path / "shard-00001.jsonl").write_text("mine")
    with pytest.raises(Refusal, match="holds shards and no manifest.json.* put it back, delete"):
        Shards(tmp_path, "tiny")
    assert {path.name: path.read_text() for path in tmp_path.iterdir() if path.is_file()} == {
        "film.mkv.partial": "mine", "shard-00001.jsonl": "mine"}


@pytest.mark.parametrize("text", ["{\n", "5\n", "\n", "\ud800"])
def test_a_whole_shard_without_answers_is_refused(folder, text):
    data = text.encode("utf-8", "surrogatepass")
    (folder / "shard-00001.jsonl").write_bytes(data)
    facts = {"sha256": hashlib.sha256(data).hexdigest(), "records": 1, "tokens": 1}
    (folder / MANIFEST).write_text(json.dumps({"target": "tiny", "shards": {"shard-00001.jsonl": facts}}))
    with pytest.raises(Refusal, match="holds no answers, one JSON object a line"):
        list(read_shards(folder))


def test_a_whole_shard_is_never_rewritten(folder):
    with pytest.raises(ValueError, match="never rewritten"):
        Shards(folder, "tiny").write(1, [record(5)])


def test_data_of_another_target_is_refused(folder):
    for attempt in (lambda: Shards(folder, "large"), lambda: list(read_shards(folder, "large"))):
        with pytest.raises(Refusal, match="another target"):
            attempt()
    assert len(list(read_shards(folder))) == 6


def test_a_folder_without_a_readable_manifest_is_refused(folder):
    whole = {"sha256": "0", "records": 1, "tokens": 1}
    entries = [[1], {"shard-0.jsonl": "sha256"}, {"shard-0.jsonl": None}, {"shard-0.jsonl": {"sha256": "0"}},
               {"../data.jsonl": whole}, {"": whole}, {"shard-x.jsonl": whole},
               {"shard-0.jsonl": {**whole, "tokens": "1"}}]
    for content in ("{", "[]", "[" * 100_000, json.dumps({"target": "tiny"}),
                    *(json.dumps({"target": "tiny", "shards": one}) for one in entries)):
        (folder / MANIFEST).write_text(content)
        with pytest.raises(Refusal, match="cannot be read"):
            Shards(folder, "tiny")
    (folder / MANIFEST).unlink()
    with pytest.raises(Refusal, match="no generated data"):
        list(read_shards(folder))
