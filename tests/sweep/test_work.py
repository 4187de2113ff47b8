"""Cores: a timing cell has its own while it runs, and waits for them."""

import os
import threading
from types import SimpleNamespace

import pytest

from specdec_lib.sweep import work
from specdec_lib.sweep.cluster import reserved
from specdec_lib.sweep.run import totals, warnings
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


def test_cells_of_two_commits_or_processors_and_times_of_a_busy_machine_are_warned_of():
    cell = SimpleNamespace(timed=True)
    found = [(cell, work.CellResult(made={"commit": name, "machine": {"processor": name, "load": load, "cores": 2}}))
             for name, load in (("a", 3.0), ("b", 3.1), ("b", None))]
    commits, processors, busy = warnings(found)
    assert commits == "the cells come from 2 commits: b (2), a (1)"
    assert processors == "the cells come from 2 processors: b (2), a (1)"
    assert busy.startswith("the machine had other work while 1 of 3 timing cells ran")
    cell.timed = False
    assert warnings(found[1:]) == []


def test_a_cell_counts_drafts_and_plain_decoding_beside_it_and_an_unknown_count_is_none():
    row = SimpleNamespace(drafted=4, accepted=2, nll=.5, not_best=None)
    sam, plain = (SimpleNamespace(method=name, cost=SimpleNamespace(seconds=seconds), score=None, prompt_tokens=5,
                                  outcome=SimpleNamespace(rows=(row,), prefill=seconds + 1, bought=3 * seconds,
                                                          forwards=4, tokens=())) for name, seconds in (("sam", 2),
                                                                                                        ("ar", 5)))
    assert list(work.timed([plain, sam], "sam").values()) == [2, 3, 15, 5]
    told = work.counted(SimpleNamespace(question_id=1, family="qa"), [sam])
    assert (told["drafted"], told["accepted"], told["not_best"]) == (4, 2, None)
    assert totals(SimpleNamespace(name="a", spec="sam"), work.CellResult((told,)))["tokens_per_target_forward"] == 1.5
