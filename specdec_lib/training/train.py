"""`specdec train NAME`: answers, features, a fit, a measurement and a card, each stage taken up where it was left.

The minutes are shared out: what is left after making answers goes to the fit, less a little for measuring.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter

from specdec_lib.models.card import write_card
from specdec_lib.models.fingerprint import fingerprint
from specdec_lib.models.heads.small import draft_lm
from specdec_lib.models.shelf import Checkpoint, save
from specdec_lib.models.text import Text
from specdec_lib.models.transformer import Transformer
from specdec_lib.training import shards
from specdec_lib.training.course import Course, course
from specdec_lib.training.examples import plain
from specdec_lib.training.fit import LOG, Progress, Settings, fit
from specdec_lib.training.generate import generate
from specdec_lib.training.judge import tallies, together
from specdec_lib.training.live import live, sample
from specdec_lib.training.objective import Objective
from specdec_lib.training.prompts import shipped, texts
from specdec_lib.training.recipes import DEPTH, Recipe, start
from specdec_lib.types import Refusal

ANSWERING = 0.4                                    # share of the minutes for making answers, where none are given
MEASURING = 0.08                                   # and for measuring
LIVE = 24                                          # held-out prompts decoded for real
Say = Callable[[str], None]


@dataclass(frozen=True)
class Order:
    """What was asked for on the command line."""

    out: Path
    minutes: float = 30.0
    prompts: tuple[Path, ...] = ()                 # to be answered
    data: tuple[Path, ...] = ()                    # answers that exist already: the target makes none
    forbidden: tuple[Path, ...] = ()               # prompt files that are measured with and never trained on
    tokens: int = 1_000_000                        # of answers, at most
    objective: Objective = field(default_factory=Objective)
    seed: int = 0
    cache: float = 10e9                            # bytes of features on disk
    target: str = "the target"

    def __post_init__(self):
        if self.minutes <= 0:
            raise Refusal(f"--minutes is how long this may take, got {self.minutes}")
        for path in (*self.prompts, *self.data, *self.forbidden):
            if not path.exists():
                raise Refusal(f"there is no file {path}")


def train(which: Recipe, order: Order, target: Transformer, text: Text, made: Mapping, say: Say = lambda line: None,
          progress: Callable[[int, int, str], None] = lambda done, total, what: None) -> Checkpoint:
    """The trained, measured and stored drafter; `made` says where it comes from (command, commit, machine, date)."""
    began = perf_counter()
    lessons = study(order, target, text, say, progress)
    spent = perf_counter() - began
    minutes = max(0.1, order.minutes * (1 - MEASURING) - spent / 60)
    drafter = start(which, target, lessons)
    folder = order.out / "work" / which.name

    def shown(now: Progress, done: float, line: dict) -> None:
        progress(int(1000 * done), 1000, f"loss {line['loss']:.3f}, right {line['right'][0]:.2f}, step {now.step}")

    def judge() -> dict:
        found = tallies(drafter, lessons.held_out(drafter.levels, 8), DEPTH)
        names = which.parts(drafter.meta())
        return {name or which.name: together(one).told() for name, one in zip(names, found, strict=True)}

    settings = Settings(minutes=minutes, rate=which.rate, seed=order.seed)
    say(f"training {which.name} for {minutes:.1f} minutes")
    now = fit(drafter, lessons.train, lambda group: lessons.features(group, drafter.levels), order.objective, settings,
              folder, judge, shown)
    about = {"target": order.target, "limits": [*which.limits, *general(lessons)],
             "made": {**made, "minutes": round(now.seconds / 60, 1), "steps": now.step, "tokens_seen": now.tokens,
                      "tokens_of_data": lessons.tokens, "device": str(target.device),
                      "data": ", ".join(sorted({example.source for example in lessons.data}))},
             "settings": {**asdict(settings), **asdict(order.objective), "minutes": round(now.seconds / 60, 1),
                          "rows": len(lessons.ids), **drafter.meta()}, "measured": {}}
    say("measuring")
    return finish(which, order, lessons, drafter, target, text, about, folder)


def study(order: Order, target: Transformer, text: Text, say: Say, progress: Callable) -> Course:
    """The course that the order describes; answers are made first where none are given."""
    work = order.out / "work"
    if not order.data:
        generate(target, text, work / "answers", order.tokens, order.minutes * ANSWERING, order.prompts,
                 forbidden=[line for path in order.forbidden for line in texts(path)], say=say,
                 progress=lambda tokens, seconds: progress(tokens, order.tokens, "tokens of answers"))
    kept = frozenset(map(plain, [*shipped(), *(line for path in order.forbidden for line in texts(path))]))
    records = (record for path in order.data or (work / "answers",) for record in answers(path))
    return course(target, text, records, work / "features", kept, limit=order.cache, say=say)


def answers(path: Path) -> Iterator[Mapping]:
    """Records of a JSON-lines file (.gz or not), or of a folder of shards."""
    if path.is_dir():
        yield from shards.read(path)
        return
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)
    except (OSError, EOFError, ValueError) as error:
        raise Refusal(f"{path} is no file of answers as JSON lines ({error})") from None


def finish(which: Recipe, order: Order, lessons: Course, drafter, target: Transformer, text: Text, about: dict,
           folder: Path) -> Checkpoint:
    """Stores the drafter, measures what was stored, and completes the card with it."""
    measured = {"as trained": forced(which, lessons, drafter)}
    stored = save(order.out, which.name, drafter.state(), drafter.meta(), about, which.plan, target.weights,
                  fingerprint(target, text))
    drafter.take({name: tensor.to(target.device) for name, tensor in stored.state.items()})
    measured["teacher-forced"] = forced(which, lessons, drafter, families=True)
    measured["live"] = lively(which, lessons, stored, target, text)
    for random, name in ((False, "as it starts"), (True, "from random weights")):
        measured[name] = forced(which, lessons, start(which, target, lessons, random))
    card = {**stored.card, "measured": measured}
    write_card(order.out, which.name, card)
    (order.out / which.name / LOG).write_bytes((folder / LOG).read_bytes())
    return Checkpoint(stored.name, stored.state, stored.meta, card)


def forced(which: Recipe, lessons: Course, drafter, families: bool = False) -> dict:
    """Teacher-forced rates on all held-out answers, per part of the drafter; by family where asked for."""
    found = tallies(drafter, lessons.held_out(drafter.levels), DEPTH)
    out = {}
    for name, one in zip(which.parts(drafter.meta()), found, strict=True):
        told = rounded(together(one).told())
        if families:
            told["by_family"] = {family: rounded(tally.told()) for family, tally in sorted(one.items())}
        out[name or which.name] = told
    return out


def lively(which: Recipe, lessons: Course, stored: Checkpoint, target: Transformer, text: Text) -> dict:
    """Rates in the loop on some held-out prompts, per part of the drafter."""
    prompts = sample(lessons.data, lessons.held, LIVE)
    draft = draft_lm(stored.state, target.weights) if which.name == "draft-lm" else None
    out = {}
    for name in which.parts(stored.meta):
        layer = f", layer={name.split()[-1]}" if name else ""
        spec = f"{'draft-model' if draft else which.name}(depth={DEPTH}{layer})"
        found = live(spec, target, text.facts, prompts, {which.name: stored}, draft)
        out[name or which.name] = {"prompts": len(prompts), **rounded(together(found).told())}
    return out


def rounded(told: dict) -> dict:
    """Four digits, as cards keep them."""
    return {name: [value if value is None else round(value, 4) for value in values] if isinstance(values, list)
            else round(values, 4) if isinstance(values, float) else values for name, values in told.items()}


def general(lessons: Course) -> list[str]:
    """What holds for every drafter trained this way."""
    return ["Trained on answers of this target alone; other weights, other languages and other kinds of prompt are "
            "accepted less.",
            f"It can only draft {len(lessons.ids):,} tokens, the most frequent of those answers.",
            "Held-out prompts were split off by their text; tasks that quote an answer of the target to another prompt "
            "may share that text with training."]


