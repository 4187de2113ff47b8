"""Building once: whole or not at all, by one process, and checked afterwards."""

import errno
import os
import signal
import subprocess
import sys
import time

import pytest

from specdec_lib.hub.build_cache import build_once, checked_folder
from specdec_lib.types import Refusal

MAKER = """
import os, sys, time
from pathlib import Path
from specdec_lib.hub.build_cache import build_once

def make(folder, say):
    (folder / "weights").write_text("half")
    with open(sys.argv[2], "a") as log:
        log.write(f"{os.getpid()}\\n")
    time.sleep(float(sys.argv[3]))
    (folder / "weights").write_text("whole")

print((build_once(Path(sys.argv[1]), make, lambda line: None) / "weights").read_text())
"""


def quiet(line):
    pass


def fill(folder, say):
    (folder / "weights").write_text("whole")


def start(folder, log, seconds):
    return subprocess.Popen([sys.executable, "-c", MAKER, str(folder), str(log), str(seconds)],
                            stdout=subprocess.PIPE, text=True)


def until(condition):
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_folder_is_built_once_and_then_only_checked(tmp_path):
    made = []
    for _ in range(2):
        build_once(tmp_path / "model", lambda folder, say: (made.append(1), fill(folder, say)), quiet)
    assert made == [1]


def test_two_processes_at_once_on_a_cold_cache_build_once(tmp_path):
    log = tmp_path / "log"
    both = [start(tmp_path / "model", log, 0.5) for _ in range(2)]
    assert [process.communicate(timeout=240)[0] for process in both] == ["whole\n", "whole\n"]
    assert len(log.read_text().split()) == 1


def test_a_build_that_fails_leaves_nothing(tmp_path):
    def fail(folder, say):
        fill(folder, say)
        raise RuntimeError("the network went away")

    with pytest.raises(RuntimeError):
        build_once(tmp_path / "model", fail, quiet)
    assert [path.name for path in tmp_path.iterdir()] == ["model.lock"]


def test_a_killed_build_leaves_nothing_under_the_name_and_the_next_start_sweeps_and_succeeds(tmp_path):
    log = tmp_path / "log"
    process = start(tmp_path / "model", log, 60)
    until(log.exists)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "model").exists()
    assert list(tmp_path.glob("model.partial-*"))
    assert (build_once(tmp_path / "model", fill, quiet) / "weights").read_text() == "whole"
    assert not list(tmp_path.glob("model.partial-*"))


def test_waiting_for_another_process_is_reported(tmp_path):
    log, heard = tmp_path / "log", []
    process = start(tmp_path / "model", log, 1)
    until(log.exists)
    build_once(tmp_path / "model", fill, heard.append)
    process.communicate(timeout=240)
    assert heard == ["another process is making model, waiting for it"]


@pytest.mark.parametrize("damage", [
    lambda folder: (folder / "weights").write_text("who"),
    lambda folder: (folder / "weights").unlink(),
    lambda folder: (folder / "manifest.json").write_text("{"),
    lambda folder: (folder / "manifest.json").unlink(),
    lambda folder: (folder / "manifest.json").write_text("[1]"),
    lambda folder: (folder / "manifest.json").write_text('{"weights": 5}'),
    lambda folder: (folder / "manifest.json").write_text("[" * 100_000),
])
def test_a_damaged_folder_is_refused_with_what_to_do(tmp_path, damage):
    damage(build_once(tmp_path / "model", fill, quiet))
    with pytest.raises(Refusal, match="make clean-cache"):
        build_once(tmp_path / "model", fill, quiet)


def test_a_changed_byte_of_the_same_size_is_found_by_the_checksum(tmp_path):
    folder = build_once(tmp_path / "model", fill, quiet)
    (folder / "weights").write_text("whale")
    assert checked_folder(folder) == folder          # sizes alone do not see it
    with pytest.raises(Refusal, match="damaged"):
        checked_folder(folder, deep=True)


def test_a_disk_that_is_too_small_is_refused_before_anything_is_fetched(tmp_path):
    with pytest.raises(Refusal, match="GB are needed"):
        build_once(tmp_path / "model", fill, quiet, needed=10**18)
    assert not (tmp_path / "model").exists()


def test_a_disk_that_fills_up_during_a_build_is_a_refusal(tmp_path):
    def full(folder, say):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(Refusal, match="is full"):
        build_once(tmp_path / "model", full, quiet)
    assert not list(tmp_path.glob("model.partial-*"))


def test_a_cache_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Refusal, match="XDG_CACHE_HOME"):
        build_once(tmp_path / "file" / "model", fill, quiet)
