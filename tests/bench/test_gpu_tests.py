"""Tests of a device in groups: one that fails or hangs leaves the others alone, and what passed is not run again."""

import json
import re
from pathlib import Path

import pytest

from specdec_lib.bench import gpu_tests
from specdec_lib.bench.gpu_cells import read_object
from specdec_lib.bench.gpu_tests import GROUPS, LATE, run_group, run_tests
from specdec_lib.types import Refusal
from tests import test_cuda

SOME = {"adds": "adds", "fails": "fails"}


@pytest.fixture
def tests(tmp_path):
    (tmp_path / "tests").mkdir()
    path = tmp_path / "tests" / "test_some.py"
    path.write_text("def test_adds():\n    assert 1 + 1 == 2\n\n\ndef test_fails():\n    assert 1 == 2\n\n\n"
                    "import pytest\n@pytest.mark.cuda\ndef test_adds_on_a_gpu():\n    assert 1 == 2\n")
    return path


def test_a_group_that_fails_is_told_and_run_again_and_what_passed_is_not(tests, tmp_path):
    said, out = [], tmp_path / "out"
    assert not run_tests("cpu", out, said.append, path=tests, groups=SOME)
    assert said == ["tests: adds passed", "tests: fails failed"]
    told = json.loads((out / "tests.json").read_text())
    assert {name: group["exit_code"] for name, group in told["groups"].items()} == {"adds": 0, "fails": 1}
    assert "assert 1 == 2" in (out / "tests" / "fails.txt").read_text()
    tests.write_text("def test_fails():\n    pass\n")
    said.clear()
    assert run_tests("cpu", out, said.append, path=tests, groups=SOME)
    assert said == ["tests: fails passed"]


def test_a_group_that_takes_too_long_is_ended_and_the_next_one_runs(tests, tmp_path, monkeypatch):
    assert run_group("cpu", "adds", tmp_path / "adds.txt", tests, patience=0.05) == LATE
    assert (tmp_path / "adds.txt").exists()
    assert run_group("cpu", "adds", tmp_path / "none.txt", tmp_path / "tests" / "none.py", 60) not in (0, LATE)
    assert "not found" in (tmp_path / "none.txt").read_text()      # what goes to stderr is kept, too
    codes, said = {"adds": LATE, "fails": 0}, []
    monkeypatch.setattr(gpu_tests, "run_group", lambda device, chosen, *more: codes[chosen])
    assert not run_tests("cpu", tmp_path / "out", said.append, path=tests, groups=SOME)
    assert said == ["tests: adds took too long", "tests: fails passed"]


def test_a_cut_between_groups_keeps_what_was_run(tests, tmp_path):
    left = [True]

    def check():
        if not left:
            raise KeyboardInterrupt
        left.pop()
    with pytest.raises(KeyboardInterrupt):
        run_tests("cpu", tmp_path / "out", lambda line: None, check, tests, SOME)
    assert [*json.loads((tmp_path / "out" / "tests.json").read_text())["groups"]] == ["adds"]


@pytest.mark.parametrize("content", ["[]", "{", '{"exit_code": 0, "said": ""}', '{"groups": {"adds": 0}}'])
def test_a_damaged_or_older_verdict_is_refused(tests, tmp_path, content):
    (tmp_path / "tests.json").write_text(content)
    with pytest.raises(Refusal, match="tests.json is damaged"):
        run_tests("cpu", tmp_path, lambda line: None, path=tests, groups=SOME)
    with pytest.raises(Refusal, match="a pipe or a device"):
        read_object(Path("/dev/null"))


def test_every_test_of_a_gpu_is_in_one_group():
    def chosen(expression, name):                  # as pytest's -k reads it
        return eval(re.sub(r"\b(?!(?:and|or|not)\b)\w+", lambda word: str(word[0] in name), expression))
    names = [name for name in vars(test_cuda) if name.startswith("test_")]
    assert len(names) > 12
    assert {name: [group for group, words in GROUPS.items() if chosen(words, name)] for name in names
            if sum(chosen(words, name) for words in GROUPS.values()) != 1} == {}
    assert all(any(chosen(words, name) for name in names) for words in GROUPS.values())
