"""Decodes on a device that is not there: tensors without content, on which a hidden wait or a wrong device is an error.

Prints, as JSON, how often each method moved something to the host in each round, and how often the host had waited for
a copy to the device by its end. A process of its own, because the device is registered for all of it.
"""

import json
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from specdec_lib.heads.eagle_tree import NUMBERS

NAME = "absent"
PUBLISHED = "published "                           # before a method that drafts with a published block drafter
TOGETHER = ("ar", "eagle", "eagle2", "draft-model")        # also decoded three at once


class AbsentDevice(TorchDispatchMode):
    """Runs what touches the device on fake tensors; what comes to the host is counted and replaced by numbers."""

    def __init__(self):
        super().__init__()
        self.fake, self.moved, self.waited = FakeTensorMode(allow_non_fake_inputs=True), 0, 0
        self.dice = torch.Generator().manual_seed(0)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        leaves = tree_leaves((args, kwargs))
        there = [leaf for leaf in leaves if isinstance(leaf, FakeTensor) and leaf.device.type == NAME]
        to_host = any(isinstance(leaf, torch.device) and leaf.type == "cpu" for leaf in leaves)
        if there and to_host:                      # `_to_copy`, or `to` in inference mode
            self.moved += 1
            return self.numbers(there[0])
        onto = any(isinstance(leaf, torch.device) and leaf.type == NAME for leaf in leaves)
        copied = func.overloadpacket is torch.ops.aten.copy_ and len(there) == 1 and there[0] is args[0]
        if onto and not there or copied:
            sent = any(isinstance(leaf, torch.Tensor) for leaf in leaves)
            self.waited += sent and not any(leaf is True for leaf in leaves)       # non_blocking
        if there or onto:
            args, kwargs = tree_map(self.faked, (args, kwargs))
            with self.fake:
                return func(*args, **kwargs)
        return func(*args, **kwargs)

    def faked(self, leaf):
        real = isinstance(leaf, torch.Tensor) and not isinstance(leaf, FakeTensor)
        return self.fake.from_tensor(leaf) if real else leaf

    def numbers(self, tensor: FakeTensor) -> torch.Tensor:
        """Statistics of rows as a model might send them: falling logits, tokens, log-sum-exp, entropy."""
        if tensor.ndim == 1:                       # packed tables with indices, of which 0 is always one
            return torch.zeros(tensor.shape, dtype=tensor.dtype)
        if tensor.ndim == 3:                       # candidates of slots: tokens, log-probabilities
            tokens = torch.randint(0, 40, tensor.shape[1:], generator=self.dice)
            return torch.stack((tokens, -1. - torch.arange(tensor.shape[2]).expand(tensor.shape[1:]))).to(tensor.dtype)
        rows, columns = tensor.shape
        if columns == NUMBERS + 1:                 # candidates of a tree: each another token after the context
            one = torch.tensor([0, -1, 0, 0.9, 0.9, 0.05, 1, 0], dtype=tensor.dtype).repeat(rows, 1)
            one[:, 0], one[:, 2] = torch.arange(rows), -0.01 * torch.arange(rows)
            return one
        k = (columns - 1) // 2                     # an odd number of columns is something else, and any numbers do
        tokens = torch.randint(0, 40, (rows, k), generator=self.dice)
        return torch.cat((torch.arange(k, 0, -1).expand(rows, k), tokens, torch.full((rows, 1), k + 1),
                          torch.ones(rows, 1)), 1)[:, :columns].to(tensor.dtype)


def moved_together(mode: AbsentDevice, name: str, count: int = 3) -> list[int]:
    """How often something was moved to the host in each forward that so many sequences share, drafting included."""
    from specdec_lib import catalog
    from specdec_lib.batches.loop import BatchRequest, decode_together
    from specdec_lib.batches.supported import in_batch
    from specdec_lib.loop import begin
    from tests.test_cuda import output_kit

    kit, requests, ends = output_kit(NAME, False), [], [mode.moved]
    shared = in_batch(kit.target)
    for place in range(count):
        own = replace(kit, target=shared.member(kit.target), indexes={}, memory={})
        requests.append(BatchRequest(begin(tuple(range(40 + place)), 6), own.target, catalog.build(name, own)))

    def score(asked):
        found = shared.score(asked)
        ends.append(mode.moved)
        return found

    assert len(list(decode_together(requests, count, score, fill=shared.fill))) == count
    return [after - before for before, after in pairwise(ends)]


def main(names: list[str], static: bool) -> None:
    from specdec_lib import catalog
    from specdec_lib.loop import decode
    from tests.heads.published_block import with_published
    from tests.test_cuda import output_kit

    _setup_privateuseone_for_python_backend(NAME)
    mode, told = AbsentDevice(), {}
    with mode, TemporaryDirectory() as folder:
        for name in names:
            kit = output_kit(NAME, static)
            if name.startswith(PUBLISHED):
                kit = with_published(kit, Path(folder))
            method, rounds, waits, before = catalog.build(name.removeprefix(PUBLISHED), kit), [], [], 0
            for session in decode(tuple(range(40)), kit.target, *method, max_new_tokens=5):
                rounds.append(mode.moved - before)
                waits.append(mode.waited)
                before = mode.moved
            told[name] = {"moved": rounds, "waited": waits, "drafted": [len(one.draft) for one in session.rounds]}
            if name in TOGETHER:
                told[name]["together"] = moved_together(mode, name)
            mode.moved = 0
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[2:], sys.argv[1] == "captured")
