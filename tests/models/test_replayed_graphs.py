"""What a CUDA graph would replay drafts and emits what the arithmetic does; `tests/replayed_graphs.py` says how."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from specdec_lib.models.llama.cache import KVCache
from specdec_lib.models.llama.cuda_graph import CapturedWork
from tests.replayed_graphs import Forbidden, Launches
from tests.test_cuda import METHODS, SHAPE

ROOT = Path(__file__).parents[2]
DRAFTED_AT_ONCE = ("eagle", "eagle2", "block-diffusion", "draft-model", "published block-diffusion(cut=False)",
                   "published ddtree(price=0)")
THREADS = ("pearl(workers='thread', depth=3)", "specbranch(workers='thread')")
TIMED = {"pearl": "pearl(depth=3)", "duodecoding": "duodecoding(depth=3)", "double": "double(depth=3)"}


def decoded(how: str, lengths: str, *specs: str):
    done = subprocess.run([sys.executable, "-m", "tests.replayed_graphs", lengths, how, *specs], capture_output=True,
                          text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def greedy():
    return decoded("greedy", "11,240", "ar", *DRAFTED_AT_ONCE, *THREADS)


@pytest.mark.parametrize("spec", [*DRAFTED_AT_ONCE, *THREADS])
def test_replayed_graphs_draft_and_emit_what_the_arithmetic_does(greedy, spec):
    one = greedy[spec]
    assert one["replayed"] == one["computed"]
    assert one["launched"] > one["graphs"] > 1
    assert [text["output"] for text in one["replayed"]] == [text["output"] for text in greedy["ar"]["computed"]]
    assert any(len(tokens) > 1 for text in one["replayed"] for tokens, _ in text["drafts"])


@pytest.mark.long
@pytest.mark.parametrize("how", ["greedy", "sampled"])
@pytest.mark.parametrize("name", METHODS)
def test_every_lossless_method_does(name, how):
    spec = TIMED.get(name, name)                   # whose lengths would follow the clock
    one = decoded(how, "11,240,300", spec)[spec]
    assert one["replayed"] == one["computed"]
    assert one["launched"] > 0


class Work(CapturedWork):
    """Some arithmetic on one number of its input."""

    def __init__(self, compute, cache=None):
        super().__init__(8, cache or KVCache(SHAPE, 1, torch.float32, "cpu"))
        self.numbers, self.body = self.staged.numpy().view("int64"), compute

    def compute(self):
        return (self.body(self.inputs.view(torch.long)),)

    def __call__(self, launches, number):
        self.wait()
        self.numbers[:] = number
        self.send()
        return launches(self)[0]


def test_a_graph_reads_its_inputs_and_keeps_what_python_read():
    launches, work = Launches(), Work(lambda number: number * 10 + 1)
    assert [work(launches, number).tolist() for number in (3, 4, 5)] == [[31], [41], [51]]
    assert (launches.graphs, launches.count) == (1, 3)
    frozen = Work(lambda number: number * 10 + int(frozen.numbers[0]))
    assert [frozen(launches, number).tolist() for number in (3, 4)] == [[33], [43]]


@pytest.mark.parametrize(("body", "why"), [(lambda number: number * number.item(), "waits"),
                                           (lambda number: number[number > 0], "waits"),
                                           (lambda number: number.nonzero(), "waits"),
                                           (lambda number: number + torch.tensor([2]), "memory of the host")])
def test_what_no_stream_allows_while_it_is_captured_is_an_error(body, why):
    with pytest.raises(Forbidden, match=why):
        Work(body)(Launches(), 3)


def test_a_graph_overwrites_what_later_ones_of_its_cache_returned_and_nothing_of_others():
    launches, first = Launches(), Work(lambda number: number + 1)
    later, other = Work(lambda number: number + 2, first.cache), Work(lambda number: number + 3)
    one, two, three = (work(launches, 5) for work in (first, later, other))
    assert [part.tolist() for part in (one, two, three)] == [[6], [7], [8]]
    first(launches, 5)
    assert (one.tolist(), three.tolist()) == ([6], [8])
    assert two.tolist() != [7]


def test_pinned_memory_that_is_written_before_it_was_copied_is_an_error():
    launches, work = Launches(), Work(lambda number: number + 1)
    work(launches, 3)
    assert not work.copied.recorded                # it was made after that copy
    work(launches, 4)
    assert work.copied.recorded
    with pytest.raises(Forbidden, match="pinned memory"):
        work.send()


def test_two_graphs_of_one_cache_at_the_same_time_are_an_error():
    launches, inner = Launches(), Work(lambda number: number + 1)
    outer = Work(lambda number: inner(launches, 3), inner.cache)
    with pytest.raises(Forbidden, match="same time"):
        outer(launches, 3)
