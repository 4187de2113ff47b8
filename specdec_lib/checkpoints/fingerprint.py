"""Fingerprints: which model a checkpoint was trained for, and whether the target is that model.

Another architecture or tokenizer is refused, since shapes or token ids would differ; other weights of the same model
give a warning, since decoding stays lossless and only the acceptance rate may fall.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from specdec_lib.checkpoints.trainable import training_command
from specdec_lib.files import json_sha256
from specdec_lib.hub.tokenizer import Tokenizer
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.types import LM, Refusal

SAMPLE = 32                                        # weights taken from each of a few tensors
ALSO_READ = {"llama3": ("low", "high", "original"), "yarn": ("low", "high", "original", "scale"),
             "longrope": ("original", "scale")}     # of a `Rope`
TIES = 1 / 8                                       # share of them that rounding twice (over float16) may change


def fingerprint(target: LM, text: Tokenizer | None) -> dict[str, str | None]:
    """{architecture, tokenizer, weights} of a target, the same in every dtype it can be loaded in.

    None stands for what is unknown: architecture and weights for a model that shares no weights with a drafter (a
    table, some of those that transformers runs), the tokenizer where there is none.
    """
    if hasattr(target, "fingerprint"):             # an encoder-decoder: neither Llama's shape nor a text tokenizer
        return dict(target.fingerprint)            # pyright: ignore[reportAttributeAccessIssue]
    weights = getattr(target, "weights", None)
    return {"architecture": None if weights is None else architecture(weights.shape, getattr(weights, "family", None)),
            "tokenizer": None if text is None else vocabulary(text.tokenizer.get_vocab()),
            "weights": None if weights is None else weight_sample(weights)}


def architecture(shape: LlamaConfig, family: str | None = None) -> str:
    """Hash of the shape without its context, which is a limit; eps with the digits that single precision keeps.

    `family` names a model that transformers runs; None is our own decoder.
    """
    plain = asdict(shape) | {"eps": f"{shape.eps:.3g}", "context": None}
    if not shape.unturned:                         # hashes of models that rotate everywhere are older than this field
        del plain["unturned"]
    read = ("theta", "kind", "factor", *ALSO_READ.get(shape.rope.kind, ()))
    plain["rope"] = {name: value if name == "kind" else float(value) for name, value in plain["rope"].items()
                     if name in read}
    return json_sha256(plain if family is None else plain | {"family": family})


def vocabulary(pieces: Mapping[str, int]) -> str:
    """Hash of all pieces with their ids, in the order of the ids."""
    return json_sha256(sorted((token, piece) for piece, token in pieces.items()))


def weight_sample(weights: Any) -> str:
    """Some weights of the final norm, the embedding and the last layer, as bfloat16 in hexadecimal.

    Of a model that transformers runs, they come from the tensors that it names (`SharedWeights.sampled`).
    """
    tensors = (weights.sampled if hasattr(weights, "sampled") else
               (weights.norm, weights.embedding, weights.layers[-1].down.dense()))
    words = [evenly_spaced(tensor).to(torch.float32).to(torch.bfloat16).view(torch.int16) for tensor in tensors]
    return "".join(f"{word & 0xffff:04x}" for word in torch.cat(words).tolist())


def compare(here: Mapping[str, str | None], made_for: Mapping[str, Any], name: str, target: str,
            model: str = "another model", advice: Callable[[], str] | None = None) -> str | None:
    """None where the checkpoint `name`, made for `model`, fits the target; else a warning.

    Raises Refusal, with `advice`, by default the command that makes a fitting one, for another architecture or
    tokenizer. Keys that `made_for` lacks are not compared (an n-gram table fits any model with its tokenizer). An
    unknown tokenizer of the target gives a warning, an unknown architecture a Refusal.
    """
    advised = advice or (lambda: f"{training_command(name, target)} makes one that fits")
    for what in ("architecture", "tokenizer"):
        mine, theirs = here.get(what), made_for.get(what)
        if theirs is not None and mine != theirs and not (what == "tokenizer" and mine is None):
            raise Refusal(f"the checkpoint {name} was trained for {model}, and {target} has another {what}:"
                          f" {advised()}")
    if made_for.get("tokenizer") is not None and here.get("tokenizer") is None:
        return f"{target} comes without a tokenizer: that the checkpoint {name} knows its tokens is not checked"
    if made_for.get("weights") is not None and not samples_match(here.get("weights") or "", made_for["weights"]):
        return (f"the checkpoint {name} was trained on other weights than {target} has: its drafts stay lossless but"
                f" may be accepted less often; {advised()}")
    return None


def samples_match(one: str, two: str) -> bool:
    """Whether two samples differ by rounding at most: one unit in the last place of a few numbers."""
    if len(one) != len(two):
        return False
    pairs = [(int(one[i:i + 4], 16), int(two[i:i + 4], 16)) for i in range(0, len(one), 4)]
    apart = [abs(a - b) for a, b in pairs if a != b]
    return max(apart, default=0) <= 1 and len(apart) <= TIES * len(pairs)


def evenly_spaced(tensor: Tensor) -> Tensor:
    """`SAMPLE` elements, evenly spaced over the flattened tensor."""
    flat = tensor.flatten()
    places = torch.linspace(0, len(flat) - 1, SAMPLE, dtype=torch.float64).round().long()
    return flat[places.to(flat.device)].cpu()
