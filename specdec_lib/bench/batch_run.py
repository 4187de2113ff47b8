"""A bench run in batches: method by method, all prompts as one stream whose sequences share the target's forwards.

A batch spans prompts, so methods cannot alternate prompt by prompt as in `run.py`: each stream is a part of the folder,
and a killed run loses only the current one. The first turn of every prompt is decoded, in the file's order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Protocol, cast

import torch

from specdec_lib import catalog, measure
from specdec_lib.batches.loop import BatchRequest, SequenceInBatch, decode_together
from specdec_lib.batches.supported import TargetInBatch, in_batch
from specdec_lib.bench import provenance, run
from specdec_lib.bench.batch_summary import with_batches
from specdec_lib.bench.environment import Environment
from specdec_lib.bench.plan import Plan
from specdec_lib.bench.prompts import Prompt
from specdec_lib.bench.results import Decode, Outcome
from specdec_lib.bench.run_folder import RunFolder
from specdec_lib.bench.runners import Runner, make_runners
from specdec_lib.cost.curves import CostCurve
from specdec_lib.dice import Dice
from specdec_lib.hub.tokenizer import text_of
from specdec_lib.specs import MethodSpec

WARM_UP = 8                                        # tokens of each sequence that are not measured
Ids = tuple[int, ...]
Measured = Callable[[int, int], Iterator[Decode]]  # of a repeat and the most tokens


class PeerInBatch(Protocol):
    """A peer that decodes several sources at once; the plan refuses others."""

    @property
    def name(self) -> str: ...
    def together(self, many: Sequence[Ids], max_new_tokens: int) -> tuple[float, Sequence[tuple[Ids, int]]]: ...


def run_batches(plan: Plan, world: Environment, prompts: Sequence[Prompt], out: str | Path,
                curve: Callable[[], CostCurve | None] = lambda: None,
                progress: run.Progress = lambda done, total, name: None) -> dict:
    """Runs or resumes the plan in the folder `out` and returns its summary, as `run.run_bench` does."""
    in_batch(world.target)                         # refused now, before a folder is made
    with RunFolder.alone(out, plan) as folder:
        return folder.summary() or run_streams(folder, plan, world, prompts, curve, progress)


def run_streams(folder: RunFolder, plan: Plan, world: Environment, prompts: Sequence[Prompt],
                curve: Callable[[], CostCurve | None], progress: run.Progress) -> dict:
    """Measures what the folder lacks, finishes it and returns the summary."""
    ids = [run.fitting(world, prompt, prompt.asked()) for prompt in prompts]
    kept = folder.curve or curve()
    if kept is not None:
        folder.keep_curve(kept)
    entrants = make_runners(plan, world, lambda: kept)
    folder.keep_loaded(world.loaded(), provenance.provenance())
    everything: list[Decode] = []
    order = {prompt.question_id: place for place, prompt in enumerate(prompts)}
    named = {str(one): one for one in order}       # a part with one id that is a string holds strings alone
    total = len(prompts) * len(entrants) * plan.repeats
    for place, (repeat, name, measured) in enumerate(streams(plan, world, kept, prompts, ids)):
        done = folder.part(place)
        here = [replace(one, question_id=named[str(one.question_id)]) for one in done or ()]
        if done is None:
            progress(len(everything), total, f"warm-up of {name}")
            for _ in measured(-1, WARM_UP):
                pass
            for one in measured(repeat, plan.max_new_tokens):
                here.append(one)
                progress(len(everything) + len(here), total, name)
            here.sort(key=lambda decode: order[decode.question_id])
            folder.write_part(place, here)
        everything += here
    result = summed_up(plan, world, prompts, everything, kept, entrants, folder.begun)
    folder.finish(everything, result)
    return result


def streams(plan: Plan, world: Environment, curve: CostCurve | None, prompts: Sequence[Prompt],
            ids: Sequence[Ids]) -> Iterator[tuple[int, str, Measured]]:
    """The streams in the order in which they run: every repeat begins with another method, and peers come last.

    Each is called with a repeat and the most tokens of an answer; as repeat -1 it decodes its first batch alone.
    """
    for repeat in range(plan.repeats):
        start = repeat % len(plan.methods)
        for spec in (*plan.methods[start:], *plan.methods[:start]):
            yield repeat, str(spec), partial(method_stream, plan, world, curve, spec, prompts, ids)
        for peer in world.peers:
            yield repeat, peer.name, partial(peer_stream, plan, world, cast(PeerInBatch, peer), prompts, ids)


def method_stream(plan: Plan, world: Environment, curve: CostCurve | None, spec: MethodSpec, prompts: Sequence[Prompt],
                  ids: Sequence[Ids], repeat: int, tokens: int) -> Iterator[Decode]:
    """All prompts by one method, each when its last token has come."""
    some = prompts[:plan.batch] if repeat < 0 else prompts
    for one in stream(plan, world, curve, spec, some, ids, repeat, tokens):
        yield decoded(one, prompts[one.number], ids[one.number], world, spec, repeat)


def stream(plan: Plan, world: Environment, curve: CostCurve | None, spec: MethodSpec, prompts: Sequence[Prompt],
           ids: Sequence[Ids], repeat: int, tokens: int) -> Iterator[SequenceInBatch]:
    """All prompts by one method, each when its last token has come; at most `tokens` tokens each.

    The batch's clock stands still while a request is made and while the caller looks at a result: in a decode alone
    neither is counted.
    """
    cut = replace(plan, max_new_tokens=min(tokens, plan.max_new_tokens))
    shared, clock = in_batch(world.target), StandingClock(clock_of(plan.device))
    requests = (request_of(cut, world, curve, spec, prompt, own, repeat, shared)
                for prompt, own in zip(prompts, ids, strict=False))
    for one in decode_together(clock.stands_for(requests), plan.batch, shared.score, clock, shared.fill, shared.read):
        start = clock.clock()
        yield one
        clock.stood += clock.clock() - start


def peer_stream(plan: Plan, world: Environment, peer: PeerInBatch, prompts: Sequence[Prompt], ids: Sequence[Ids],
                repeat: int, tokens: int) -> Iterator[Decode]:
    """All prompts by a peer, `plan.batch` at a time, whose answers come together; nobody takes a free place."""
    now = 0.0
    for first in range(0, len(prompts) if repeat >= 0 else 1, plan.batch):
        some, own, start = prompts[first:first + plan.batch], ids[first:first + plan.batch], perf_counter()
        reading, found = peer.together(own, min(tokens, plan.max_new_tokens))
        began, now, share = now, now + perf_counter() - start, reading / len(some)
        for prompt, source, (said, forwards) in zip(some, own, found, strict=True):
            outcome = Outcome(said, share, now - began - share, len(said), forwards, (), (began, now))
            yield as_decode(outcome, prompt, source, world, peer.name, repeat, True)


def request_of(plan: Plan, world: Environment, curve: CostCurve | None, spec: MethodSpec, prompt: Prompt, ids: Ids,
               repeat: int, shared: TargetInBatch) -> BatchRequest:
    """One prompt with a cache, drafter and random numbers of its own: those that it has when it is decoded alone."""
    kit, session = world.begin(plan, curve, ids, str(prompt.question_id))
    kit = replace(kit, target=shared.member(kit.target))
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


class StandingClock:
    """A clock whose time `stood` does not count."""

    def __init__(self, clock: Callable[[], float]):
        self.clock, self.stood = clock, 0.0

    def __call__(self) -> float:
        return self.clock() - self.stood

    def stands_for(self, requests: Iterator[BatchRequest]) -> Iterator[BatchRequest]:
        """The same requests, each made outside of this clock's time."""
        while True:
            start = self.clock()
            one = next(requests, None)
            self.stood += self.clock() - start
            if one is None:
                return
            yield one


def decoded(one: SequenceInBatch, prompt: Prompt, ids: Ids, world: Environment, spec: MethodSpec,
            repeat: int) -> Decode:
    """A finished sequence as a decode, each round with the number of the forward that it shared."""
    session = one.session
    rows = tuple(row._replace(forward=count) for row, count in zip(measure.rows(session), one.forwards, strict=True))
    seconds = sum(row.seconds for row in rows)
    outcome = Outcome(session.output, session.prefill, seconds, len(session.output), len(rows), rows,
                      (one.began, one.now))
    return as_decode(outcome, prompt, ids, world, str(spec), repeat)


def as_decode(outcome: Outcome, prompt: Prompt, ids: Ids, world: Environment, name: str, repeat: int,
              peer: bool = False) -> Decode:
    """An outcome with its text and score."""
    text = world.decode(outcome.tokens)
    pieces = tuple(text_of(token, world.decode) for token in outcome.tokens)
    return Decode(prompt.question_id, prompt.family, name, repeat, 0, peer, len(ids), outcome, text, pieces,
                  run.score(prompt, 0, text))


def summed_up(plan: Plan, world: Environment, prompts: Sequence[Prompt], decodes: Sequence[Decode],
              curve: CostCurve | None, entrants: Sequence[Runner], begun: Mapping) -> dict:
    """The run's summary with the measures of the batch; sentences where turns or the batch's own cost were left out."""
    told = with_batches(run.sum_up(plan, world, prompts, decodes, curve, entrants, begun), decodes)
    more = sum(len(prompt.turns) > 1 for prompt in prompts)
    if more:
        told["settings"]["warnings"].append(f"{more} of {len(prompts)} prompts have more turns than one; a batch"
                                            " decodes the first.")
    if curve is not None and curve.batch != plan.batch:
        told["settings"]["warnings"].append("Drafts whose size follows the cost curve are as large as they are for one"
                                            " sequence: the curve given is of one.")
    return told
