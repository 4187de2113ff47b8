"""Workers: a drafting process that dies, hangs or fails ends the decode with one sentence, and none stays behind."""

import errno
import multiprocessing
import os
import signal
import threading
import time
from types import SimpleNamespace

import pytest
import torch

from specdec_lib.loop import begin
from specdec_lib.schedules import workers
from specdec_lib.schedules.workers import ThreadWorker, Workers, computing_on, cores_here, shared_prefix, split_cores
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import NO_DICE, Budget, Draft, Refusal

SESSION = begin((1, 2, 3), 20)


def copy(session, budget, dice):
    """Drafts the last tokens of what it is given."""
    return deterministic_chain(session.tokens[-budget.depth:])


def end_itself(session, budget, dice):
    os.kill(os.getpid(), signal.SIGKILL)
    return Draft()


def stumble(session, budget, dice):
    raise MemoryError("no room for the cache")


def sleep(session, budget, dice):
    time.sleep(60)
    return Draft()


def drafted(worker, session, depth=2):
    worker.start(session, Budget(depth), NO_DICE)
    return worker.result().draft.tokens


def alive() -> list[int]:
    return [child.pid for child in multiprocessing.active_children()]


@pytest.mark.parametrize("kind", workers.KINDS)
def test_a_worker_drafts_from_the_tokens_it_is_given_also_after_a_rollback(kind):
    with Workers(kind).open(copy, SESSION) as worker:
        assert drafted(worker, SESSION) == (2, 3)
        assert drafted(worker, begin((1, 2, 3, 4, 5), 20)) == (4, 5)
        assert drafted(worker, begin((1, 2, 7), 20)) == (2, 7)
        assert drafted(worker, begin((9,), 20), 1) == (9,)
    assert not alive()


@pytest.mark.parametrize("kind", workers.KINDS)
def test_a_budget_of_depth_0_drafts_nothing(kind):
    with Workers(kind).open(stumble, SESSION) as worker:
        assert drafted(worker, SESSION, 0) == ()


def test_a_process_is_another_one_with_its_own_core_and_one_thread():
    def tell(session, budget, dice):
        return deterministic_chain((os.getpid(), torch.get_num_threads(), *os.sched_getaffinity(0)))

    before, threads = cores_here(), torch.get_num_threads()
    with Workers("process").open(tell, SESSION) as worker:
        pid, count, *cores = drafted(worker, SESSION, 999)
        assert cores_here() == split_cores(before)[0]
        assert torch.get_num_threads() == min(threads, max(1, len(before) - 1))
    assert pid != os.getpid()
    assert count == 1
    assert frozenset(cores) == split_cores(before)[1]
    assert cores_here() == before
    assert torch.get_num_threads() == threads


def test_restrictions_that_close_in_any_order_give_back_what_the_first_one_found():
    before, kept = cores_here(), torch.get_num_threads()
    torch.set_num_threads(threads := len(before) + 1)          # more than cores: they are given back as they were
    some = split_cores(before)[0]
    one, two = computing_on(some), computing_on(some)
    one.__enter__()
    two.__enter__()
    one.__exit__(None, None, None)
    assert cores_here() == some                    # the second one is still in force
    two.__exit__(None, None, None)
    assert (cores_here(), torch.get_num_threads()) == (before, threads)
    torch.set_num_threads(kept)


def decode_with(what, kill: str = "", by: int = signal.SIGKILL) -> None:
    """Two drafts of a process; `kill` says when it is killed: before the first, between them, or during the second."""
    with Workers("process").open(what, SESSION) as worker:
        assert isinstance(worker, workers.ProcessWorker)
        if kill == "between":
            drafted(worker, SESSION)
        worker.start(SESSION, Budget(2), NO_DICE) if kill == "during" else None
        if kill:
            os.kill(worker.process.pid or 0, by)
            worker.process.join()
        worker.result() if kill == "during" else drafted(worker, SESSION)


@pytest.mark.parametrize(("what", "said"), [(end_itself, "ended in the middle of a decode .signal SIGKILL"),
                                            (stumble, "failed: MemoryError: no room for the cache")])
def test_a_process_that_dies_or_fails_is_one_sentence(what, said):
    before = cores_here()
    with pytest.raises(Refusal, match=said):
        decode_with(what)
    assert not alive()
    assert cores_here() == before


def test_a_process_that_hangs_is_stopped_after_a_while(monkeypatch):
    monkeypatch.setattr(workers, "PATIENCE", 0.2)
    with pytest.raises(Refusal, match="has not answered"):
        decode_with(sleep)
    assert not alive()


def test_a_stopped_process_blocks_nothing_however_long_the_prompt_is(monkeypatch):
    monkeypatch.setattr(workers, "PATIENCE", 0.2)
    session = begin(range(200_000), 20)
    with Workers(workers.PROCESS).open(copy, session) as worker:
        os.kill(worker.process.pid or 0, signal.SIGSTOP)
        worker.start(session, Budget(2), NO_DICE)
        with pytest.raises(Refusal, match="has not answered"):
            worker.result()
    assert not alive()


@pytest.mark.parametrize("moment", ["before", "between", "during"])
def test_a_killed_process_is_one_sentence_at_any_moment(moment):
    with pytest.raises(Refusal, match="signal SIGKILL"):
        decode_with(sleep if moment == "during" else copy, moment)
    assert not alive()


def test_a_process_that_ends_by_a_signal_without_a_name_is_one_sentence_too():
    with pytest.raises(Refusal, match="signal 40;"):
        decode_with(copy, "before", by=40)


def test_where_no_process_can_be_started_one_sentence_says_so(monkeypatch):
    def full():
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    before = cores_here()
    monkeypatch.setattr(os, "fork", full)
    with pytest.raises(Refusal, match="no drafting process can be started .Resource temporarily"):
        decode_with(copy)
    assert cores_here() == before


def test_an_interrupt_before_a_process_has_begun_to_serve_is_not_for_it(monkeypatch):
    serve = workers.serve

    def late(*words):
        time.sleep(0.4)
        serve(*words)

    monkeypatch.setattr(workers, "serve", late)
    with Workers("process").open(copy, SESSION) as worker:
        time.sleep(0.1)
        os.kill(worker.process.pid, signal.SIGINT)
        assert drafted(worker, SESSION) == (2, 3)


def test_an_interrupt_leaves_no_process():
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        decode_with(sleep)
    assert not alive()


def test_a_process_whose_parent_was_killed_ends_by_itself():
    ours, theirs = multiprocessing.Pipe()

    def parent():
        with Workers("process").open(copy, SESSION) as worker:
            drafted(worker, SESSION)
            theirs.send(worker.process.pid)
            time.sleep(60)

    one = multiprocessing.get_context("fork").Process(target=parent)
    one.start()
    child = ours.recv()
    one.kill()
    one.join()
    deadline = time.time() + 60
    while time.time() < deadline and running(child):
        time.sleep(0.05)
    assert not running(child)


def running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_drafters_in_threads_have_a_stream_of_their_own_each_and_leave_it_to_the_next(monkeypatch):
    made, waited = [], []
    monkeypatch.setattr(workers, "STREAMS", [])
    monkeypatch.setattr(workers.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(workers.torch.cuda, "Stream", lambda: made.append(
        SimpleNamespace(synchronize=lambda: waited.append(1))) or made[-1])
    one, two = ThreadWorker(None), ThreadWorker(None)
    assert one.stream is not two.stream
    first = one.stream
    one.close()
    assert waited == [1]                           # what a draft that failed left running is done
    three = ThreadWorker(None)
    assert three.stream is first
    for worker in (one, two, three):
        worker.close()
    assert made == [first, made[1]]
    assert sorted(map(id, workers.STREAMS)) == sorted(map(id, made))     # each is there once


def test_a_kind_that_does_not_exist_is_refused():
    with pytest.raises(Refusal, match="inline, thread, process"):
        Workers("gpu")


@pytest.mark.parametrize(("one", "other", "same"), [((), (1,), 0), ((1, 2), (1, 2, 3), 2), ((1, 2, 3), (1, 2), 2),
                                                   ((1, 5), (1, 2), 1), ((1, 2), (1, 2), 2)])
def test_a_call_names_the_tokens_that_the_process_already_has(one, other, same):
    assert shared_prefix(one, other) == same


def test_one_core_is_shared_and_more_are_split():
    assert split_cores(frozenset({3})) == (frozenset({3}), frozenset({3}))
    assert split_cores(frozenset({0, 1, 4})) == (frozenset({0, 1}), frozenset({4}))
