"""A tiny encoder-decoder with random weights, and a dictionary of a few dozen made-up words."""

from dataclasses import replace

import torch

from specdec_lib import catalog
from specdec_lib.cards import Kit, TokenizerFacts
from specdec_lib.checkpoints.checkpoint_files import Checkpoint
from specdec_lib.seq2seq.alphabet import END, VOCAB, source_ids
from specdec_lib.seq2seq.network import BlockDecoder, EncoderDecoder, Sizes
from specdec_lib.seq2seq.stored import state_of
from specdec_lib.seq2seq.verifier import Verifier

SIZES = Sizes(width=16, heads=2, encoder_layers=1, decoder_layers=2, encoder_inner=16, decoder_inner=16, positions=96)
SOURCE = source_ids("photograph")
SOUNDS = {"a": "AH", "b": "B", "c": "K", "d": "D", "e": "EH", "f": "F", "g": "G", "i": "IH", "k": "K", "l": "L"}


def network(seed: int = 0) -> EncoderDecoder:
    """A verifier with random weights in float64, which says different things at different places."""
    torch.manual_seed(seed)
    net = EncoderDecoder(SIZES).double()
    for parameter in net.parameters():
        parameter.requires_grad_(False)
    net.decoder.head *= 3                          # confident enough that its best token changes along an output
    return net


def drafter_checkpoint(seed: int = 1) -> Checkpoint:
    """A drafter with random weights, as a kit hands it out."""
    torch.manual_seed(seed)
    sizes = replace(SIZES, encoder_layers=0, block=25)
    return Checkpoint("g2p-drafter", state_of(BlockDecoder(sizes).double()), {"sizes": sizes.as_dict()}, {})


def kit(sampling=None, source=SOURCE, seed: int = 0) -> Kit:
    """A kit whose target is bound to a source; the drafter is in float64 as well."""
    target = Verifier(network(seed)).bound(source)
    facts = TokenizerFacts(end=frozenset({END}), vocab=VOCAB, context=target.context)
    return Kit(target, facts, sampling, nodes=8, checkpoints={"g2p-drafter": drafter_checkpoint()},
               parts=catalog.make_part)


def dictionary(folder):
    """A file in the dictionary's format: every letter has one sound."""
    words = [f"{a}{b}{c}" for a in "bcdfgkl" for b in "aei" for c in "bdgkl"]
    path = folder / "toy.dict"
    path.write_text("".join(f"{word} {' '.join(SOUNDS[letter] for letter in word)}\n" for word in words))
    return path
