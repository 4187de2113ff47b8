"""`specdec train NAME`: answers, features, a fit, a measurement and a card; each stage resumes after a kill.

The minutes are those of the whole command: the time left after making answers goes to the fit, less a share for
held-out measurements, and the measurement at the end takes the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from specdec_lib.checkpoints.card import write_card
from specdec_lib.checkpoints.checkpoint_files import Checkpoint, save_checkpoint
from specdec_lib.checkpoints.fingerprint import fingerprint
from specdec_lib.files import alone_in, file_sha256, json_sha256, write_text
from specdec_lib.heads.base import Target
from specdec_lib.hub.tokenizer import Tokenizer
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.training.base_checkpoint import begun_from, go_on_from, start_from_base
from specdec_lib.training.data.answer_files import read_answers
from specdec_lib.training.data.answers import AnswerPlan, make_answers, name_of
from specdec_lib.training.data.dataset import LONGEST_PROMPT, LOOK, ROWS, Dataset, make_dataset, refuse_too_few
from specdec_lib.training.data.examples import examples, normalised, refuse_absent
from specdec_lib.training.data.prompt_sources import read_prompts, shipped, texts
from specdec_lib.training.data.shards import are_whole
from specdec_lib.training.eval.break_even import break_even
from specdec_lib.training.eval.card import live_rates, teacher_forced_rates
from specdec_lib.training.fit import Progress, Settings, fit, keep_log
from specdec_lib.training.losses.objective import Objective
from specdec_lib.training.marks import mark_folder, mark_recipe, mark_start, texts_sum
from specdec_lib.training.nets.base import TrainableDrafter
from specdec_lib.training.recipes import Recipe, start
from specdec_lib.training.time_budget import TimeBudget
from specdec_lib.types import Refusal

ANSWERING = 0.4                                    # share of the minutes for making answers, if none are given
MEASURING = 0.2                                    # for held-out measurements, during and after the fit
FITTING = 0.25                                     # least share for the fit, however long the answers took
YEAR = 366 * 24 * 60                               # in minutes
LOOKS = 12                                         # held-out measurements of a short fit, at most
Say = Callable[[str], None]


@dataclass(frozen=True)
class TrainingOrder:
    """The options of `specdec train`."""

    out: Path
    minutes: float = 30.0
    prompts: tuple[Path, ...] = ()                 # to be answered
    data: tuple[Path, ...] = ()                    # existing answers: the target makes none
    forbidden: tuple[Path, ...] = ()               # prompt files for measuring, never trained on
    tokens: int = 1_000_000                        # of answers, at most
    objective: Objective | None = None             # None: the recipe's
    optimiser: str | None = None                   # None: the recipe's
    rate: float | None = None
    seed: int = 0
    steps: int | None = None                       # of the fit, instead of the minutes that are left for it
    cache: float = 10e9                            # bytes of features on disk, on a GPU of hidden states in its memory
    features: Path | None = None                   # a folder of features that several fits share; None: in `out`
    rows: int = ROWS                               # of the draft vocabulary
    batch: int | None = None                       # padded tokens of a step; None: what suits the device
    watch: tuple[Path, ...] = ()                   # answers to measure beside the held-out ones
    target: str = "the target"                     # its name on the card
    learn_prompts: bool = False                    # prompts are learned as answers are
    begin: Path | None = None                      # a folder with an earlier checkpoint of this name to go on from
    given: str = ""                                # the target as it was named, which may be a path

    def __post_init__(self):
        if not 0 < self.minutes <= YEAR:
            raise Refusal(f"--minutes is how long this may take, above 0 and at most a year, got {self.minutes}")
        if not 0 <= self.cache < inf or abs(self.seed) >= 2 ** 63:
            raise Refusal(f"--cache-gb is 0 or more and --seed has at most 63 bits, got {self.cache / 1e9} and"
                          f" {self.seed}")
        if self.steps is not None and self.steps < 1:
            raise Refusal(f"--steps is at least 1, got {self.steps}")
        if self.optimiser not in (None, "adamw", "muon"):
            raise Refusal(f"--optimiser is adamw or muon, got {self.optimiser}")
        if self.rate is not None and not 0 < self.rate < inf:
            raise Refusal(f"--rate is above 0 and finite, got {self.rate}")
        if self.rows < 2 or self.batch is not None and self.batch < 1:
            raise Refusal(f"--rows is at least 2 and --batch at least 1, got {self.rows} and {self.batch}")
        for path in (*self.prompts, *self.data, *self.forbidden, *self.watch):
            if not path.exists():
                raise Refusal(f"there is no file {path}: check the path")


def train_drafter(which: Recipe, order: TrainingOrder, target: Target, text: Tokenizer, made: Mapping,
                  say: Say = lambda line: None,
                  progress: Callable[[int, int, str], None] = lambda done, total, what: None,
                  prepare: Callable[..., Dataset] | None = None) -> Checkpoint:
    """Trains, measures and stores the drafter; `made` is its provenance (command, commit, machine, date).

    `prepare` gives the dataset in place of `prepare_dataset`, where several drafters share one.
    """
    deadline = TimeBudget(order.minutes)
    named = order.given or order.target
    which = start_from_base(which, order.out, target, text, named, say=say)
    which = go_on_from(which, order.begin, target, text, named, say)
    objective = order.objective or which.objective
    lessons = (prepare or prepare_dataset)(order, target, text, deadline, say, progress)
    minutes = max(FITTING * order.minutes, deadline.left / 60 - MEASURING * order.minutes)
    drafter = start(which, target, lessons)
    folder = order.out / "work" / which.name
    mark_start(folder, which)

    def shown(now: Progress, done: float, line: dict) -> None:
        progress(int(1000 * done), 1000, f"loss {line['loss']:.3f}, right {line['right'][0]:.2f}, step {now.step}")

    def judge() -> dict:
        looked = {"held_out": lessons.held[:LOOK], "watched": lessons.watched}
        return {name: teacher_forced_rates(which, drafter, lessons.batches(groups, drafter.levels))
                for name, groups in looked.items() if groups}

    settings = Settings(minutes=minutes, steps=order.steps, rate=order.rate or which.rate, seed=order.seed,
                        optimiser=order.optimiser or which.optimiser, judge_every=min(180, 60 * order.minutes / LOOKS))
    say(f"training {which.name} for " + (f"{order.steps} steps" if order.steps else f"{minutes:.1f} minutes"))
    begun = deadline.used
    with alone_in(folder):
        mark_recipe(folder, recipe_of(order, objective, drafter, lessons))
        now = fit(drafter, lessons.train, lambda group: lessons.features(group, drafter.levels), objective, settings,
                  folder, judge, shown)
    deadline.count(now.seconds, begun)
    about = {"target": order.target, "limits": [*which.limits, *general_limits(len(drafter.frozen.ids))],
             "made": {**made, "minutes": round(now.seconds / 60, 1), "steps": now.step, "tokens_seen": now.tokens,
                      "tokens_of_data": lessons.tokens, "device": str(target.device),
                      "data": lessons.sources},
             "settings": {**asdict(settings), **asdict(objective), "minutes": round(now.seconds / 60, 1),
                          "rows": len(drafter.frozen.ids), "learn_prompts": order.learn_prompts,
                          **drafter.meta(), **begun_from(which)}, "measured": {}}
    say("measuring")
    return store_and_measure(which, order, lessons, drafter, target, text, about, folder, deadline)


def recipe_of(order: TrainingOrder, objective: Objective, drafter: TrainableDrafter,
              lessons: Dataset) -> dict[str, Any]:
    """What a resumed fit must repeat; answers that the target makes itself may become more, given ones may not.

    Of given answers the checksum says what was left out, too.
    """
    given = texts_sum(lessons.data[i].tokens for group in lessons.train for i in group) if order.data else "its own"
    kept_out = None if order.data else json_sha256(sorted(left_out(order, read_watched(order))))[:12]
    return {"loss": objective.slot, "depth weights": objective.depth, "smoothing": objective.smooth,
            "labels": objective.labels, "draft vocabulary": order.rows, "tokens of a step": order.batch,
            "prompts learned": order.learn_prompts, "answers": given, "texts left out": kept_out,
            "dtype": str(drafter.frozen.rows.dtype)[6:], **drafter.meta()}


def prepare_dataset(order: TrainingOrder, target: Target, text: Tokenizer, deadline: TimeBudget, say: Say,
                    progress: Callable) -> Dataset:
    """The dataset that the order describes; makes the answers first if none are given."""
    work, whose = order.out / "work", name_of(target, text)
    features = order.features or work / "features"
    mark_folder(work, whose)
    if order.features:
        mark_folder(features, whose, option="--features")
    if not order.data:
        ensure_answers(order, target, text, deadline, say, progress)
    records = (record for path in order.data or (work / "answers",)
               for record in read_answers(path, target.vocab, whose))
    watched = read_watched(order, target.vocab, whose)
    return make_dataset(target, text, records, features, left_out(order, watched), rows=order.rows, batch=order.batch,
                        limit=order.cache, watched=watched, learn_prompts=order.learn_prompts, say=say)


def left_out(order: TrainingOrder, watched: Iterable[Mapping]) -> frozenset[str]:
    """What this order never trains on: the forbidden texts, and the prompts of answers that are only watched."""
    return forbidden_texts(order) | {normalised(record["prompt"]) for record in watched}


def forbidden_texts(order: TrainingOrder) -> frozenset[str]:
    """What is never trained on: the project's own prompts and those of the forbidden files."""
    return frozenset(map(normalised, [*shipped(), *(line for path in order.forbidden for line in texts(path))]))


def check_sources(order: TrainingOrder) -> None:
    """Reads every given file before a model is loaded. Refusal for a bad one, and for too few answers to train on."""
    kept = forbidden_texts(order)
    for path in order.prompts:
        read_prompts(path)
    read_watched(order)
    if order.data:
        records = (record for path in order.data for record in read_answers(path))
        found = [(one.held_out, one.held_out and one.temperature == 0)
                 for one in examples(records, lambda turns: (), kept)]
        refuse_too_few(sum(not held for held, _ in found), sum(greedy for _, greedy in found))


def ensure_answers(order: TrainingOrder, target: Target, text: Tokenizer, deadline: TimeBudget, say: Say,
                   progress: Callable) -> None:
    """Makes the answers of this order, or subtracts the time they took if they exist, so that a fit resumes on them.

    Where a shard of them is damaged or gone, they are made up to what there was to be.
    """
    work = order.out / "work"
    asked = {"minutes": order.minutes, "tokens": order.tokens, "prompts": [*map(file_sha256, order.prompts)],
             "forbidden": [*map(file_sha256, order.forbidden)]}
    path = work / "answered.json"
    try:
        done = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):  # missing or damaged: the kept answers are added to
        done = None
    if (isinstance(done, dict) and done.get("asked") == asked and isinstance(done.get("seconds"), int | float)
            and are_whole(work / "answers")):
        deadline.spend(done["seconds"])
        return
    with alone_in(work / "answers"):
        made = make_answers(target, text, work / "answers", order.tokens, order.minutes * ANSWERING, order.prompts,
                            forbidden=[line for path in order.forbidden for line in texts(path)],
                            plan=answer_plan(target.context), say=say,
                            progress=lambda tokens, seconds: progress(tokens, order.tokens, "tokens of answers"))
    write_text(path, json.dumps({"asked": asked, "seconds": made.seconds}))


def answer_plan(context: int | None) -> AnswerPlan:
    """How answers to train on are made: a prompt leaves room in an example, an answer half of a short context."""
    usual = AnswerPlan(read=LONGEST_PROMPT)
    return usual if context is None else replace(usual, max_new=min(usual.max_new, max(1, context // 2)))


def read_watched(order: TrainingOrder, vocab: int | None = None, target: str | None = None) -> list[Mapping]:
    """The records to watch, read as by `read_answers`; Refusal where a field is absent, and where none is greedy."""
    found = [record for path in order.watch for record in read_answers(path, vocab, target)]
    for place, record in enumerate(found, 1):
        refuse_absent(record, f"record {place} of --watch")
    if order.watch and not any(record["temperature"] == 0 for record in found):
        raise Refusal("--watch measures greedy drafts, and none of its answers is greedy: give some of temperature 0")
    return found


def store_and_measure(which: Recipe, order: TrainingOrder, lessons: Dataset, drafter, target: Target,
                      text: Tokenizer,
                      about: dict, folder: Path, deadline: TimeBudget) -> Checkpoint:
    """Stores the drafter, measures the stored one, and completes the card."""
    batches = deadline.cut(lessons.held_out(drafter.levels), 1 / 5)    # of four such measurements the first is slowest
    measured = {"as trained": teacher_forced_rates(which, drafter, batches)}
    stored = save_checkpoint(order.out, which.name, drafter.state(), drafter.meta(), about, which.plan,
                             target.weights if isinstance(target, Transformer) else None,
                             fingerprint(target, text))
    drafter.take({name: tensor.to(target.device) for name, tensor in stored.state.items()})
    measured["teacher-forced"] = teacher_forced_rates(which, drafter, lessons.held_out(drafter.levels, batches.taken),
                                                      families=True)
    if lessons.watched:
        measured["watched"] = teacher_forced_rates(which, drafter, lessons.batches(lessons.watched, drafter.levels),
                                                   families=True)
    for random, name in ((False, "as it starts"), (True, "from random weights")):
        other = start(which, target, lessons, random)
        measured[name] = teacher_forced_rates(which, other, lessons.held_out(other.levels, batches.taken))
    card = {**stored.card, "measured": measured}
    if not which.fills:
        measured["live"] = live_rates(which, lessons, stored, target, text, deadline)
        card["break_even"] = break_even(which.name, stored, target, measured, machine_facts(about["made"]))
    write_card(order.out, which.name, card)
    keep_log(order.out / which.name, folder)
    return Checkpoint(stored.name, stored.state, stored.meta, card)


def machine_facts(made: Mapping) -> dict:
    """The part of a provenance that timings depend on."""
    return {name: made[name] for name in ("date", "machine", "device", "threads", "dtype") if name in made}


def general_limits(rows: int) -> list[str]:
    """Limits of every drafter with a vocabulary of `rows` that is trained this way."""
    return ["Trained on answers of this target alone; other weights, other languages and other kinds of prompt are "
            "accepted less.",
            f"It was trained to draft {rows:,} tokens, the most frequent of those answers.",
            "Held-out prompts were split off by their text; tasks that quote an answer of the target to another prompt "
            "may share that text with training."]


