"""Cores: a timing cell has its own while it runs, and waits for them."""

import os
import threading

import pytest

from specdec_lib.sweep import work
from specdec_lib.sweep.cluster import reserved
from specdec_lib.types import Refusal


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_a_pinned_process_has_its_cores_for_itself_and_gets_the_others_back():
    before = os.sched_getaffinity(0)
    with work.pinned(1) as mine:
        assert os.sched_getaffinity(0) == set(mine)
        assert len(mine) == 1
    assert os.sched_getaffinity(0) == before


def test_two_cells_never_have_a_core_at_the_same_time():
    every, seen = len(os.sched_getaffinity(0)), []
    inside, done = threading.Event(), threading.Event()

    def second():
        inside.wait()
        with work.pinned(1) as mine:
            seen.append((done.is_set(), mine))

    other = threading.Thread(target=second)
    other.start()
    with work.pinned(every):
        inside.set()
        other.join(3 * work.WAIT)                  # long enough to get in, if it could
        assert seen == []
        done.set()
    other.join()
    assert [held for held, _ in seen] == [True]


def test_more_cores_than_there_are_are_refused():
    with pytest.raises(Refusal, match="wants 9999 cores"), work.pinned(9999):
        pass


class OnCpu:
    cores, run = None, type("R", (), {"plan": type("P", (), {"device": "cpu"})})


class OnGpu(OnCpu):
    run = type("R", (), {"plan": type("P", (), {"device": "cuda"})})


def test_a_timing_cell_reserves_all_cores_of_the_largest_node_or_what_its_grid_says():
    nodes = [{"CPU": 2.0}, {"CPU": 8.0}]
    assert reserved(OnCpu, nodes) == (8, 0)
    assert reserved(type("Four", (OnCpu,), {"cores": 4}), nodes) == (4, 0)
    assert reserved(OnGpu, [{"CPU": 4.0, "GPU": 1.0}]) == (4, 1)


def test_what_no_node_has_is_refused():
    with pytest.raises(Refusal, match="needs 9 cores"):
        reserved(type("Nine", (OnCpu,), {"cores": 9}), [{"CPU": 8.0}])
    with pytest.raises(Refusal, match="and a GPU"):
        reserved(OnGpu, [{"CPU": 8.0}])
