"""What tests of drafters share: batches of a tiny target, logits of slots, its own answers, short fits."""

from dataclasses import replace
from types import SimpleNamespace

import torch

from specdec_lib import catalog
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.checkpoints.checkpoint_files import Checkpoint
from specdec_lib.loop import decode
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.training.data.batches import Batch
from specdec_lib.training.data.examples import Example
from specdec_lib.training.data.features import Features
from specdec_lib.training.losses.objective import Objective
from specdec_lib.training.nets.draft_lm import DraftLMNet
from specdec_lib.training.nets.eagle import EagleNet
from specdec_lib.training.nets.early_exit import EarlyExitNet
from specdec_lib.training.recipes import Recipe, recipe, start

IDS = torch.tensor([0, 2, 3, 6, 8, 12, 13, 19, 21, 26, 30, 31, 32, 33, 37, 39])


def drafters(target: Transformer, ids: torch.Tensor = IDS, random: bool = True) -> dict:
    """One of each kind, small."""
    torch.manual_seed(0)
    return {"eagle": EagleNet(target, ids, (1, 2, 3), depth=3, random=random),
            "draft-lm": DraftLMNet(target, ids, (0, 3), random=random),
            "early-exit": EarlyExitNet(target, ids, (1, 3), rank=4, random=random)}


def stirred(drafter, seed: int = 0):
    """The same drafter with noise on every parameter, so that nothing is left at zero or one."""
    dice = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in drafter.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=dice))
    return drafter


def batch_of(target: Transformer, data: list[Example], levels=()) -> Batch:
    return Features(target, data, levels, None)(range(len(data)), levels)


def logits(drafter, batch: Batch) -> list[torch.Tensor]:
    """[B, S, rows] of every entry of slots."""
    with torch.no_grad():
        return [x @ drafter.frozen.rows.T for x in drafter.slots(batch)]


def checkpoint(name: str, drafter) -> Checkpoint:
    """The drafter as a reader of the shelf would get it."""
    return Checkpoint(name, {key: tensor.clone() for key, tensor in drafter.state().items()}, drafter.meta(), {})


def ready(name: str, target: Transformer, ids: torch.Tensor = IDS) -> Recipe:
    """The recipe of this name; what it goes on from, if anything, is untrained, and so on."""
    which = recipe(name)
    if not which.upon:
        return which
    return replace(which, base=checkpoint(which.upon, start(ready(which.upon, target, ids), target,
                                                            SimpleNamespace(ids=ids))))


def answered(target: Transformer, prompts: list[Example], tokens: int, end=frozenset()) -> list[Example]:
    """The prompts with the target's own greedy answers, made by the loop."""
    out = []
    for example in prompts:
        lm = target.fresh()
        method = catalog.build("ar", Kit(lm, TokenizerFacts(end=end), parts=catalog.make_part))
        *_, last = decode(example.prompt, lm, *method, max_new_tokens=tokens, end=end)
        out.append(replace(example, output=last.output))
    return out


def learned(drafter, batch: Batch, steps: int = 30, rate: float = 0.02):
    """The drafter after some steps on one batch."""
    optimiser = torch.optim.Adam(drafter.parameters(), lr=rate)
    for _ in range(steps):
        optimiser.zero_grad()
        Objective()(drafter, batch)[0].backward()
        optimiser.step()
    return drafter
