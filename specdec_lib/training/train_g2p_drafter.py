"""`specdec train g2p-drafter`: a decoder that fills masked blocks, taught on the verifier's own greedy outputs.

The encoder is the verifier's, frozen, and is stored with the verifier alone. The verifier is the one in `--out`, else
the shipped one. Its outputs for the training words are made once and kept on disk.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from specdec_lib.checkpoints.card import CARD, SHIPPED, write_card
from specdec_lib.checkpoints.checkpoint_files import Checkpoint, save_checkpoint
from specdec_lib.files import alone_in, write_text
from specdec_lib.seq2seq.alphabet import END, source_ids
from specdec_lib.seq2seq.network import BlockDecoder, EncoderDecoder
from specdec_lib.seq2seq.search import greedy
from specdec_lib.seq2seq.stored import DRAFTER, PLAN, VERIFIER, fingerprint_of, load_verifier, state_of
from specdec_lib.training.data.spellings import Pair, SpellingBatch, batch_of
from specdec_lib.training.eval.block_drafts import block_figures, first_pass_figures
from specdec_lib.training.fit import keep_log
from specdec_lib.training.fit_g2p import BLOCKS, drafter_loss, fit_spellings
from specdec_lib.training.marks import mark_recipe
from specdec_lib.training.pipeline import TrainingOrder
from specdec_lib.training.train_g2p import (
    LONGEST_OUTPUT,
    Say,
    Told,
    batches_for,
    held_spellings,
    made_of,
    settings_of,
    shown,
    training_words,
)
from specdec_lib.types import Refusal

LIMITS = ("It drafts for the verifier that `made` names by its checksum, whose encoder it shares, and for no other.",
          "Slots are filled independently of each other, so neighbours may repeat or miss a sound.",
          "It was taught on outputs of the verifier for words, and on their concatenation for sentences: what the"
          " verifier says of a whole sentence may differ.")
WORDS = 60_000                                     # training words whose outputs are made, at most
MEASURED = (150, 40)                               # held-out words and sentences that are decoded for the card


def train_g2p_drafter(order: TrainingOrder, made: Mapping, say: Say, progress: Told,
                      dictionary: Path | None = None) -> Checkpoint:
    """Trains, measures and stores the drafter; Refusal without a dictionary or a verifier."""
    train, held = training_words(dictionary)
    verifier, stored = load_verifier(order.out if (order.out / VERIFIER / CARD).is_file() else SHIPPED)
    folder, sum_of = order.out / "work" / DRAFTER, stored.card["sha256"]
    with alone_in(folder):
        mark_recipe(folder, {"verifier": sum_of[:12], "letters of a step": order.batch, "dtype": made.get("dtype")})
        some = list(train)[::max(1, -(-len(train) // WORDS))]
        pairs = verifier_outputs(verifier, some, folder / f"outputs-{sum_of[:12]}.json", say)
        torch.manual_seed(order.seed)
        net, settings = started_from(verifier), settings_of(order)
        batches = replace(batches_for(train, order), pairs=pairs)
        looked = held_drafts(verifier, held, order.seed)
        say(f"training {DRAFTER} for {order.minutes:.1f} minutes of processor time")
        now = fit_spellings(net, batches, drafter_loss(net, verifier, order.seed, made.get("dtype") == "bfloat16"),
                            settings, folder, lambda: first_pass_figures(net, verifier, looked), shown(progress))
    about = {"target": VERIFIER, "limits": list(LIMITS), "measured": {},
             **made_of({**made, "verifier": sum_of}, settings, now, net.sizes, batches)}
    done = save_checkpoint(order.out, DRAFTER, state_of(net), {"sizes": net.sizes.as_dict(), "verifier": sum_of},
                           about, PLAN, None, fingerprint_of(verifier))
    keep_log(order.out / DRAFTER, folder)
    say("measuring")
    few = {kind: some[::max(1, len(some) // most)][:most] for (kind, some), most in
           zip(held_spellings(held, order.seed).items(), MEASURED, strict=True)}
    card = {**done.card, "measured": {"tokens per forward on held-out": block_figures(done, verifier, few, BLOCKS)}}
    write_card(order.out, DRAFTER, card)
    return Checkpoint(done.name, done.state, done.meta, card)


def started_from(verifier: EncoderDecoder) -> BlockDecoder:
    """A drafter that begins as the verifier's decoder, with random queries and without an encoder of its own.

    The paper's begins with the verifier's encoder alone; ours has little time to learn where in the source it is.
    """
    net = BlockDecoder(replace(verifier.sizes, encoder_layers=0, block=max(BLOCKS)))
    net.load_state_dict({**net.state_dict(), **verifier.decoder.state_dict()})
    return net


def verifier_outputs(verifier: EncoderDecoder, words: Sequence[str], kept: Path, say: Say) -> list[Pair]:
    """Each word with the verifier's greedy output, without END; those that do not end are left out."""
    if not kept.is_file():
        say(f"reading {len(words):,} words with the verifier")
        found = greedy(verifier, [source_ids(word) for word in words], LONGEST_OUTPUT // 2, 1024)
        write_text(kept, json.dumps([list(output) for output in found]))
    try:
        outputs = json.loads(kept.read_text())
        pairs = [(word, tuple(output[:-1])) for word, output in zip(words, outputs, strict=True)
                 if len(output) > 1 and output[-1] == END]
    except (ValueError, TypeError):
        raise Refusal(f"{kept} is damaged: delete it, and the outputs are made again") from None
    if not pairs:
        raise Refusal("the verifier ends no word: train it longer before its drafter")
    return pairs


def held_drafts(verifier: EncoderDecoder, held, seed: int) -> dict[str, SpellingBatch]:
    """Held-out words and sentences with the verifier's outputs, to look at during a fit."""
    out = {}
    for kind, some in held_spellings(held, seed).items():
        chosen = some[::max(1, len(some) // 256)][:256 if kind == "words" else 48]
        said = greedy(verifier, [one.source for one in chosen], LONGEST_OUTPUT)
        out[kind] = batch_of([(one.text, tokens) for one, tokens in zip(chosen, said, strict=True)])
    return out
