"""CUDA graphs played on a CPU: what was captured runs again, operation by operation, in the memory of its capture.

A graph knows addresses and no Python: a number that was read while it was captured stays as it was, and so does the
memory it found. The graphs of a cache share their memory, so running one may overwrite what others left behind. Here it
always does: before a graph runs, the intermediate results of all of them and the results of those captured later are
filled with numbers that nobody can use. Two of one cache at the same time are an error. What waits for the device, or
reads memory of the host, is one while a graph is captured, as on a GPU.

As a process: decodes each method with such graphs and with the arithmetic alone, without compiled code, which no graph
would hold. Prints, as JSON, what every round drafted and what was emitted.
"""

import json
import os
import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten
WAITS = {aten.item, aten._local_scalar_dense, aten.nonzero, aten.masked_select, aten.equal, aten.unique_dim,
         aten._unique2, aten.repeat_interleave}
FROM_HOST = {aten.lift_fresh, aten.lift_fresh_copy}
CHOOSES = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}


class Forbidden(RuntimeError):
    """What no stream allows while it is captured."""


def tensors(tree) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def memory(tensor: torch.Tensor) -> int:
    """Where its numbers lie; packed weights do not say it."""
    return id(tensor) if tensor.is_mkldnn else tensor.untyped_storage().data_ptr()


class Capture(TorchDispatchMode):
    """Records operations while they run."""

    def __init__(self, graph: "ReplayedGraph"):
        super().__init__()
        self.graph = graph

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, func.overloadpacket
        given = tensors((args, kwargs))
        if name in WAITS or name in CHOOSES and any(one.dtype in (torch.bool, torch.uint8) for one in tensors(args[1])):
            raise Forbidden(f"{func} waits for the device while a graph is captured")
        if name in FROM_HOST:
            raise Forbidden(f"{func} reads memory of the host while a graph is captured")
        out = func(*args, **kwargs)
        known = {memory(one) for one in given}
        fresh = [one if memory(one) not in known else None for one in tensors(out)]
        self.graph.operations.append((func, args, kwargs, fresh))
        return out


class ReplayedGraph:
    """The operations of one capture."""

    def __init__(self):
        self.operations: list[tuple] = []

    def capture(self, compute):
        with Capture(self):
            out = compute()
        kept = set(map(memory, out))
        made = [one for *_, fresh in self.operations for one in fresh if one is not None]
        self.passing = [one for one in made if memory(one) not in kept]
        self.results = [one for one in made if memory(one) in kept]
        return out

    def replay(self) -> None:
        for func, args, kwargs, fresh in self.operations:
            for old, new in zip(fresh, tensors(func(*args, **kwargs)), strict=True):
                if old is not None:
                    old.copy_(new)


def spoil(some: list[torch.Tensor]) -> None:
    """Fills them with what no later result can be right with."""
    for one in some:
        one.fill_(float("nan") if one.is_floating_point() else True if one.dtype == torch.bool else
                  torch.iinfo(one.dtype).max)


class SharedMemory:
    """The graphs of one cache, in the order of their capture."""

    def __init__(self):
        self.graphs: list[ReplayedGraph] = []
        self.running = False

    def launch(self, work) -> tuple:
        """`CapturedWork.launch` as it is on a GPU."""
        if self.running:
            raise Forbidden("two graphs of one cache run at the same time")
        self.running = True
        if work.graph is None:
            work.compute()                         # the first run outside
            work.graph = ReplayedGraph()
            work.out = work.graph.capture(work.compute)
            self.graphs.append(work.graph)
        for graph in self.graphs:
            spoil(graph.passing)
        for graph in self.graphs[self.graphs.index(work.graph):]:
            spoil(graph.results)
        work.graph.replay()
        self.running = False
        return work.out


class Copied:
    """The event behind a copy from pinned memory, which is written again only after a wait for it."""

    recorded = False

    def record(self) -> None:
        if self.recorded:
            raise Forbidden("pinned memory is written again before it was copied")
        self.recorded = True

    def synchronize(self) -> None:
        self.recorded = False


class Launches:
    """Stands for `CapturedWork.launch` and counts."""

    def __init__(self):
        self.count, self.graphs = 0, 0

    def __call__(self, work) -> tuple:
        cache, work.copied = work.cache, work.copied or Copied()
        if work.graph is not None and not work.copied.recorded:
            raise Forbidden("no event follows the copy of the inputs")
        if cache.first_graph is None:
            cache.first_graph = SharedMemory()
        before = len(cache.first_graph.graphs)
        out = cache.first_graph.launch(work)
        self.graphs += len(cache.first_graph.graphs) - before
        self.count += 1
        return out


def decoded(spec: str, lengths: tuple[int, ...], sampled: bool, folder: Path) -> list:
    """What each round drafted, and what was emitted, for prompts of these lengths one after the other on one target.

    A published drafter is written to the folder.
    """
    from specdec_lib import catalog
    from specdec_lib.dice import Dice
    from specdec_lib.loop import decode
    from specdec_lib.sampling import Sampling
    from specdec_lib.types import NO_DICE
    from tests.conftest import random_text
    from tests.fake_device import PUBLISHED
    from tests.heads.published_block import with_published
    from tests.test_cuda import output_kit, weights

    weights.cache_clear()                          # what was captured lies on them
    kit, told, name = output_kit("cpu", True), [], spec.removeprefix(PUBLISHED)
    kit = kit if name == spec else with_published(kit, folder)
    for length in lengths:
        prompt, dice = random_text(random.Random(length), length), Dice(length) if sampled else NO_DICE
        *_, session = decode(prompt, kit.target, *catalog.build(name, kit), max_new_tokens=16, dice=dice,
                             sampling=Sampling(0.8) if sampled else None)
        drafts = [[list(one.draft.tokens), list(one.draft.parents)] for one in session.rounds]
        told.append({"drafts": drafts, "output": list(session.output)})
    return told


def as_on_a_device() -> None:
    """Chains are asked for at once, where a CPU would be asked token by token."""
    from specdec_lib.heads.eagle import EagleHead
    from specdec_lib.models.llama.greedy_chain import chains
    from specdec_lib.what.draft_model import DraftModel

    EagleHead.on_device = True
    DraftModel.at_once = lambda self, session: (session.sampling is None or session.sampling.greedy) and chains(
        self.model)


def main(lengths: tuple[int, ...], sampled: bool, specs: list[str]) -> None:
    from specdec_lib.models.llama.cuda_graph import CapturedWork

    os.environ["CC"] = "no-compiler"               # nothing has compiled yet
    as_on_a_device()
    alone, told = CapturedWork.launch, {}
    with TemporaryDirectory() as folder:
        for spec in specs:
            launches = Launches()
            CapturedWork.launch = lambda work, launches=launches: launches(work)
            replayed = decoded(spec, lengths, sampled, Path(folder))
            CapturedWork.launch = alone
            computed = decoded(spec, lengths, sampled, Path(folder))
            told[spec] = {"replayed": replayed, "computed": computed, "graphs": launches.graphs,
                          "launched": launches.count}
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main(tuple(map(int, sys.argv[1].split(","))), sys.argv[2] == "sampled", sys.argv[3:])
