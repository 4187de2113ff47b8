"""A shard under way: a kill loses no answer, and the resumed run makes what one makes that was not killed."""

import gzip
import json

import pytest
import torch

from specdec_lib.models.llama.batched import BatchedLlama
from specdec_lib.training.data import begun_shard
from specdec_lib.training.data.answers import AnswerPlan, PromptLot, make_answers, sized
from specdec_lib.training.data.prompt_sources import Asked, Sieve
from specdec_lib.training.data.shards import Shards, read_shards
from tests.training.babble import Babble, target

PLAN = AnswerPlan(size=12, max_new=40)
TALKS = [[f"w{4 + n} w{5 + n} w9", f"w7 w{6 + n}"] for n in range(20)]


class Killed(Exception):
    """Stands for a signal."""


@pytest.fixture
def steps(monkeypatch):
    """Every step is written down; counts the steps of the target and raises at a given one."""
    torch.set_num_threads(1)
    monkeypatch.setattr(begun_shard, "EVERY", 0.0)
    monkeypatch.setattr(begun_shard, "SHARE", float("inf"))
    monkeypatch.setattr("specdec_lib.files.sync", lambda path: None)       # slow, and it is no power cut that we play
    counted = {"steps": 0, "kill at": None}
    real = BatchedLlama.step

    def step(self, *words):
        if counted["steps"] == counted["kill at"]:
            raise Killed
        counted["steps"] += 1
        return real(self, *words)

    monkeypatch.setattr(BatchedLlama, "step", step)
    return counted


def made(folder, prompts, tokens=300, **more):
    return make_answers(target(), Babble(), folder, tokens, 5, prompts, plan=PLAN, **{"batch": 5, **more})


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "talks.jsonl"
    path.write_text("".join(json.dumps({"family": "talk", "turns": turns}) + "\n" for turns in TALKS))
    return [path]


@pytest.mark.parametrize("file", [False, True])
@pytest.mark.parametrize("batch", [5, 11])         # 11 rows lie in two blocks of the cache, and are sorted by length
def test_kills_between_any_two_steps_lose_none_of_them_and_change_no_record(steps, prompts, tmp_path, file, batch):
    given = prompts if file else []
    made(tmp_path / "whole", given, batch=batch)
    total, steps["steps"] = steps["steps"], 0
    for kill in range(7, total, total // 4):
        steps["kill at"] = kill
        with pytest.raises(Killed):
            made(tmp_path / "killed", given, batch=batch)
    steps["kill at"] = None
    made(tmp_path / "killed", given, batch=batch)
    assert steps["steps"] == total
    assert list(read_shards(tmp_path / "killed")) == list(read_shards(tmp_path / "whole"))
    assert {path.name: path.read_bytes() for path in (tmp_path / "killed").iterdir()} == {
        path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}


def test_what_was_begun_with_other_settings_or_cannot_be_read_is_begun_anew(steps, prompts, tmp_path):
    made(tmp_path / "whole", prompts, 150)
    total = steps["steps"]
    for number, spoil in enumerate((lambda path: path.write_bytes(b"half"), rewritten(events=[[9, [1], True]]),
                                    lambda path: path.write_bytes(gzip.compress(b"[1]")), rewritten(key="other"))):
        folder, steps["steps"], steps["kill at"] = tmp_path / str(number), 0, 20
        with pytest.raises(Killed):
            made(folder, prompts, 150)
        spoil(Shards(folder, target_of(tmp_path / "whole")).begun_path(0))
        steps["steps"], steps["kill at"] = 0, None
        made(folder, prompts, 150)
        assert steps["steps"] == total
        assert list(read_shards(folder)) == list(read_shards(tmp_path / "whole"))


def target_of(folder):
    return json.loads((folder / "manifest.json").read_text())["target"]


def rewritten(**change):
    """Changes what was kept."""
    def spoil(path):
        kept = json.loads(gzip.decompress(path.read_bytes()))
        assert set(change) <= set(kept)
        path.write_bytes(gzip.compress(json.dumps(kept | change).encode()))

    return spoil


def test_between_two_writes_a_second_passes(steps, prompts, tmp_path, monkeypatch):
    now, written = [0.0], []
    monkeypatch.setattr(begun_shard, "EVERY", 1.0)
    monkeypatch.setattr(begun_shard.time, "monotonic", lambda: now[0])
    real = Shards.keep_begun

    def keep(self, place, state):
        written.append((now[0], place))
        real(self, place, state)

    monkeypatch.setattr(Shards, "keep_begun", keep)
    monkeypatch.setattr(begun_shard.BegunShard, "take", ticking(begun_shard.BegunShard.take, now))
    made(tmp_path / "data", prompts, 300)
    assert 3 < len(written) < now[0] / 0.9
    assert not list((tmp_path / "data").glob("begun-*"))


def ticking(take, now):
    def later(self, reply):
        now[0] += 0.3
        take(self, reply)

    return later


def test_a_shard_has_answers_for_many_under_way_and_no_others_than_planned_for_few():
    assert [sized(AnswerPlan(size=size), batch).size for size, batch in ((12, 32), (12, 1024), (9000, 1024))] == [
        12, 8192, 9000]


def test_without_a_limit_of_the_target_prompts_are_answered_up_to_the_length_that_is_read():
    lot = PromptLot(Babble(), AnswerPlan(max_new=40, read=9), 0, Sieve(), iter(()), 9)
    asked = [lot.begin(Asked((" ".join(["w5"] * words),), "file")) for words in (6, 7)]      # and three of a template
    assert [request is None for request in asked] == [False, True]
