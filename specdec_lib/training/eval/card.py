"""The rates on a trained drafter's card: teacher-forced on held-out answers, and decoded in the time left."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from specdec_lib.checkpoints.checkpoint_files import Checkpoint
from specdec_lib.heads.base import Target
from specdec_lib.heads.draft_lm import draft_lm
from specdec_lib.hub.tokenizer import Tokenizer
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.training.data.batches import order
from specdec_lib.training.data.dataset import Dataset
from specdec_lib.training.data.examples import Example
from specdec_lib.training.eval.decoding import decode_live, evenly
from specdec_lib.training.eval.teacher_forced import sum_tallies, tallies
from specdec_lib.training.losses.full_diffusion import fill_quality
from specdec_lib.training.nets.base import TrainableDrafter
from specdec_lib.training.recipes import DEPTH, Recipe, checkpoints_for, spec_of
from specdec_lib.training.time_budget import TimeBudget

LIVE, LEAST = 24, 2                                # held-out prompts that are decoded: at most, and at least


def teacher_forced_rates(which: Recipe, drafter: TrainableDrafter, batches: Iterable, families: bool = False) -> dict:
    """Teacher-forced rates on held-out batches, per part of the drafter; with `families` also by family.

    For a model that drafts nothing, its fill quality.
    """
    if which.fills:
        return {which.name: rounded(fill_quality(drafter, batches))}
    found = tallies(drafter, batches, DEPTH)
    out = {}
    for name, one in zip(which.parts(drafter.meta()), found, strict=True):
        told = rounded(sum_tallies(one).told())
        if families:
            told["by_family"] = {family: rounded(tally.told()) for family, tally in sorted(one.items())}
        out[name or which.name] = told
    return out


def live_rates(which: Recipe, lessons: Dataset, stored: Checkpoint, target: Target, text: Tokenizer,
               deadline: TimeBudget) -> dict:
    """Rates of decoding held-out prompts, the same prompts for every part of the drafter."""
    prompts, parts = some_prompts(lessons), which.parts(stored.meta)
    draft = draft_lm(stored.state, cast(Transformer, target).weights) if which.name == "draft-lm" else None
    out = {}
    for place, name in enumerate(parts):
        cut = deadline.cut(prompts, 1 / len(parts) if place == 0 else 1.0, len(prompts) if place else LEAST)
        found = decode_live(spec_of(which, name), target, text.facts, cut, checkpoints_for(which, stored), draft)
        prompts = prompts[:cut.taken]
        out[name or which.name] = {"prompts": cut.taken, **rounded(sum_tallies(found).told())}
    return out


def some_prompts(lessons: Dataset) -> list[Example]:
    """Held-out prompts of all families, in random order, so that the first ones include several families."""
    prompts = evenly(lessons.data, lessons.held, LIVE)
    return [prompts[i] for i in order(len(prompts), 0, 0)]


def rounded(told: dict) -> dict:
    """The figures rounded to four digits, as cards keep them."""
    return {name: [value if value is None else round(value, 4) for value in values] if isinstance(values, list)
            else round(values, 4) if isinstance(values, float) else values for name, values in told.items()}
