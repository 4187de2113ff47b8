"""The drafter's loss: a block of masked slots after a random prefix, with glancing and label smoothing.

Source: Spec-Drafter (SpecDec, arXiv 2203.16487), which trains with the glancing of GLAT (Qian et al. 2021): a first
pass without gradient fills the block; of as many slots as it got wrong, times a ratio that falls from 0.5 to 0.3 over
the training, random ones are revealed; the loss is on the others. Slots after the END are left out.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from specdec_lib.seq2seq.alphabet import PAD
from specdec_lib.seq2seq.network import BlockDecoder, Memory

FIRST_RATIO, LAST_RATIO = 0.5, 0.3
SMOOTHING = 0.1


def glancing_ratio(done: float) -> float:
    """The share of as many slots as were wrong that is revealed after this share of the training."""
    return FIRST_RATIO + (LAST_RATIO - FIRST_RATIO) * min(1.0, max(0.0, done))


def block_targets(targets: Tensor, start: Tensor, block: int) -> Tensor:
    """The `block` targets from `start [B]` on [B, block]; PAD behind a target's end."""
    places = start[:, None] + torch.arange(block)
    filled = F.pad(targets, (0, block), value=PAD)
    return filled.gather(1, places.clamp(max=filled.shape[1] - 1))


def random_starts(targets: Tensor, dice: Generator) -> Tensor:
    """For each output the length of a prefix, from none up to all but its last token [B]."""
    lengths = (targets != PAD).sum(1)
    return (torch.rand(len(targets), generator=dice) * lengths).long()


def glanced(wanted: Tensor, predicted: Tensor, ratio: float, dice: Generator) -> Tensor:
    """Tokens that are revealed [B, block], PAD elsewhere: `ratio` times as many as are predicted wrong, at random."""
    real = wanted != PAD
    wrong = (real & (predicted != wanted)).sum(1)
    count = (wrong * ratio + 0.5).long()           # rounded, so that one wrong slot of one can still be learnt
    count = torch.minimum(count, (real.sum(1) - 1).clamp(min=0))       # one slot at least keeps its loss
    score = torch.rand(wanted.shape, generator=dice).masked_fill(~real, 2.0)
    rank = score.argsort(1).argsort(1)
    return torch.where(real & (rank < count[:, None]), wanted, PAD)


def block_mask(rows: int, start: Tensor, block: int) -> Tensor:
    """Which keys each row sees [B, 1, rows + block, rows + block]: rows of the prefix first, then the slots.

    A row of the prefix sees its past; a slot sees the first `start + 1` rows (BEGIN is one) and all slots.
    """
    places = torch.arange(rows)
    causal = (places[:, None] >= places).expand(len(start), -1, -1)
    prefix = (places <= start[:, None])[:, None, :].expand(-1, block, -1)
    none, every = torch.zeros(len(start), rows, block, dtype=torch.bool), torch.ones(len(start), block, block,
                                                                                     dtype=torch.bool)
    return torch.cat((torch.cat((causal, none), 2), torch.cat((prefix, every), 2)), 1)[:, None]


def fill(net: BlockDecoder, memory: Memory, inputs: Tensor, start: Tensor, block: int,
         revealed: Tensor | None = None) -> Tensor:
    """Logits [B, block, V] of the slots after `start` tokens of the outputs, whose inputs begin with BEGIN."""
    rows = int(start.max()) + 1
    places = torch.arange(rows)
    x = torch.cat((net.inputs(inputs[:, :rows], places).expand(len(start), -1, -1),
                   net.slots(start + 1, block, revealed)), 1)
    return net.run(x, memory, block_mask(rows, start, block))[0][:, rows:]


def masked_block_loss(net: BlockDecoder, memory: Memory, inputs: Tensor, targets: Tensor, block: int, done: float,
                      dice: Generator) -> tuple[Tensor, dict]:
    """Smoothed cross-entropy over the slots that are not revealed, and what the first pass got right by slot."""
    start = random_starts(targets, dice)
    wanted = block_targets(targets, start, block)
    with torch.no_grad():
        predicted = fill(net, memory, inputs, start, block).argmax(-1)
    revealed = glanced(wanted, predicted, glancing_ratio(done), dice)
    logits = fill(net, memory, inputs, start, block, revealed)
    asked = wanted.masked_fill(revealed != PAD, PAD)
    loss = F.cross_entropy(logits.float().flatten(0, 1), asked.flatten(), ignore_index=PAD, label_smoothing=SMOOTHING)
    real = wanted != PAD
    right = ((predicted == wanted) & real).sum(0) / real.sum(0).clamp(min=1)
    return loss, {"right": [round(value, 4) for value in right[:5].tolist()]}
