"""The trainable drafters by name: how each is made, how it is stored, and what it needs of the target's features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specdec_lib.training.block_diffusion import BlockDiffusion
from specdec_lib.training.course import Course
from specdec_lib.training.diffusion_lm import RANK, DiffusionLM
from specdec_lib.training.draft_lm import DraftLM
from specdec_lib.training.drafters import Drafter
from specdec_lib.training.eagle import Eagle
from specdec_lib.training.early_exit import EarlyExit
from specdec_lib.types import Refusal

DEPTH = 5                                          # slots that a drafter is measured at


@dataclass(frozen=True)
class Recipe:
    """A drafter's name, its idea, how it starts (`random` for the untrained contrast), how it is stored."""

    name: str
    idea: str
    make: Callable[..., Drafter]                   # (target, ids, random) -> module
    plan: Mapping[str, str]                        # tensors -> schemes of models/compress.py
    rate: float = 4e-3
    optimiser: str = "muon"                        # `--optimiser adamw --rate 0.001` for the contrast
    limits: tuple[str, ...] = ()
    method: str = ""                               # that drafts with it; "" = the one of its name
    parts: Callable[[Mapping], tuple[str, ...]] = field(default=lambda meta: ("",))


def eagle(target: Any, ids: Any, random: bool = False) -> Eagle:
    return Eagle(target, ids, depth=3, random=random)


RECIPES = {recipe.name: recipe for recipe in (
    Recipe("eagle", "one layer over three of the target's streams", eagle, {"ids": "int32", "norm": "float32"},
           limits=("Unrolled three steps in training, so deeper slots extrapolate.",)),
    Recipe("draft-lm", "three of the target's layers, trained as a model of their own", DraftLM,
           {"norm": "float32", "ids": "int32", "layers.*": "+int4/32"},
           limits=("It sees tokens alone, and nothing of what the target made of them.",), method="draft-model"),
    Recipe("diffusion-lm", "six of the target's layers, spaced evenly, that fill a block of masks at once", DiffusionLM,
           {"norm": "float32", "mask": "float32", "ids": "int32", "layers.*": f"+rank{RANK}"},
           limits=("It sees tokens alone, and guesses the slots of a block apart from each other.",
                   f"Its layers differ from the target's by matrices of rank {RANK}, trained and stored as such."),
           method="diffusion-draft"),
    Recipe("early-exit", "small adapters that let the target speak after some of its layers", EarlyExit,
           {"exit.*.norm": "float32", "ids": "int32"},
           parts=lambda meta: tuple(f"exit {layer}" for layer in meta["layers"])),
    Recipe("block-diffusion", "three of the target's layers over its own streams fill a block of masks at once",
           BlockDiffusion, {"ids": "int32", "layers.*": "+rank80"},
           limits=("Its layers differ from the target's by matrices of rank 80, in training as on disk: 0.7 MB a layer "
                   "where four bits of whole matrices take 2.0. What whole matrices would learn beyond that is lost, "
                   "and how much that is was not measured.",
                   "It always fills a block of the length it was trained for: masks further right change the first "
                   "slots, so another length is another drafter that nobody trained.",
                   "A slot's confidence is of the overlap with the target's law at temperature 1, also where decoding "
                   "is greedy.")),
)}
NGRAM = "ngram"
NAMES = (*RECIPES, NGRAM)


def recipe(name: str) -> Recipe:
    """The recipe of this name; Refusal with the names there are."""
    if name not in RECIPES:
        raise Refusal(f"there is no drafter named {name!r} to train; there are: {', '.join(NAMES)}")
    return RECIPES[name]


def start(which: Recipe, target: Any, course: Course, random: bool = False) -> Drafter:
    """The drafter before its first step, on the target's device."""
    return which.make(target, course.ids, random=random).to(target.device)
