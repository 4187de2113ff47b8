"""The trained networks from their checkpoints: the verifier, and the drafter that shares its encoder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from specdec_lib.checkpoints.card import SHIPPED, shelf_at
from specdec_lib.checkpoints.checkpoint_files import Checkpoint, load_checkpoint
from specdec_lib.files import json_sha256
from specdec_lib.seq2seq.network import BlockDecoder, EncoderDecoder, Sizes
from specdec_lib.types import Refusal

VERIFIER, DRAFTER = "g2p", "g2p-drafter"
ALPHABET = "39 phonemes without stress"
PLAN = {"*norm": "float32", "*": "int8/112"}      # groups of half a row or a quarter: nothing is padded


def state_of(net: nn.Module) -> dict[str, Tensor]:
    """The trained tensors by name, as a checkpoint stores them."""
    return {name: tensor.detach().clone() for name, tensor in net.named_parameters()}


def take(net: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Puts stored tensors into a network; Refusal where a name or a shape differs."""
    own = dict(net.named_parameters())
    if {name: tensor.shape for name, tensor in own.items()} != {name: tensor.shape for name, tensor in state.items()}:
        raise Refusal("this checkpoint holds other tensors than its sizes say: copy it again, or train it anew with"
                      f" `specdec train {VERIFIER}`")
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(state[name])
    for parameter in own.values():
        parameter.requires_grad_(False)


def sizes_of(stored: Checkpoint) -> Sizes:
    """The sizes that a checkpoint was made with; Refusal where they are no sizes."""
    try:
        return Sizes(**stored.meta["sizes"])
    except (KeyError, TypeError):
        raise Refusal(f"the checkpoint {stored.name} names no sizes: copy it again") from None


def verifier_from(stored: Checkpoint) -> EncoderDecoder:
    """The verifier's network, frozen."""
    net = EncoderDecoder(sizes_of(stored))
    take(net, stored.state)
    return net


def drafter_from(stored: Checkpoint) -> BlockDecoder:
    """The drafter's decoder, frozen; its encoder is the verifier's."""
    net = BlockDecoder(sizes_of(stored))
    take(net, stored.state)
    return net


def load_verifier(folder: Path | None = None) -> tuple[EncoderDecoder, Checkpoint]:
    """The verifier in a folder of checkpoints, by default the shipped one. Refusal without one."""
    place = shelf_at(folder)
    stored = load_checkpoint(place if (place / VERIFIER).is_dir() else SHIPPED, VERIFIER)
    return verifier_from(stored), stored


def fingerprint_of(net: EncoderDecoder) -> dict[str, str | None]:
    """{architecture, tokenizer, weights} of a verifier, as `checkpoints.fingerprint` compares them."""
    words = [f"{word & 0xffff:04x}" for word in
             net.decoder.head.detach().flatten()[:64].bfloat16().view(torch.int16).tolist()]
    return {"architecture": json_sha256({"encoder-decoder": net.sizes.as_dict()}), "tokenizer": json_sha256(ALPHABET),
            "weights": "".join(words)}
