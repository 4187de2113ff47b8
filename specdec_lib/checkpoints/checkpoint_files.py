"""Trained checkpoints on disk, each a folder with its weights and a card that says how it was made.

FOLDER/NAME holds `model.safetensors` (quantised, see `quantize.py`), `card.json`, and the card as README.md. What
starts from the target's own layers is stored as a difference from them, so reading it takes the target's weights.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specdec_lib.checkpoints import quantize
from specdec_lib.checkpoints.card import CARD, WEIGHTS, checkpoint_names, lacking_in, read_card, write_card
from specdec_lib.checkpoints.card import SHIPPED as SHIPPED
from specdec_lib.checkpoints.fingerprint import compare, fingerprint
from specdec_lib.checkpoints.trainable import training_advice
from specdec_lib.files import file_sha256, write_atomically
from specdec_lib.hub.tokenizer import Tokenizer
from specdec_lib.models.llama.weights import LlamaWeights
from specdec_lib.types import LM, Refusal

FORMAT, HEAD_NORMS = 1, 2                          # 2: differences from a target that norms the queries of each head
Reader = Callable[[Path], Any]                     # the file of weights -> what a kit holds


@dataclass(frozen=True)
class Checkpoint:
    """A trained checkpoint: tensors `state` by name, float32 (token ids int64), `meta` to build it, and its `card`."""

    name: str
    state: Mapping[str, Tensor]
    meta: Mapping[str, Any]
    card: Mapping[str, Any]


def save_checkpoint(folder: str | Path, name: str, state: Mapping[str, Tensor], meta: Mapping[str, Any],
                    card: Mapping[str, Any], plan: Mapping[str, str], weights: LlamaWeights | None,
                    made_for: Mapping[str, str | None]) -> Checkpoint:
    """Writes FOLDER/NAME and returns it as a reader gets it, so that what is measured is what is stored.

    `plan` maps names of tensors to schemes of `quantize.py`; `weights` are the target's, for differences, unless
    meta["base"] {name, sha256} names a checkpoint of this folder to take them from; `made_for` is its fingerprint.
    `card` has target (its name), made, settings, measured, limits; ValueError where one is missing.
    """
    from safetensors.torch import save_file

    form = HEAD_NORMS if weights is not None and weights.shape.head_norms else FORMAT
    base = difference_base(folder, name, weights, meta, form)
    tensors, about = quantize.pack(state, plan, base)
    back = quantize.unpack(tensors, about, base)
    storage = {key: {"scheme": entry["scheme"],
                     "relative_error": round(quantize.relative_error(back[key], state[key]), 5)}
               for key, entry in about.items()}
    header = {"specdec": json.dumps({"format": form, "meta": dict(meta), "tensors": about}, sort_keys=True)}
    count = sum(tensor.numel() for tensor in state.values() if tensor.is_floating_point())
    tensors = {key: tensor.cpu() for key, tensor in tensors.items()}
    done = replace_checkpoint(folder, name, lambda path: save_file(tensors, path, header),
                              {**card, "parameters": count, "storage": storage}, made_for)
    return Checkpoint(name, back, dict(meta), done)


def replace_checkpoint(folder: str | Path, name: str, write: Callable[[Path], None], card: Mapping[str, Any],
                       made_for: Mapping[str, str | None]) -> dict:
    """Has `write(path)` write the weights in any format, then writes the card; returns the complete card.

    Such a card also holds `parameters`, besides what `save_checkpoint` needs; ValueError where a key is missing. Each
    file is written whole or not at all, the card last: a kill in between leaves weights that do not match the card,
    which `load_checkpoint` refuses.
    """
    lacking = lacking_in(card)
    if lacking:
        raise ValueError(f"the card of {name} lacks {', '.join(lacking)}")
    place = Path(folder) / name
    place.mkdir(parents=True, exist_ok=True)
    write_atomically(place / WEIGHTS, write)
    target = card["target"] if isinstance(card["target"], str) else card["target"]["name"]
    done = {"name": name, **card, "target": {"name": target, "fingerprint": dict(made_for)},
            "bytes": (place / WEIGHTS).stat().st_size, "sha256": file_sha256(place / WEIGHTS)}
    write_card(folder, name, done)
    return done


def load_checkpoint(folder: str | Path, name: str, weights: LlamaWeights | None = None) -> Checkpoint:
    """The checkpoint FOLDER/NAME; `weights` are the target's. Refusal if missing, cut short or not matching its card.

    Does not check that it fits the target: see `CheckpointFolder`.
    """
    from safetensors import SafetensorError, safe_open

    card, path = read_card(folder, name), checked_weights(folder, name)
    try:
        with safe_open(str(path), "pt") as file:
            header = json.loads((file.metadata() or {})["specdec"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}           # noqa: SIM118
        if header["format"] not in (FORMAT, HEAD_NORMS):
            raise Refusal(f"{path} is of format {header['format']} and this version reads {FORMAT} and {HEAD_NORMS}:"
                          f" use the version that wrote it, or make it again with `specdec train {name}`")
        meta = checked_meta(header["meta"], f"{path}: `specdec train {name}` makes another", weights)
        base = difference_base(folder, name, weights, meta, header["format"])
        state = quantize.unpack(tensors, header["tensors"], base)
    except (Refusal, torch.OutOfMemoryError):
        raise
    except (SafetensorError, OSError, LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        if weights is None and type(error) is ValueError:      # a difference, and the caller gave no base
            raise
        raise Refusal(f"{path} holds no checkpoint for this target: `specdec train {name}` makes one") from None
    if not all(torch.isfinite(tensor).all() for tensor in state.values()):
        raise Refusal(f"{path} holds numbers that are not finite: `specdec train {name}` makes another")
    return Checkpoint(name, state, meta, card)


class Meta(dict):
    """What a network is built with, by name; Refusal for a name that the header does not have."""

    def __init__(self, values: Mapping[str, Any], where: str):
        super().__init__(values)
        self.where = where

    def __missing__(self, name: str) -> Any:
        raise Refusal(f"there is no {name!r} in the header of {self.where}")


def checked_meta(meta: Any, where: str, weights: LlamaWeights | None) -> Meta:
    """The header's values; TypeError or Refusal where layers are not the target's, and where sizes are no sizes."""
    found, most = Meta({**meta}, where), getattr(getattr(weights, "shape", None), "layers", inf)
    for name in ("taps", "layers", "levels"):
        if name in meta and not all(type(layer) is int and 0 <= layer <= most for layer in [*meta[name]]):
            raise Refusal(f"{name} are {meta[name]} in the header of {where}")
    for name in ("block", "candidates", "longest"):
        if name in meta and not (type(meta[name]) is int and meta[name] > 0):
            raise Refusal(f"{name} is {meta[name]!r} in the header of {where}")
    return found


def checked_weights(folder: str | Path, name: str) -> Path:
    """The path of the weights, if the file has the size and checksum of the card; else Refusal."""
    card, path = read_card(folder, name), Path(folder) / name / WEIGHTS
    remedy = f"copy the checkpoint again or make it with `specdec train {name}`"
    if not path.is_file():
        raise Refusal(f"{path} is missing beside its card: {remedy}")
    if path.stat().st_size != card["bytes"]:
        raise Refusal(f"{path} has {path.stat().st_size} bytes and its card says {card['bytes']}: {remedy}")
    if file_sha256(path) != card["sha256"]:
        raise Refusal(f"{path} is damaged (its checksum is not the one on its card): {remedy}")
    return path


class CheckpointFolder(Mapping):
    """The checkpoints in a folder, for one target; each is read at its first use and kept.

    `name in folder` tells whether it is there. `folder[name]` reads it, refuses one made for another architecture or
    tokenizer, and calls `warn` once if the target has other weights. `readers` read other formats by name.
    """

    def __init__(self, folder: str | Path, target: LM, text: Tokenizer | None = None, name: str = "this model",
                 warn: Callable[[str], None] = lambda line: None, readers: Mapping[str, Reader] | None = None):
        self.folder, self.target, self.text, self.name = Path(folder), target, text, name
        self.warn, self.readers = warn, dict(readers or {})
        self.read: dict[str, Any] = {}
        self.here: dict | None = None              # the target's fingerprint, computed at its first use

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (self.folder / name / CARD).is_file()

    def __iter__(self) -> Iterator[str]:
        return iter(checkpoint_names(self.folder))

    def __len__(self) -> int:
        return len(checkpoint_names(self.folder))

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        if name not in self.read:
            self.check(name)
            weights = getattr(self.target, "weights", None)
            self.read[name] = (self.readers[name](checked_weights(self.folder, name)) if name in self.readers
                               else load_checkpoint(self.folder, name, weights))
        return self.read[name]

    def checksums(self) -> dict[str, str]:
        """The SHA-256 of the weights of each checkpoint that was read."""
        return {name: read_card(self.folder, name)["sha256"] for name in sorted(self.read)}

    def check(self, name: str) -> None:
        """Refuses or warns where the checkpoint was made for another target."""
        made_for = read_card(self.folder, name)["target"]
        if self.here is None:
            self.here = fingerprint(self.target, self.text)
        warning = compare(self.here, made_for["fingerprint"], name, self.name, made_for.get("name", "another model"),
                          lambda: training_advice(name, self.target, self.name))
        if warning:
            self.warn(warning)


def difference_base(folder: str | Path, name: str, weights: LlamaWeights | None, meta: Mapping[str, Any],
                    form: int = HEAD_NORMS) -> quantize.Base | None:
    """The base of stored differences: the checkpoint beside it that meta["base"] names, else the target's matrices.

    Of what that checkpoint does not hold, the base is the target's, too. None without weights. Refusal where that
    checkpoint is missing or has another checksum.
    """
    if weights is None or "base" not in meta:
        return None if weights is None else base_matrix(weights, meta, form)
    asked = meta["base"]
    there = (Path(folder) / asked["name"] / CARD).is_file()
    if not there or read_card(folder, asked["name"])["sha256"] != asked["sha256"]:
        raise Refusal(f"{name} is a difference from the {asked['name']} with the checksum {asked['sha256'][:12]}, and "
                      f"{folder} holds {'another' if there else 'none'}: copy that one beside it, or train on from the "
                      f"one at hand with `specdec train {name}`")
    found, own = load_checkpoint(folder, asked["name"], weights).state, base_matrix(weights, meta, form)
    return lambda matrix: found[matrix] if matrix in found else own(matrix)


def base_matrix(weights: LlamaWeights, meta: Mapping[str, Any], form: int = HEAD_NORMS) -> quantize.Base:
    """The target's matrices that trained ones started from: for `layers.{i}.qkv` that of layer meta["layers"][i].

    A single layer (`qkv`, `out`, `gate_up`, `down`) starts from the target's last one; where its attention has a
    doubled input, the base of the first half is zero. ValueError for any other name. Where heads have norms, training
    starts with attention's scale in the queries (`fused_state`), and so does the base, but not in files of format 1.
    """
    def base(name: str) -> Tensor:
        *where, kind = name.split(".")
        if kind not in ("qkv", "out", "gate_up", "down") or where and (len(where) != 2 or where[0] != "layers"):
            raise ValueError(f"the target has no matrix that {name} could have started from")
        layer = weights.layers[meta["layers"][int(where[1])] if where else -1]
        matrix = getattr(layer, kind).dense().float().cpu()
        if kind == "qkv" and layer.q_norm is not None and form == HEAD_NORMS:
            queries = weights.shape.heads * weights.shape.head_dim
            matrix = torch.cat((matrix[:queries] * weights.shape.head_dim ** -0.5, matrix[queries:]))
        doubled = kind == "qkv" and not where
        return torch.cat((torch.zeros_like(matrix), matrix), 1) if doubled else matrix

    return base
