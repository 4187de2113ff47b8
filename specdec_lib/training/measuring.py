"""The numbers on a trained drafter's card: teacher-forced on held-out answers, and in the loop, as time allows."""

from __future__ import annotations

from collections.abc import Iterable

from specdec_lib.models.heads.small import draft_lm
from specdec_lib.models.shelf import Checkpoint
from specdec_lib.models.text import Text
from specdec_lib.models.transformer import Transformer
from specdec_lib.training.batches import order
from specdec_lib.training.course import Course
from specdec_lib.training.deadline import Deadline
from specdec_lib.training.drafters import Drafter
from specdec_lib.training.examples import Example
from specdec_lib.training.judge import tallies, together
from specdec_lib.training.live import live, sample
from specdec_lib.training.recipes import DEPTH, Recipe, beside, spec_of
from specdec_lib.training.whole import filled

LIVE, LEAST = 24, 2                                # held-out prompts decoded for real: at most, and at least


def forced(which: Recipe, drafter: Drafter, batches: Iterable, families: bool = False) -> dict:
    """Teacher-forced rates on held-out batches, per part of the drafter; by family where asked for.

    Of a model that drafts nothing, what it fills in.
    """
    if which.fills:
        return {which.name: rounded(filled(drafter, batches))}
    found = tallies(drafter, batches, DEPTH)
    out = {}
    for name, one in zip(which.parts(drafter.meta()), found, strict=True):
        told = rounded(together(one).told())
        if families:
            told["by_family"] = {family: rounded(tally.told()) for family, tally in sorted(one.items())}
        out[name or which.name] = told
    return out


def lively(which: Recipe, lessons: Course, stored: Checkpoint, target: Transformer, text: Text,
           deadline: Deadline) -> dict:
    """Rates in the loop on held-out prompts, the same ones for every part of the drafter."""
    prompts, parts = some_prompts(lessons), which.parts(stored.meta)
    draft = draft_lm(stored.state, target.weights) if which.name == "draft-lm" else None
    out = {}
    for place, name in enumerate(parts):
        cut = deadline.cut(prompts, 1 / len(parts) if place == 0 else 1.0, len(prompts) if place else LEAST)
        found = live(spec_of(which, name), target, text.facts, cut, beside(which, stored), draft)
        prompts = prompts[:cut.taken]
        out[name or which.name] = {"prompts": cut.taken, **rounded(together(found).told())}
    return out


def some_prompts(lessons: Course) -> list[Example]:
    """Held-out prompts of all families, in an order whose beginning has some of each."""
    prompts = sample(lessons.data, lessons.held, LIVE)
    return [prompts[i] for i in order(len(prompts), 0, 0)]


def rounded(told: dict) -> dict:
    """Four digits, as cards keep them."""
    return {name: [value if value is None else round(value, 4) for value in values] if isinstance(values, list)
            else round(values, 4) if isinstance(values, float) else values for name, values in told.items()}
