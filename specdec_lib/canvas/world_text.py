"""The text world: answers of the default target's diffusion models, filled behind our prompts.

The shipped model is `diffusion-lm`, three layers that were trained to draft a few tokens ahead: it fills block by
block. A folder of checkpoints may hold `diffusion-lm-full`, which sees the whole canvas and fills it in any order. As
language models of their own both are poor; what they are for here is to count forwards at identical output, and the
quality of what they write is measured beside that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import torch

from specdec_lib.canvas.text import TextCanvasModel, text_canvas
from specdec_lib.canvas.text_quality import before_end, distinct_ngrams, target_nll
from specdec_lib.canvas.types import Canvas, CanvasTask, CanvasWorld
from specdec_lib.checkpoints.checkpoint_files import SHIPPED, CheckpointFolder
from specdec_lib.heads.base import Target, shared_weights
from specdec_lib.heads.diffusion import CAUSAL, FULL, diffusion_weights
from specdec_lib.hub.default_model import NAME
from specdec_lib.hub.load import load
from specdec_lib.hub.tokenizer import Tokenizer
from specdec_lib.types import LM, Refusal

CHECKPOINTS = ("diffusion-lm-full", "diffusion-lm")            # the first of them that a folder holds is the model
PROMPTS = Path(__file__).parents[2] / "data" / "prompts" / "workbook.jsonl"
LENGTH, BLOCK = 32, 8                              # positions of the area; the longest block that it was trained with


def open_world(limit: int, seed: int, length: int = LENGTH, folder: Path | None = None) -> CanvasWorld:
    """The first turns of the first `limit` prompts, each followed by masks; the same for every seed."""
    target, text = load(NAME, torch.float32, "cpu")
    shelf = CheckpointFolder(SHIPPED if folder is None else folder, target, text)
    name = next((one for one in CHECKPOINTS if one in shelf), None)
    if name is None:
        raise Refusal(f"{shelf.folder} holds no model of text canvases ({' or '.join(CHECKPOINTS)}):"
                      f" `specdec train {CHECKPOINTS[0]} --out {shelf.folder}` makes one")
    stored = shelf[name]
    model = trained_canvas_model(stored.state, stored.meta, cast(Target, target), text)
    about = {"checkpoint": name, "sha256": stored.card["sha256"], "parameters": stored.card["parameters"],
             "target": NAME}
    block = length if model.attention == FULL else min(length, BLOCK)
    return text_world(model, target, text, first_turns(limit), length, block, about)


def trained_canvas_model(state: Mapping, meta: Mapping, target: Target, text: Tokenizer) -> TextCanvasModel:
    """The tensors of a trained diffusion model as a model of canvases; its mask is the embedding's last row."""
    weights = diffusion_weights(state, shared_weights(target))
    return TextCanvasModel(weights, len(weights.embedding) - 1, bool(meta.get("shifted", True)),
                           meta.get("attention", CAUSAL), tuple(sorted(text.facts.end)))


def first_turns(limit: int, path: Path = PROMPTS) -> list[tuple[str, str, str]]:
    """(id, family, text) of the first turns of a prompt file."""
    records = map(json.loads, path.read_text(encoding="utf-8").splitlines()[:limit])
    return [(str(record["question_id"]), record["category"], record["turns"][0]) for record in records]


def text_world(model: TextCanvasModel, target: LM, text: Tokenizer, turns: list[tuple[str, str, str]], length: int,
               block: int, about: dict[str, str | int | float]) -> CanvasWorld:
    """The world of these prompts. Right and wrong are not defined; quality is measured under the target."""
    tasks = [CanvasTask(f"text-{name}", text_canvas(text.encode_chat([turn]), length, model.mask, block), None, family)
             for name, family, turn in turns]

    def quality(task: CanvasTask, canvas: Canvas) -> dict[str, float]:
        answer = before_end(canvas.answer, model.end)
        found = {"target_nll": target_nll(target, canvas.tokens[:canvas.area[0]], answer),
                 "distinct_2": distinct_ngrams(answer, 2), "tokens": float(len(answer))}
        return {name: value for name, value in found.items() if value is not None}

    def written(canvas: Canvas) -> str:
        """The area's text; a run of masks is shown as one underline each."""
        return "".join("_" if token == model.mask else text.name(token) for token in canvas.answer)

    return CanvasWorld("text", model, tuple(tasks), lambda task, canvas: None, quality, written,
                       {**about, "length": length, "block": block})
