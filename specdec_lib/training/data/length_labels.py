"""Labels of a length predictor: at every position of an answer, how many drafted tokens the target accepts.

Source: AdaEAGLE (arXiv 2412.18910), section 3.3. At temperature 0 the accepted tokens are those before the first one
that is not the target's own, and up to there the drafter reads the committed text, so one teacher-forced pass
(`eval/teacher_forced.py`) gives the labels of all positions. The length of a streak that reaches the end of an answer
that was cut is unknown: -1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from specdec_lib.checkpoints.checkpoint_files import Checkpoint
from specdec_lib.heads.base import Target
from specdec_lib.heads.length import DRAFTERS
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.training.data.batches import Batch
from specdec_lib.training.eval.teacher_forced import matches
from specdec_lib.training.nets.base import TrainableDrafter
from specdec_lib.training.nets.draft_lm import DraftLMNet
from specdec_lib.training.nets.eagle import EagleNet
from specdec_lib.training.nets.early_exit import EarlyExitNet
from specdec_lib.types import Refusal

UNKNOWN = -1


@dataclass(frozen=True)
class LengthLabels:
    """Positions to learn from: `tokens` [n], the target's normed `states` [n, hidden] one row earlier, labels [n]."""

    tokens: Tensor
    states: Tensor
    labels: Mapping[str, Tensor]                   # by drafter, int8; UNKNOWN where the text does not show it

    def __len__(self) -> int:
        return len(self.tokens)


def ready_drafter(name: str, stored: Checkpoint, target: Target) -> TrainableDrafter:
    """The trained drafter as it drafts by default, on the target's device. Refusal for an unknown one."""
    ids, meta = stored.state["ids"].to(target.device), stored.meta
    if name == "eagle":
        drafter: TrainableDrafter = EagleNet(target, ids, tuple(meta["taps"]))
    elif name == "draft-lm":
        drafter = DraftLMNet(cast(Transformer, target), ids, tuple(meta["layers"]))
    elif name == "early-exit":
        lowest = min(meta["layers"])
        drafter = EarlyExitNet(cast(Transformer, target), ids, (lowest,), len(stored.state[f"exit.{lowest}.down"]))
    else:
        raise Refusal(f"there is no length predictor for {name!r}; there are: {', '.join(DRAFTERS)}")
    drafter.take(stored.state)
    return drafter.to(target.device)


def labelled_positions(target: Target, batch: Batch, drafters: Mapping[str, TrainableDrafter], longest: int,
                       end: frozenset[int] = frozenset()) -> LengthLabels:
    """All positions of greedy answers from which a token is drafted; `batch` has the hidden states of all levels.

    A position is that of the last known token, which the target has not read; its state is that of the token before.
    """
    anchors = batch.drafted(1)
    anchors[:, 0] = False                          # there is no state before the first token
    states = torch.zeros_like(batch.streams[target.layers])
    states[:, 1:] = batch.streams[target.layers][:, :-1]
    found = {name: kept_lengths(matches(drafter, batch, longest)[0], batch, end)[anchors].to("cpu", torch.int8)
             for name, drafter in drafters.items()}
    return LengthLabels(batch.tokens[anchors].cpu(), states[anchors].to("cpu", torch.float16), found)


def kept_lengths(right: Tensor, batch: Batch, end: frozenset[int] = frozenset()) -> Tensor:
    """Accepted tokens [B, S] of the chains drafted from each position; `right` [longest, B, S] says so of slot k.

    A chain is followed as long as the answer is the target's own greedy one. Where it was right until the answer was
    cut, or until the answer went another way, its length is UNKNOWN; after an end token no more tokens are accepted.
    """
    own = batch.later(batch.tokens, 1) == batch.top_ids[..., 0]               # row t: token t + 1 is the greedy one
    last = batch.tokens.gather(1, (batch.stop - 1)[:, None])
    ended = torch.isin(last, torch.tensor(sorted(end), dtype=last.dtype, device=last.device))       # [B, 1]
    kept = torch.zeros_like(batch.tokens)
    running, told = torch.ones_like(own), torch.ones_like(own)
    for k, slot in enumerate(right):
        inside = batch.drafted(1 + k)
        told = told & ~(running & ~inside & ~ended)                           # the streak reached the cut
        running = running & slot & inside
        kept += running
        if k + 1 < len(right):                                                # accepted, but the text may differ
            told = told & ~(running & ~batch.later(own, k))
    return torch.where(told, kept, UNKNOWN)


def join_labels(parts: Sequence[LengthLabels]) -> LengthLabels:
    """All parts concatenated."""
    return LengthLabels(torch.cat([part.tokens for part in parts]), torch.cat([part.states for part in parts]),
                        {name: torch.cat([part.labels[name] for part in parts]) for name in parts[0].labels})
