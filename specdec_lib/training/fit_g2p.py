"""Fits of the grapheme-to-phoneme networks: batches by step, one loss each, resumable through `fit.run_steps`.

Time is the processor's, per thread, so that a fit which is paused or shares the machine loses none of its minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import process_time

import torch
import torch.nn.functional as F
from torch import Generator, nn

from specdec_lib.seq2seq.alphabet import PAD
from specdec_lib.seq2seq.network import BlockDecoder, EncoderDecoder
from specdec_lib.training.data.batches import place_seed
from specdec_lib.training.data.spellings import SpellingBatch, SpellingBatches
from specdec_lib.training.fit import (
    LOG,
    Looks,
    Progress,
    Settings,
    descend,
    never,
    open_log,
    optimiser_of,
    recorder,
    resume,
    run_steps,
    share_done,
)
from specdec_lib.training.losses.masked_block import SMOOTHING, masked_block_loss

BLOCKS = (5, 10, 25)                               # lengths that the drafter learns, one a step
Loss = Callable[[SpellingBatch, Progress, float], tuple[torch.Tensor, dict]]
Shown = Callable[[Progress, float, dict], None]


def fit_spellings(net: nn.Module, batches: SpellingBatches, loss_of: Loss, settings: Settings, folder: Path,
                  judge: Callable[[], dict] | None = None, progress: Shown = lambda now, done, line: None,
                  clock: Callable[[], float] | None = None) -> Progress:
    """Trains in place and returns how far it came; resumes the fit that `folder` holds, if any.

    `loss_of(batch, now, share done)` is the loss and what to log. Refusal for another or a damaged fit in `folder`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    optimiser = optimiser_of(net, settings)
    now = resume(folder, net, optimiser, settings)
    if share_done(now, settings) >= 1:
        return now
    clock = clock or (lambda: process_time() / torch.get_num_threads())

    def take(now: Progress) -> tuple[int, dict]:
        batch = batches(now.step)
        optimiser.zero_grad(set_to_none=True)
        loss, shown = loss_of(batch, now, share_done(now, settings))
        size = descend(loss, net, optimiser, settings.clip)
        return batch.tokens, {"loss": round(float(loss.detach()), 4), "gradient": round(float(size), 3), **shown}

    with open_log(folder / LOG, now) as log:
        record = recorder(log, settings, progress)
        look = Looks(judge, log, settings, now, clock) if judge else never
        return run_steps(net, optimiser, settings, folder, now, take, record, look, clock)


def verifier_loss(net: EncoderDecoder, brief: bool = False) -> Loss:
    """Smoothed cross-entropy of every next token; `brief` computes in bfloat16 where torch does so automatically."""
    def loss_of(batch: SpellingBatch, now: Progress, done: float) -> tuple[torch.Tensor, dict]:
        with torch.autocast("cpu", torch.bfloat16, enabled=brief):
            logits = net.teacher_forced(batch.source, batch.inputs)
        loss = F.cross_entropy(logits.float().flatten(0, 1), batch.targets.flatten(), ignore_index=PAD,
                               label_smoothing=SMOOTHING)
        return loss, {}
    return loss_of


def drafter_loss(net: BlockDecoder, verifier: EncoderDecoder, seed: int, brief: bool = False) -> Loss:
    """The masked-block loss after the verifier's frozen encoder; block lengths take turns."""
    def loss_of(batch: SpellingBatch, now: Progress, done: float) -> tuple[torch.Tensor, dict]:
        dice = Generator().manual_seed(place_seed(seed, now.step))
        block = BLOCKS[now.step // 2 % len(BLOCKS)]
        with torch.autocast("cpu", torch.bfloat16, enabled=brief):
            with torch.no_grad():
                encoded, mask = verifier.encoder.run(batch.source)
            return masked_block_loss(net, net.memory(encoded, mask), batch.inputs, batch.targets, block, done, dice)
    return loss_of


@torch.no_grad()
def teacher_forced_figures(net: EncoderDecoder, batches: list[SpellingBatch]) -> dict:
    """Cross-entropy in nats per token, without smoothing, and the share of tokens predicted right."""
    nats = right = tokens = 0.0
    for batch in batches:
        logits = net.teacher_forced(batch.source, batch.inputs).float()
        nats += float(F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=PAD,
                                      reduction="sum"))
        right += float(((logits.argmax(-1) == batch.targets) & (batch.targets != PAD)).sum())
        tokens += batch.tokens
    return {"nats": round(nats / tokens, 4), "right": round(right / tokens, 4)}
