"""The target's features of its examples: hidden states and the top of its distributions, kept on disk.

One forward of the target serves every drafter that learns from it. A batch is computed at its first use and written
whole or not at all, so a killed run resumes; beyond `limit` bytes no more batches are written, and they are computed
again at each use.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor

from specdec_lib.files import write_atomically
from specdec_lib.heads.base import Target
from specdec_lib.topk import top_k
from specdec_lib.training.data.batches import Batch, padded
from specdec_lib.training.data.examples import Example

TOP = 32                                           # tokens kept of every distribution
ROWS = 512                                         # rows whose logits exist at the same time
CHECKSUM = "crc32"                                 # its name in a file


class Features:
    """Hidden states after `levels` of a target over groups of examples; call it with a group of indices."""

    def __init__(self, target: Target, data: Sequence[Example], levels: Sequence[int], folder: Path | None,
                 limit: float = 8e9):
        self.target, self.data, self.levels, self.folder = target, data, tuple(sorted(levels)), folder
        self.limit, self.computed = limit, 0
        self.written = sum(path.stat().st_size for path in folder.glob("*.safetensors")) if folder else 0

    def __call__(self, group: Sequence[int], levels: Sequence[int] = ()) -> Batch:
        """The batch of these examples on the target's device, with the hidden states of `levels` alone."""
        examples = [self.data[i] for i in group]
        sizes = [len(example) for example in examples]
        flat = self.flat(examples)
        streams = {level: padded(flat["streams"][:, self.levels.index(level)].split(sizes)) for level in levels}
        return Batch(padded([torch.tensor(example.tokens) for example in examples]),
                     torch.tensor([len(example.prompt) for example in examples]), torch.tensor(sizes), streams,
                     padded(flat["top_ids"].long().split(sizes)),
                     padded(flat["top_logp"].float().split(sizes))).to(self.target.device)

    def flat(self, examples: Sequence[Example]) -> dict[str, Tensor]:
        """The rows of these examples, concatenated: from disk if they are there, else from the target."""
        if self.folder is None:
            return self.compute(examples)
        path = self.folder / f"{self.key(examples)}.safetensors"
        kept = read_features(path)
        if kept is not None:
            return kept
        flat = self.compute(examples)
        if self.written < self.limit:
            self.written += write_features(path, flat)
        return flat

    def key(self, examples: Sequence[Example]) -> str:
        """A name that changes with the tokens, the levels, the target's dtype and which distributions are kept."""
        told = json.dumps([str(self.target.dtype), self.levels, TOP,
                           [[len(example.prompt), *example.tokens] for example in examples]])
        return hashlib.sha256(told.encode()).hexdigest()[:24]

    def compute(self, examples: Sequence[Example]) -> dict[str, Tensor]:
        """One forward of the target over each example."""
        self.computed += sum(map(len, examples))
        parts = [text_features(self.target, example.tokens, self.levels,
                               len(example.prompt) - 1) for example in examples]
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def text_features(target: Target, tokens: tuple[int, ...], levels: tuple[int, ...],
                  first: int = 0) -> dict[str, Tensor]:
    """Hidden states [S, levels, hidden] and the distribution after each token: top ids and log-probabilities [S, TOP].

    Distributions before row `first` stay zero: prompts are not drafted, and the head is a quarter of a small model.
    """
    lm, last = target.fresh(), target.layers
    lm.tap(tuple(sorted({*levels, last})))
    lm.prefill(tokens)
    streams, top = lm.features(tokens), min(TOP, target.vocab)        # the last level is normed, as the head's input
    ids = torch.zeros(len(tokens), top, dtype=torch.int32)
    logp = torch.zeros(len(tokens), top, dtype=torch.float16)
    with torch.inference_mode():
        for at in range(max(0, first), len(tokens), ROWS):
            logits = target.weights.head(streams[at:at + ROWS, -1].contiguous())
            value, column = top_k(logits, top)
            ids[at:at + ROWS] = column.int().cpu()
            logp[at:at + ROWS] = (value.float() - torch.logsumexp(logits.float(), -1, keepdim=True)).half().cpu()
        return {"streams": streams[:, :len(levels)].to("cpu", copy=True), "top_ids": ids, "top_logp": logp}


def read_features(path: Path) -> dict[str, Tensor] | None:
    """The stored tensors; None if the file is missing or damaged."""
    kept = read_tensors(path)
    return kept and kept[0]


def write_features(path: Path, flat: dict[str, Tensor]) -> int:
    """Writes the file whole or not at all; returns its bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_tensors(path, {name: tensor.contiguous() for name, tensor in flat.items()})
    return path.stat().st_size


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]] | None:
    """What `write_tensors` wrote; None if it is missing or damaged. A file of an older version has no checksum."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), "pt") as file:
            about = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}        # noqa: SIM118
    except (SafetensorError, OSError):
        return None
    return (tensors, about) if about.get(CHECKSUM, "") in ("", checksum(tensors)) else None


def write_tensors(path: Path, tensors: dict[str, Tensor], about: Mapping[str, str] = MappingProxyType({})) -> None:
    """Writes tensors and texts whole or not at all, with a checksum."""
    from safetensors.torch import save_file

    told = {**about, CHECKSUM: checksum(tensors)}
    write_atomically(path, lambda partial: save_file(tensors, partial, told))


def checksum(tensors: Mapping[str, Tensor]) -> str:
    """CRC-32 of names and content: it is computed at every read, in a third of a millisecond for a megabyte."""
    found = 0
    for name in sorted(tensors):
        content = tensors[name].reshape(-1).view(torch.uint8).numpy().data
        found = zlib.crc32(content, zlib.crc32(name.encode(), found))
    return f"{found:08x}"
