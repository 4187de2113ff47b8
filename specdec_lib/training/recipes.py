"""The trainable drafters by name: how each is made, stored, fitted and measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specdec_lib.checkpoints.checkpoint_files import Checkpoint
from specdec_lib.checkpoints.trainable import CANVAS, HRAD, LENGTH, NGRAM
from specdec_lib.heads.diffusion import FULL
from specdec_lib.models.llama.weights import MATRICES
from specdec_lib.training.data.dataset import Dataset
from specdec_lib.training.losses.objective import Objective
from specdec_lib.training.nets import diffusion_finetune
from specdec_lib.training.nets.base import TrainableDrafter
from specdec_lib.training.nets.block_diffusion import block_drafter
from specdec_lib.training.nets.diffusion_finetune import ALIGNED_RANK, ALIGNED_SMOOTH, aligned_diffusion
from specdec_lib.training.nets.diffusion_lm import RANK, DiffusionNet
from specdec_lib.training.nets.draft_lm import DraftLMNet
from specdec_lib.training.nets.eagle import EagleNet
from specdec_lib.training.nets.early_exit import EarlyExitNet
from specdec_lib.types import Refusal

DEPTH = 5                                          # slots that a drafter is measured at
UNWEIGHTED = ("depths", "smooth")                  # options of what has no slots of several depths in training


@dataclass(frozen=True)
class Recipe:
    """A drafter's name, its idea, how it starts (`random` for the random control), and how it is stored."""

    name: str
    idea: str
    make: Callable[..., TrainableDrafter]          # (target, ids, random) -> module
    plan: Mapping[str, str]                        # tensors -> schemes of checkpoints/quantize.py
    rate: float = 4e-3
    optimiser: str = "muon"                        # `--optimiser adamw --rate 0.001` for comparison
    limits: tuple[str, ...] = ()
    method: str = ""                               # the method that drafts with it; "" = the one of its name
    asked: Mapping[str, Any] = field(default_factory=dict)        # parameters of that method
    objective: Objective = Objective()             # the default objective
    upon: str = ""                                 # name of the trained checkpoint that it starts from
    base: Checkpoint | None = None                 # that checkpoint; see base_checkpoint.py
    begun: Checkpoint | None = None                # an earlier one of its own name, to train on with new data
    unread: tuple[str, ...] = ()                   # options of the command that its training does not read
    fills: bool = False                            # it drafts nothing; measured by fill_quality (full_diffusion.py)
    parts: Callable[[Mapping], tuple[str, ...]] = field(default=lambda meta: ("",))


def eagle(target: Any, ids: Any, random: bool = False, depth: int = DEPTH) -> EagleNet:
    return EagleNet(target, ids, depth=depth, random=random)


def full(target: Any, ids: Any, random: bool = False) -> DiffusionNet:
    return DiffusionNet(target, ids, attention=FULL, random=random)


RECIPES = {recipe.name: recipe for recipe in (
    Recipe("eagle", "one layer over three of the target's streams", eagle, {"ids": "int32", "norm": "float32"},
           limits=("Slots deeper than `trained_depth` extrapolate: so many steps are unrolled in training.",)),
    Recipe("draft-lm", "three of the target's layers, trained as a model of their own", DraftLMNet,
           {"norm": "float32", "ids": "int32", "layers.*": "+int4/32"},
           limits=("It sees tokens alone, and nothing of what the target made of them.",), method="draft-model",
           unread=UNWEIGHTED),
    Recipe("diffusion-lm", "the small draft model, taught on to fill a block of masks at once",
           diffusion_finetune.diffusion_from_draft_lm,
           {"norm": "float32", "mask": "float32", "ids": "int32", "layers.*": f"+rank{diffusion_finetune.RANK}"},
           rate=1.5e-3, upon="draft-lm", unread=("rows",),
           limits=("It sees tokens alone, and guesses the slots of a block apart from each other.",
                   f"Its layers differ from those of the checkpoint draft-lm, which settings name by its checksum, by "
                   f"matrices of rank {diffusion_finetune.RANK}, and it is read with that very one beside it."),
           method="diffusion-draft"),
    Recipe("diffusion-lm-aligned", "the diffusion language model, taught on to draft long streaks in one step",
           aligned_diffusion,
           {"norm": "float32", "mask": "float32", "ids": "int32", "layers.*": f"+rank{ALIGNED_RANK}"},
           rate=2e-3, objective=Objective("ce", "streak", ALIGNED_SMOOTH), upon="diffusion-lm",
           unread=("rows",),
           limits=("It is stored as a difference from the checkpoint diffusion-lm that settings name by its checksum, "
                   "and is read with that very one beside it.",
                   "It went on with wholly masked blocks alone, for drafts in one step: what several steps fill, and "
                   "the text's own rows, may have become worse."),
           method="diffusion-draft", asked={"weights": "diffusion-lm-aligned"}),
    Recipe(f"diffusion-lm-{FULL}", "six of the target's layers read whole texts both ways and fill any masks",
           full, {"norm": "float32", "mask": "float32", "ids": "int32", "layers.*": f"+rank{RANK}"},
           limits=("It drafts for no method: it is a language model of its own, which fills masks in answers.",
                   "It is told where an answer ends by where the masks end; it never learned to end one itself.",
                   f"Its layers differ from the target's by matrices of rank {RANK}, trained and stored as such."),
           unread=(*UNWEIGHTED, "labels"), fills=True),
    Recipe("early-exit", "small adapters that let the target speak after some of its layers", EarlyExitNet,
           {"exit.*.norm": "float32", "ids": "int32"}, unread=UNWEIGHTED,
           parts=lambda meta: tuple(f"exit {layer}" for layer in meta["layers"])),
    Recipe("block-diffusion", "an EAGLE head, taught on to fill a block of masks at once with two more layers",
           block_drafter, {"ids": "int32", **dict.fromkeys(("layers.*", *MATRICES), "+rank80")}, upon="eagle",
           unread=("rows", "labels"),
           rate=1e-3,                              # at 4e-3 the head's own first slot is lost: 0.388 to 0.237
           limits=("Its first layer differs from that of the checkpoint eagle, which settings name by its checksum, "
                   "and its others from the target's by matrices of rank 80, in training as on disk. It is read with "
                   "that very checkpoint beside it. What whole matrices would learn beyond that was not measured.",
                   "It always fills a block of the length it was trained for: masks further right change the first "
                   "slots, so another length is another drafter that nobody trained.",
                   "Its teacher-forced rate leaves out the text's own tokens, which it drafts as well when decoding.",
                   "A slot's confidence is of the overlap with the target's law at temperature 1, also where decoding "
                   "is greedy.")),
)}
NAMES = (*RECIPES, NGRAM, LENGTH, HRAD)            # the last three are counted, and fitted, by code of their own
FITTED = ("loss", *UNWEIGHTED, "labels", "steps", "optimiser", "rows")
UNREAD = {NGRAM: (*FITTED, "rate", "batch"), LENGTH: FITTED, HRAD: FITTED}         # as `unread`, of these three
OTHERS = (CANVAS,)                                 # no drafters, and for no target


def recipe(name: str) -> Recipe:
    """The recipe of this name; Refusal with the names there are."""
    if name not in RECIPES:
        raise Refusal(f"there is no drafter named {name!r} to train; there are: {', '.join((*NAMES, *OTHERS))}")
    return RECIPES[name]


def start(which: Recipe, target: Any, dataset: Dataset, random: bool = False) -> TrainableDrafter:
    """The drafter before its first step, on the target's device."""
    base = {"base": which.base} if which.upon else {}
    drafter = which.make(target, dataset.ids, random=random, **base)
    if which.begun and not random:
        refuse_other_layers(which.begun, drafter)
        drafter.take(which.begun.state)
    return drafter.to(target.device)


def refuse_other_layers(begun: Checkpoint, drafter: TrainableDrafter) -> None:
    """Raises Refusal where an earlier checkpoint reads other layers of the target than this drafter."""
    for key in ("taps", "layers"):
        if begun.meta.get(key) != drafter.meta().get(key):
            raise Refusal(f"the {begun.name} to go on from was made with {key} {begun.meta.get(key)}, and this one has "
                          f"{drafter.meta().get(key)}")


def spec_of(which: Recipe, part: str = "", depth: int = DEPTH) -> str:
    """The method that drafts chains of this depth with a part of the drafter, as a command line names it."""
    asked = {"depth": depth} | ({"layer": int(part.split()[-1])} if part else {}) | dict(which.asked)
    return f"{which.method or which.name}({', '.join(f'{name}={value!r}' for name, value in asked.items())})"


def checkpoints_for(which: Recipe, stored: Checkpoint) -> dict[str, Checkpoint]:
    """The checkpoints for that method: the stored one under its own name, and also under the name of its base.

    The method's card asks for the base, and the method drafts with the one that its parameters name.
    """
    return {name: stored for name in (which.name, which.upon) if name}
