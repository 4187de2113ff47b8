"""`specdec export` of a checkpoint: a trained EAGLE head in the format in which others serve such heads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file

from specdec_lib.bench.provenance import without_folders
from specdec_lib.checkpoints.checkpoint_files import CheckpointFolder
from specdec_lib.checkpoints.trainable import training_advice
from specdec_lib.commands.export import HEAD as NAME
from specdec_lib.files import write_atomically, write_text
from specdec_lib.heads.base import shared_weights
from specdec_lib.heads.eagle_export import exported_config, exported_tensors, refuse_inexact
from specdec_lib.hub import locate
from specdec_lib.hub.load import load_lm
from specdec_lib.hub.tokenizer import Tokenizer
from specdec_lib.models.llama.weights import read_config
from specdec_lib.types import Refusal

FILES = ("config.json", "README.md", "model.safetensors")         # in the order in which they are written


def export_head(name: str, out: Path, kind: str, target: str, shelf: Path,
                say: Callable[[str], None] = lambda line: None) -> list[Path]:
    """Writes the checkpoint `name` of this folder, trained for `target`, into the folder `out`; returns the files.

    Refusal for another checkpoint, a format that cannot express it, and a target that it was not trained for.
    """
    if name != NAME:
        raise Refusal(f"only the checkpoint {NAME} has a published format, and {name} is another: give {NAME}, or the"
                      " folder of a run with --format spec-bench")
    refuse_inexact(kind)
    refuse_place(out)
    folder = locate.model_folder(target, say)
    lm = load_lm(folder, torch.float32, "cpu")
    kept = CheckpointFolder(shelf, lm, Tokenizer(folder), target, say)
    if NAME not in kept:
        raise Refusal(f"there is no checkpoint {NAME} in {shelf}: {training_advice(NAME, lm, target)}")
    head, weights, verifier = kept[NAME], shared_weights(lm), without_folders(target)
    refuse_inexact(kind, head.meta["taps"], weights.shape.layers)
    tensors = exported_tensors(head.state, len(head.meta["taps"]), weights)
    config = exported_config(head.state, head.meta, weights.shape, verifier,
                             read_config(folder).get("architectures") or [])
    out.mkdir(parents=True, exist_ok=True)
    files = [out / name for name in FILES]
    write_text(files[0], json.dumps(config, indent=1) + "\n")          # the mark of a head, which may be replaced
    write_text(files[1], description(verifier, head.card))
    write_atomically(files[2], lambda path: save_file(tensors, path, {"format": "pt"}))
    return files


def refuse_place(out: Path) -> None:
    """Refuses a file, and a folder with files of another model that the head would replace; an earlier head may be."""
    if out.exists() and not out.is_dir():
        raise Refusal(f"{out} is a file: give --out a folder for the head")
    found = [name for name in FILES if (out / name).exists()]
    if found and not (out / FILES[0]).is_file() or found and "speculators_model_type" not in read_config(out):
        raise Refusal(f"{out} holds {found[0]} of another model: give --out a folder of its own for the head")


def description(verifier: str, card) -> str:
    """What the folder holds and for whom, as markdown."""
    return (f"# EAGLE-3 head for {verifier}\n\nA head of `specdec train eagle` in the speculators format, exact: the"
            " tapped states are normed one by one (`fc_norm`), and the embedding is the target's. A reader that ignores"
            f" `fc_norm` drafts badly with it. Checksum of the checkpoint: {card['sha256']}.\n\n"
            f"`specdec generate --target {verifier} --eagle DIR --method eagle2 \"...\"` drafts with it.\n")
