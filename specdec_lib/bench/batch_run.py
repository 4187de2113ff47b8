"""A bench run in batches: method by method, all prompts as one stream whose sequences share the target's forwards.

A batch spans prompts, so methods cannot alternate prompt by prompt as in `run.py`: each stream is a part of the folder,
and a killed run loses only the current one. The first turn of every prompt is decoded, in the file's order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import torch

from specdec_lib import catalog, measure
from specdec_lib.batches.loop import BatchRequest, SequenceInBatch, decode_together
from specdec_lib.batches.supported import refuse_target
from specdec_lib.bench import run
from specdec_lib.bench.batch_summary import with_batches
from specdec_lib.bench.environment import Environment
from specdec_lib.bench.plan import Plan
from specdec_lib.bench.prompts import Prompt
from specdec_lib.bench.results import Decode, Outcome
from specdec_lib.bench.run_folder import RunFolder
from specdec_lib.bench.runners import Runner, make_runners
from specdec_lib.cost.curves import CostCurve
from specdec_lib.dice import Dice
from specdec_lib.models.llama.joint import member, score_together
from specdec_lib.specs import MethodSpec

WARM_UP = 8                                        # tokens of each sequence that are not measured
Ids = tuple[int, ...]


def run_batches(plan: Plan, world: Environment, prompts: Sequence[Prompt], out: str | Path,
                curve: Callable[[], CostCurve | None] = lambda: None,
                progress: run.Progress = lambda done, total, name: None) -> dict:
    """Runs or resumes the plan in the folder `out` and returns its summary, as `run.run_bench` does."""
    refuse_target(world.target)
    with RunFolder.alone(out, plan) as folder:
        return folder.summary() or run_streams(folder, plan, world, prompts, curve, progress)


def run_streams(folder: RunFolder, plan: Plan, world: Environment, prompts: Sequence[Prompt],
                curve: Callable[[], CostCurve | None], progress: run.Progress) -> dict:
    """Measures what the folder lacks, finishes it and returns the summary."""
    ids = [run.fitting(world, prompt, [("user", prompt.turns[0])]) for prompt in prompts]
    kept = folder.curve or curve()
    if kept is not None:
        folder.keep_curve(kept)
    entrants = make_runners(plan, world, kept)
    folder.keep_loaded(world.loaded())
    everything: list[Decode] = []
    order = {prompt.question_id: place for place, prompt in enumerate(prompts)}
    total = len(prompts) * len(entrants) * plan.repeats
    for place, (repeat, spec) in enumerate(streams(plan)):
        here = folder.part(place)
        if here is None:
            progress(len(everything), total, f"warm-up of {spec}")
            for _ in stream(plan, world, kept, spec, prompts[:plan.batch], ids, -1, WARM_UP):
                pass
            here = []
            for one in stream(plan, world, kept, spec, prompts, ids, repeat, plan.max_new_tokens):
                here.append(decoded(one, prompts[one.number], ids[one.number], world, spec, repeat))
                progress(len(everything) + len(here), total, str(spec))
            here.sort(key=lambda decode: order[decode.question_id])
            folder.write_part(place, here)
        everything += here
    result = summed_up(plan, world, prompts, everything, kept, entrants)
    folder.finish(everything, result)
    return result


def streams(plan: Plan) -> Iterator[tuple[int, MethodSpec]]:
    """The streams in the order in which they run: every repeat begins with another method."""
    for repeat in range(plan.repeats):
        start = repeat % len(plan.methods)
        for spec in (*plan.methods[start:], *plan.methods[:start]):
            yield repeat, spec


def stream(plan: Plan, world: Environment, curve: CostCurve | None, spec: MethodSpec, prompts: Sequence[Prompt],
           ids: Sequence[Ids], repeat: int, tokens: int) -> Iterator[SequenceInBatch]:
    """All prompts by one method, each when its last token has come; at most `tokens` tokens each."""
    cut = replace(plan, max_new_tokens=min(tokens, plan.max_new_tokens))
    requests = (request_of(cut, world, curve, spec, prompt, own, repeat)
                for prompt, own in zip(prompts, ids, strict=False))
    return decode_together(requests, plan.batch, score_together, clock_of(plan.device))


def request_of(plan: Plan, world: Environment, curve: CostCurve | None, spec: MethodSpec, prompt: Prompt, ids: Ids,
               repeat: int) -> BatchRequest:
    """One prompt with a cache, drafter and random numbers of its own: those that it has when it is decoded alone."""
    kit, session = world.begin(plan, curve, ids, str(prompt.question_id))
    kit = replace(kit, target=member(world.target))          # pyright: ignore[reportArgumentType]  refused before
    dice = Dice(plan.seed).fork(prompt.question_id, 0, repeat)
    return BatchRequest(session, kit.target, catalog.build(spec, kit), dice, kit.memory)


def clock_of(device: str) -> Callable[[], float]:
    """The time when everything that was begun is done: a GPU call returns early."""
    if not device.startswith("cuda"):
        return perf_counter

    def clock() -> float:
        torch.cuda.synchronize()
        return perf_counter()
    return clock


def decoded(one: SequenceInBatch, prompt: Prompt, ids: Ids, world: Environment, spec: MethodSpec,
            repeat: int) -> Decode:
    """A finished sequence as a decode, each round with the number of the forward that it shared."""
    session = one.session
    rows = tuple(row._replace(forward=count) for row, count in zip(measure.rows(session), one.forwards, strict=True))
    seconds = sum(row.seconds for row in rows)
    outcome = Outcome(session.output, session.prefill, seconds, len(session.output), len(rows), rows,
                      (one.began, one.now))
    text = world.decode(outcome.tokens)
    pieces = tuple(world.decode((token,)) for token in outcome.tokens)
    return Decode(prompt.question_id, prompt.family, str(spec), repeat, 0, False, len(ids), outcome, text, pieces,
                  run.score(prompt, 0, text))


def summed_up(plan: Plan, world: Environment, prompts: Sequence[Prompt], decodes: Sequence[Decode],
              curve: CostCurve | None, entrants: Sequence[Runner]) -> dict:
    """The run's summary with the measures of the batch; a sentence where turns were left out."""
    told = with_batches(run.sum_up(plan, world, prompts, decodes, curve, entrants), decodes)
    more = sum(len(prompt.turns) > 1 for prompt in prompts)
    if more:
        told["settings"]["warnings"].append(f"{more} of {len(prompts)} prompts have more turns than one; a batch"
                                            " decodes the first.")
    return told
