"""What a block drafter is worth: its first pass on held-out outputs, and tokens per forward in live decodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Generator

from specdec_lib import catalog
from specdec_lib.cards import Kit
from specdec_lib.checkpoints.checkpoint_files import Checkpoint
from specdec_lib.loop import decode
from specdec_lib.measure import rows, tokens_per_target_forward
from specdec_lib.seq2seq.alphabet import END, PAD
from specdec_lib.seq2seq.dictionary import Spelling
from specdec_lib.seq2seq.network import BlockDecoder, EncoderDecoder
from specdec_lib.seq2seq.verifier import Verifier
from specdec_lib.training.data.spellings import SpellingBatch
from specdec_lib.training.losses.masked_block import block_targets, fill, random_starts

LOOKED = 10                                        # slots of the block that is looked at during a fit


@torch.no_grad()
def first_pass_figures(net: BlockDecoder, verifier: EncoderDecoder, looked: Mapping[str, SpellingBatch]) -> dict:
    """By kind, the slots right in a row from the first on, on average, after a random prefix of each output."""
    out = {}
    for kind, batch in looked.items():
        encoded, mask = verifier.encoder.run(batch.source)
        start = random_starts(batch.targets, Generator().manual_seed(0))
        wanted = block_targets(batch.targets, start, LOOKED)
        found = fill(net, net.memory(encoded, mask), batch.inputs, start, LOOKED).argmax(-1)
        right = (found == wanted) & (wanted != PAD)
        out[kind] = {"in a row": round(float(right.long().cumprod(1).sum(1).float().mean()), 4),
                     "first": round(float(right[:, 0].float().mean()), 4)}
    return out


def block_figures(stored: Checkpoint, verifier: EncoderDecoder, some: Mapping[str, Sequence[Spelling]],
                  blocks: Sequence[int]) -> dict:
    """Tokens per target forward of `specdec` by kind and block length, in greedy decodes with the stored drafter."""
    out: dict = {}
    for kind, spellings in some.items():
        for size in blocks:
            found = []
            for one in spellings:
                target = Verifier(verifier).bound(one.source)
                kit = Kit(target, checkpoints={stored.name: stored}, parts=catalog.make_part)
                *_, last = decode(target.start, target, *catalog.build(f"specdec(k={size})", kit),
                                  end=frozenset({END}), max_new_tokens=80, source=one.source)
                found += rows(last)
            out.setdefault(kind, {})[f"k = {size}"] = round(tokens_per_target_forward(found) or 0.0, 3)
    return out
