"""`specdec train`: names and flags become a target, an order and a provenance, or one Refusal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, cast

from specdec_lib.bench.environment import DTYPES, device_of, dtype_of
from specdec_lib.bench.plan import check_threads
from specdec_lib.bench.provenance import card_provenance, provenance, without_folders
from specdec_lib.checkpoints.card import card_text, refuse_other_folder, shelf_at
from specdec_lib.checkpoints.checkpoint_files import Checkpoint
from specdec_lib.checkpoints.trainable import refuse_untrainable, why_untrainable
from specdec_lib.commands.train_own import OWN_MODELS, OwnOrder, train_own_model
from specdec_lib.files import alone_in
from specdec_lib.heads.base import Target
from specdec_lib.heads.diffusion import ATTENTION, CAUSAL
from specdec_lib.hub import locate
from specdec_lib.hub.chat_settings import USUAL, ChatSettings
from specdec_lib.hub.default_model import NAME as DEFAULT
from specdec_lib.hub.load import load_lm, torchs_dtype
from specdec_lib.hub.tokenizer import Tokenizer
from specdec_lib.training.base_checkpoint import refuse_going_on
from specdec_lib.training.data.answers import MIX, AnswerPlan, make_answers
from specdec_lib.training.data.dataset import ROWS, Dataset
from specdec_lib.training.data.prompt_sources import read_prompts, texts
from specdec_lib.training.fit_hrad import HradSettings
from specdec_lib.training.fit_length import LengthSettings
from specdec_lib.training.losses.objective import Objective
from specdec_lib.training.pipeline import TrainingOrder, check_sources, prepare_dataset, train_drafter
from specdec_lib.training.recipes import HRAD, LENGTH, NAMES, UNREAD, Recipe, recipe
from specdec_lib.training.train_hrad import train_hrad
from specdec_lib.training.train_length import train_length
from specdec_lib.training.train_ngram import train_ngram
from specdec_lib.types import Refusal

Say = Callable[[str], None]


@dataclass(frozen=True)
class Training:
    """One drafter to train: its name, its recipe, the settings of a predictor, whether drafters were given, an order.
    """

    name: str
    which: Recipe | None
    settings: LengthSettings | HradSettings | None
    drafters_given: bool
    order: TrainingOrder


def train_by_names(names: Sequence[str], target: str, device: str, dtype: str, threads: int | None, say: Say,
                   progress: Callable[[int, int, str], None], chat: ChatSettings = USUAL,
                   **given: Any) -> list[str]:
    """Trains these drafters in turn, with the options of `training_of` for each, and returns their cards as text.

    All share the target, which is loaded once, and the dataset, which is read once; on a GPU its features stay in
    memory. Refusal for a name that there is not, and for what one of them cannot take, before anything is trained.
    """
    for name in names:
        if name not in (*NAMES, *OWN_MODELS):
            recipe(name)                           # its refusal lists the names
        if names.count(name) > 1:
            raise Refusal(f"{name} is named twice: name it once")
        if len(names) > 1 and name in OWN_MODELS:
            raise Refusal(f"{name} is trained in a command of its own: several names are for different drafters")
    if names[0] in OWN_MODELS:
        if chat != USUAL:
            raise Refusal(f"--system and --template-switches are for conversations, and {names[0]} is trained on none:"
                          " leave them out")
        return [train_own(names[0], target, device, dtype, threads, say, progress, **given)]
    asked = [training_of(name, target, **given) for name in names]
    check_sources(asked[0].order)                  # all have the same
    lm, text, device, dtype = open_target(target, device, fitted_dtype(dtype, device), threads, say, chat)
    asked = [for_target(one, lm, without_folders(target), say) for one in asked]
    prepare = kept_first(prepare_dataset)
    made = card_provenance(provenance(), dtype)
    return [card_text(trained(one, one.order, lm, text, made, say, progress, prepare).card) for one in asked]


def trained(one: Training, *common: Any) -> Checkpoint:
    """Trains this one; `common` is what all kinds of training take, ending with what prepares the data.

    From then on no other process trains, measures or writes it: Refusal naming the one that does.
    """
    *before, prepare = common
    with ExitStack() as stack:
        def prepare_alone(*given: Any) -> Dataset:
            stack.enter_context(alone_in(one.order.out / "work" / one.name))
            return prepare(*given)

        return train_as_named(one, *before, prepare_alone)


def train_as_named(one: Training, *common: Any) -> Checkpoint:
    """The training of this name."""
    if isinstance(one.settings, LengthSettings):
        return train_length(one.settings, *common)
    if one.settings is not None:
        return train_hrad(one.settings, *common)
    return train_ngram(*common) if one.which is None else train_drafter(one.which, *common)


def train_own(name: str, target: str, device: str, dtype: str, threads: int | None, say: Say,
              progress: Callable[[int, int, str], None], *, minutes: float, out: Path, cache: float, seed: int,
              optimiser: str | None = None, rate: float | None = None, batch: int | None = None, rows: int = ROWS,
              begin: Path | None = None, learn_prompts: bool = False, lengths: Mapping[str, Any] | None = None,
              **shaping: Any) -> str:
    """Trains a model of its own and returns its card as text. Refusal where options shape a drafter for a target."""
    given = {"target": target != DEFAULT, **shaping, "rows": rows != ROWS, "from": begin,
             "cache-gb": cache != TrainingOrder.cache, "learn-prompts": learn_prompts, **dict(lengths or {})}
    refuse_other_folder(out, name)
    order = OwnOrder(out, minutes, threads, device, dtype, seed, optimiser, rate, batch)
    return train_own_model(name, order, [word for word, value in given.items() if value], say, progress)


def training_of(name: str, target: str, *, minutes: float, prompts: Sequence[Path], data: Sequence[Path],
                forbid: Sequence[Path], out: Path, loss: str | None, depths: str | None, cache: float, seed: int,
                optimiser: str | None = None, rate: float | None = None, smooth: float | None = None,
                labels: str | None = None, steps: int | None = None, attention: str | None = None,
                lengths: Mapping[str, Any] | None = None, unroll: int | None = None, rows: int = ROWS,
                batch: int | None = None, watch: Sequence[Path] = (), begin: Path | None = None,
                learn_prompts: bool = False, features: Path | None = None) -> Training:
    """What these options mean for the drafter of this name. Refusal for a wrong one; reads no data and no model.

    `lengths` are the given fields of `LengthSettings` or `HradSettings`, for these predictors only.
    """
    name = with_attention(name, attention)
    which = unrolled(None if name in UNREAD else recipe(name), name, unroll)
    settings = predictor_settings(name, lengths or {}, rate, seed)
    refuse_unread(name, which, {"loss": loss, "depths": depths, "smooth": smooth, "labels": labels, "steps": steps,
                                "optimiser": optimiser, "rate": rate, "batch": batch,
                                "rows": None if rows == ROWS else rows})
    order = TrainingOrder(out, minutes, tuple(prompts), tuple(data), tuple(forbid), optimiser=optimiser, rate=rate,
                          seed=seed, steps=steps, cache=cache, objective=objective(which, loss, depths, smooth, labels),
                          target=without_folders(target), given=target, rows=rows, batch=batch, watch=tuple(watch),
                          begin=begin and shelf_at(begin), learn_prompts=learn_prompts, features=features)
    refuse_other_folder(out, name)
    if begin:
        refuse_going_on(name)
    if learn_prompts and which is None:
        raise Refusal(f"--learn-prompts is for networks that draft, got it for {name}: leave it out")
    return Training(name, which, settings, "drafters" in (lengths or {}), order)


def refuse_unread(name: str, which: Recipe | None, given: Mapping[str, Any]) -> None:
    """Raises Refusal for a given option that this training does not read."""
    unread = which.unread if which else UNREAD[name]
    strange = [f"--{word}" for word in unread if given.get(word) is not None]
    if strange:
        raise Refusal(f"leave out {', '.join(strange)}: the training of {name} does not read "
                      f"{'it' if len(strange) == 1 else 'them'}")


def kept_first(make: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose first result is kept and returned at every later call, whatever it is called with."""
    kept: list[Any] = []

    def first(*given: Any) -> Any:
        if not kept:
            kept.append(make(*given))
        return kept[0]

    return first


def answer_prompts(prompts: Sequence[Path], forbid: Sequence[Path], out: Path, tokens: int, minutes: float,
                   own: float, temperatures: str | None, max_new_tokens: int, batch: int | None, target: str,
                   device: str, dtype: str, threads: int | None, seed: int, say: Say,
                   progress: Callable[[int, int, str], None], chat: ChatSettings = USUAL) -> str:
    """Answers these prompts, and prompts of the target's own, into `out`; says what the folder holds then."""
    plan = AnswerPlan(max_new=max_new_tokens, own=own, seed=seed, mix=temperature_mix(temperatures))
    refused = [line for path in forbid for line in texts(path)]
    for path in prompts:
        read_prompts(path)
    lm, text, _, _ = open_target(target, device, fitted_dtype(dtype, device), threads, say, chat)
    with alone_in(out):
        made = make_answers(lm, text, out, tokens, minutes, prompts, refused, plan, batch, say=say,
                            progress=lambda done, seconds: progress(done, tokens, "tokens of answers"))
    return f"{made.records:,} answers with {made.tokens:,} tokens in {out}, stopped by {made.stopped}"


def temperature_mix(text: str | None) -> tuple[float, ...]:
    """The temperatures of a comma-separated list, or the usual mix; Refusal for anything but finite numbers from 0."""
    if text is None:
        return MIX
    try:
        mix = tuple(map(float, text.split(",")))
    except ValueError:
        mix = (-1.0,)
    if not all(0 <= temperature < inf for temperature in mix):
        raise Refusal(f"--temperatures are numbers of 0 or more with commas between, got {text!r}")
    return mix


def unrolled(which: Recipe | None, name: str, steps: int | None) -> Recipe | None:
    """The recipe with so many steps unrolled; Refusal for a drafter that unrolls none."""
    if steps is None:
        return which
    if which is None or name != "eagle" or steps < 1:
        raise Refusal(f"--unroll is a number of steps of at least 1 and of eagle alone, got {steps} for {name}")
    return replace(which, make=partial(which.make, depth=steps))


def with_attention(name: str, attention: str | None) -> str:
    """The recipe of this name with this attention; Refusal if there is none."""
    if attention is None:
        return name
    if name != "diffusion-lm" or attention not in ATTENTION:
        raise Refusal(f"--attention is {' or '.join(ATTENTION)} and of diffusion-lm alone, got {attention} for {name}")
    return name if attention == CAUSAL else f"{name}-{attention}"


def predictor_settings(name: str, given: Mapping[str, Any], rate: float | None,
                       seed: int) -> LengthSettings | HradSettings | None:
    """The settings of a predictor; None for another name, Refusal if a name is given settings that it does not have."""
    kinds = {LENGTH: LengthSettings, HRAD: HradSettings}
    own = {field.name for field in fields(kinds[name])} if name in kinds else set()
    for word in given:
        if word not in own:
            takers = [one for one, kind in kinds.items() if word in {field.name for field in fields(kind)}]
            raise Refusal(f"--{word} is for {' and '.join(takers)} only, got it for {name}")
    rated: dict[str, Any] = {} if rate is None else {"rate": rate}
    return kinds[name](**given, **rated, seed=seed) if name in kinds else None


def fitted_dtype(name: str, device: str) -> str:
    """The name of a dtype, for training; `auto` is one that torch is fast in, for it attends and computes gradients."""
    return str(torchs_dtype(device_of(device))).removeprefix("torch.") if name == "auto" else name


def open_target(target: str, device: str, dtype: str, threads: int | None,
                say: Say, chat: ChatSettings = USUAL) -> tuple[Target, Tokenizer, str, str]:
    """The target and its tokenizer, and the resolved device and dtype."""
    check_threads(threads)
    device = device_of(device)
    dtype = dtype_of(dtype, device)
    folder = locate.model_folder(target, say)
    say(f"loading {without_folders(target)}")
    lm, text = load_lm(folder, DTYPES[dtype], device, threads), Tokenizer(folder, say, chat)
    return cast(Target, lm), text, device, dtype   # what `load_lm` returns is one of the two


def for_target(one: Training, target: Target, called: str, say: Say) -> Training:
    """The same with the drafters of length predictors that the target can have, unless drafters were given.

    Refusal for a drafter that cannot be trained for this target, which a person calls `called`.
    """
    refuse_untrainable(one.name, target, called)
    if not isinstance(one.settings, LengthSettings):
        return one
    left_out = [drafter for drafter in one.settings.drafters if why_untrainable(drafter, target) is not None]
    if one.drafters_given:
        for drafter in left_out:
            refuse_untrainable(drafter, target, called)
    if left_out:
        say(f"left out, since they start from the target's own layers: {', '.join(left_out)}")
    able = tuple(drafter for drafter in one.settings.drafters if drafter not in left_out)
    return replace(one, settings=replace(one.settings, drafters=able))


def objective(which: Recipe | None, loss: str | None, depths: str | None, smooth: float | None,
              labels: str | None) -> Objective:
    """The recipe's objective with the given values replaced; Refusal for unknown ones."""
    usual = which.objective if which else Objective()
    if smooth is None and depths in (None, usual.depth):
        smooth = usual.smooth                      # other depths have their own
    try:
        return Objective(loss or usual.slot, depths or usual.depth, smooth, labels or usual.labels)
    except ValueError as error:
        raise Refusal(str(error)) from None
