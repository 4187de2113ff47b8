"""The rules of a capture, on a `torch.cuda` that is played: which streams, whose memory, and what a failure leaves."""

import gc
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from specdec_lib.collection import without_collection
from specdec_lib.models.llama import graph_capture
from specdec_lib.models.llama.graph_capture import captured, captures

DEVICE = torch.device("cpu")


class PlayedStream:
    def __init__(self, log, name):
        self.log, self.name = log, name

    def wait_stream(self, other):
        self.log.append(f"{self.name} waits for {other.name}")


class PlayedCuda:
    """Streams and graphs that only write down what is asked of them; like torch's, a failed capture keeps its stream.
    """

    def __init__(self):
        self.log, self.graphs, self.made = [], [], 0
        self.now = self.usual = PlayedStream(self.log, "usual")

    def Stream(self, device):                      # noqa: N802 - torch's name
        self.made += 1
        return PlayedStream(self.log, f"stream {self.made}")

    def current_stream(self, device):
        return self.now

    def set_stream(self, stream):
        self.now = stream

    @contextmanager
    def stream(self, stream):
        before, self.now = self.now, stream
        yield
        self.now = before

    def CUDAGraph(self):                           # noqa: N802 - torch's name
        self.graphs.append(SimpleNamespace(name=f"graph {len(self.graphs)}"))
        self.graphs[-1].pool = lambda name=self.graphs[-1].name: f"memory of {name}"
        return self.graphs[-1]

    @contextmanager
    def graph(self, graph, pool, stream, mode):
        before, self.now = self.now, stream
        self.log.append(f"{graph.name} on {stream.name} in {pool or 'its own memory'}, {mode}")
        yield
        self.now = before
        self.log.append(f"{graph.name} ends")


@pytest.fixture
def cuda(monkeypatch):
    played = PlayedCuda()
    monkeypatch.setattr(graph_capture.torch, "cuda", played)
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: played.log.append("workspaces go"),
                        raising=False)
    graph_capture.capture_streams.cache_clear()
    yield played
    graph_capture.capture_streams.cache_clear()
    graph_capture.LOST.clear()


def a_cache():
    return SimpleNamespace(kv=torch.zeros(1), first_graph=None)


def test_work_runs_once_outside_then_in_a_graph_that_takes_a_workspace_of_its_own(cuda):
    before = captures()
    graph, out = captured(lambda: (cuda.log.append(f"work on {cuda.now.name}"), (torch.ones(1),))[1], a_cache())
    assert (graph.name, out[0].item(), captures() - before) == ("graph 1", 1, 1)
    assert cuda.now is cuda.usual
    assert cuda.log == [
        "stream 1 waits for usual", "work on stream 1", "usual waits for stream 1",
        "graph 0 on stream 2 in its own memory, thread_local", "workspaces go", "workspaces go", "graph 0 ends",
        "graph 1 on stream 2 in memory of graph 0, thread_local", "workspaces go", "work on stream 2",
        "workspaces go", "graph 1 ends"]


def test_graphs_of_one_cache_share_their_memory_those_of_two_do_not_and_streams_are_made_once(cuda):
    one, other = a_cache(), a_cache()
    for cache in (one, other, one):
        captured(lambda: (torch.ones(1),), cache)
    places = [line.rpartition(" in ")[2] for line in cuda.log if " on stream 2 in " in line]
    assert places == [f"{place}, thread_local" for place in (
        "its own memory", "memory of graph 0", "its own memory", "memory of graph 2", "memory of graph 0")]
    assert cuda.made == 2


def test_a_failed_capture_leaves_the_thread_on_its_stream_and_the_next_one_other_memory(cuda):
    cache, before = a_cache(), captures()
    captured(lambda: (torch.ones(1),), cache)

    def fails():
        if cuda.now.name == "stream 2":
            raise RuntimeError("not while a stream is captured")
        return (torch.ones(1),)
    with pytest.raises(RuntimeError, match="not while"):
        captured(fails, cache)
    assert cuda.now is cuda.usual
    assert cache.first_graph is None
    assert [graph.name for graph in graph_capture.LOST] == ["graph 2"]
    captured(lambda: (torch.ones(1),), cache)
    assert "graph 4 on stream 2 in memory of graph 3, thread_local" in cuda.log
    assert cache.first_graph.name == "graph 3"
    assert captures() - before == 2
    assert not graph_capture.CAPTURING.locked()


def test_nothing_is_collected_while_a_graph_is_captured(cuda):
    seen = []
    captured(lambda: (seen.append(gc.isenabled()), (torch.ones(1),))[1], a_cache())
    assert seen == [False, False]
    assert gc.isenabled()
    gc.disable()
    try:
        with without_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_threads_capture_one_after_the_other(cuda):
    inside, most, gate = [], [], threading.Barrier(3)

    def work():
        inside.append(1)
        most.append(len(inside))
        threading.Event().wait(0.01)
        inside.pop()
        return (torch.ones(1),)

    def one():
        gate.wait()
        captured(work, a_cache())
    threads = [threading.Thread(target=one) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 6
