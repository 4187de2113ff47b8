"""A canvas run: every method on every task of a world, task by task, resumable; the body of `specdec canvas`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from specdec_lib.bench.canvas_folder import SUMMARY, CanvasFolder
from specdec_lib.bench.canvas_results import CanvasDecode, read_canvas_run
from specdec_lib.bench.canvas_summary import cost_ratios, method_entries, rounded, summary_table
from specdec_lib.bench.provenance import provenance
from specdec_lib.bench.run_folder import writing_run
from specdec_lib.canvas.catalog import make_canvas_method, reference_of, value_of, with_references
from specdec_lib.canvas.loop import finished
from specdec_lib.canvas.outcome import corrections, row_costs, wrong_positions
from specdec_lib.canvas.padded import PaddedModel
from specdec_lib.canvas.types import CanvasModel, CanvasSession, CanvasTask, CanvasWorld
from specdec_lib.dice import Dice
from specdec_lib.files import alone_in
from specdec_lib.specs import PartSpec, write_part
from specdec_lib.types import Refusal

ROWS, REPEATS = (1, 2, 4, 8), 11
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class CanvasPlan:
    """What a run is asked for: methods with the references that they need, seed, and tasks whose rounds are kept."""

    methods: tuple[PartSpec, ...]
    seed: int = 0
    keep: int = 8                                  # tasks whose rounds are written, for whoever draws them

    @staticmethod
    def of(methods: Sequence[PartSpec], seed: int, keep: int) -> CanvasPlan:
        return CanvasPlan(with_references(methods), seed, keep)

    def settings(self, world: CanvasWorld) -> dict:
        """The plan with its world, for JSON: a folder belongs to one of these."""
        return {"world": world.name, "about": dict(world.about), "tasks": len(world.tasks), "seed": self.seed,
                "methods": [write_part(spec) for spec in self.methods], "keep": self.keep}


def run_canvases(plan: CanvasPlan, world: CanvasWorld, out: Path, progress: Progress) -> dict:
    """Runs or resumes the plan in the folder `out` and returns its summary."""
    with writing_run(out), alone_in(out):
        folder = CanvasFolder(out, plan.settings(world))
        if folder.finished:
            return finished_summary(out)
        everything: list[CanvasDecode] = []
        warmed = False
        for number, task in enumerate(world.tasks):
            progress(number, len(world.tasks), task.id)
            found = folder.part(number)
            if found is None:
                warmed = warmed or warm_up(plan, world)
                found = decode_task(plan, world, task, number, keep=number < plan.keep)
                folder.write_part(number, found)
            everything += found
        told = summary(plan, world, everything)
        folder.finish(everything, world.tasks[:plan.keep], told)
        return told


def finished_summary(out: Path) -> dict:
    """The summary of the finished run in this folder; Refusal where it or the tables are damaged."""
    told = read_canvas_run(out).summary
    try:
        summary_table(told)
    except (LookupError, TypeError, ValueError, AttributeError):
        raise Refusal(f"{out / SUMMARY} is damaged: give another --out") from None
    return told


def summary(plan: CanvasPlan, world: CanvasWorld, decodes: Sequence[CanvasDecode]) -> dict:
    """What summary.json holds; costs of rows are measured now, on the first task's canvas."""
    costs = row_costs(world.model, world.tasks[0].canvas, ROWS, REPEATS)
    return {"settings": plan.settings(world), "provenance": provenance(), "methods": method_entries(decodes),
            "row_seconds": {str(rows): rounded(seconds) for rows, seconds in costs.items()},
            "row_cost": cost_ratios(costs)}


def warm_up(plan: CanvasPlan, world: CanvasWorld) -> bool:
    """Fills the first canvas once, so that no method pays for what only the first forwards take."""
    finished(world.tasks[0].canvas, world.model, make_canvas_method(plan.methods[0], world.model), Dice(plan.seed))
    return True


def decode_task(plan: CanvasPlan, world: CanvasWorld, task: CanvasTask, number: int, keep: bool) -> list[CanvasDecode]:
    """All methods on one task, with the same random numbers; each task begins with another of them."""
    dice, first = Dice(plan.seed).fork(task.id), number % len(plan.methods)
    done = {write_part(spec): finished(task.canvas, world.model, make_canvas_method(spec, world.model), dice)
            for spec in (*plan.methods[first:], *plan.methods[:first])}
    return [decoded(spec, done[write_part(spec)], done, world, task, keep, dice) for spec in plan.methods]


def decoded(spec: PartSpec, session: CanvasSession, done: dict[str, CanvasSession], world: CanvasWorld,
            task: CanvasTask, keep: bool, dice: Dice) -> CanvasDecode:
    """The numbers of one decode. A lossless one is compared with its reference, and where they differ both are run
    again with all forwards at one number of rows, because rounding depends on it."""
    canvas, reference, at_shape = session.canvas, reference_of(spec), None
    identical = None if reference is None else done[write_part(reference)].canvas.tokens == canvas.tokens
    if reference is not None and not identical:
        padded = PaddedModel(world.model, value_of(spec, "rows", 1))
        at_shape = same_canvas(spec, reference, padded, task, dice)
    return CanvasDecode(task.id, write_part(spec), task.family, len(task.canvas.masked), session.forwards, session.rows,
                        session.ties, session.seconds, world.solved(task, canvas), wrong_positions(canvas, task.answer),
                        identical, at_shape, corrections(session, task.answer), dict(world.quality(task, canvas)),
                        world.text(canvas) if keep else "", session.rounds if keep else ())


def same_canvas(spec: PartSpec, reference: PartSpec, model: CanvasModel, task: CanvasTask, dice: Dice) -> bool:
    """Whether two methods give one canvas on this model."""
    one, other = (finished(task.canvas, model, make_canvas_method(each, model), dice).canvas.tokens
                  for each in (spec, reference))
    return one == other
