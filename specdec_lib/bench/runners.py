"""Runners: one interface for methods and peers, prompt ids in, `Outcome` out, each decode with new caches.

A method gets a fresh target, a fresh kit and an empty memory. One whose card says that it learns across prompts also
runs warm: as a stream with one memory per repeat, for every order of the prompts in the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

from specdec_lib import catalog, measure
from specdec_lib.bench.environment import Environment
from specdec_lib.bench.llama_cpp_peer import LlamaCpp
from specdec_lib.bench.peers import Peer
from specdec_lib.bench.plan import FILE, SHUFFLED, Plan
from specdec_lib.bench.results import Outcome
from specdec_lib.cost import curves
from specdec_lib.dice import Dice
from specdec_lib.loop import NO_MEMORY, run
from specdec_lib.models.device import wait_for_stream
from specdec_lib.models.llama.graph_capture import captures
from specdec_lib.scores import Scores
from specdec_lib.specs import MethodSpec
from specdec_lib.types import LM, Draft, Method, RandomNumbers, Session

WARM = {FILE: "warm", SHUFFLED: "warm, shuffled"}
TRIES = 4                                          # of a decode; each may need a graph that the one before did not


@dataclass(frozen=True)
class Runner:
    """`run(ids, key, repeat)` decodes; the key is prompt and turn, so that all use the same random numbers."""

    name: str
    run: Callable[[Sequence[int], tuple, int], Outcome]
    peer: bool = False
    stream: bool = False
    order: str = FILE                              # of its prompts
    lossless: bool = True


def make_runners(plan: Plan, world: Environment, curve: Callable[[], curves.CostCurve | None]) -> list[Runner]:
    """Methods in the plan's order, each built once so that a bad spec is refused now, then peers.

    `curve` is asked before each decode.
    """
    out: list[Runner] = []
    for spec in plan.methods:
        card = catalog.card_of(spec)
        catalog.build(spec, world.kit(plan, curve()))
        out.append(Runner(str(spec), _method(spec, plan, world, curve, None), lossless=card.lossless))
        for order in plan.orders if card.learns_across_prompts else ():
            out.append(Runner(f"{spec} ({WARM[order]})", _method(spec, plan, world, curve, {}), stream=True,
                              order=order, lossless=card.lossless))
    return out + [Runner(peer.name, _peer(peer, plan), peer=True) for peer in world.peers]


def _method(spec: MethodSpec, plan: Plan, world: Environment, curve: Callable[[], curves.CostCurve | None],
            memories: dict[int, dict] | None):
    def decode_once(ids: Sequence[int], key: tuple, repeat: int) -> Outcome:
        memory = None if memories is None else memories.setdefault(repeat, {})
        once = partial(decode_with, memory, ids, key, repeat)
        return once() if memory is not None else without_captures(once)

    def decode_with(memory: dict | None, ids: Sequence[int], key: tuple, repeat: int) -> Outcome:
        kit, session = world.begin(plan, curve(), ids, str(key[0]), memory)
        method = catalog.build(spec, kit)
        on_gpu = plan.device.startswith("cuda")
        target = SynchronizedTarget(kit.target, wait_for_stream) if on_gpu else kit.target
        return run_timed(session, target, method, Dice(plan.seed).fork(*key, repeat), kit.memory)
    return decode_once


def without_captures(decode_once: Callable[[], Outcome], tries: int = TRIES) -> Outcome:
    """The outcome of a decode during which no CUDA graph was captured: it is decoded again where one was.

    A capture takes tens of milliseconds, and every later decode has its graph. The last try counts as it is.
    """
    for _ in range(tries):
        before = captures()
        done = decode_once()
        if captures() == before:
            break
    return done


@dataclass(frozen=True)
class SynchronizedTarget:
    """The same model with a blocking prefill: a GPU call returns early, which the first round would pay for.

    All else of it is the model's own: a schedule may split its layers.
    """

    lm: LM
    wait: Callable[[], None]

    @property
    def context(self) -> int | None:
        return self.lm.context

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lm, name)

    def fresh(self) -> SynchronizedTarget:
        return SynchronizedTarget(self.lm.fresh(), self.wait)

    def prefill(self, tokens: tuple[int, ...]) -> None:
        self.lm.prefill(tokens)
        self.wait()

    def __call__(self, tokens: tuple[int, ...], draft: Draft) -> Scores:
        scores = self.lm(tokens, draft)
        assert scores.best                         # on the host: the logits exist
        return scores


def _peer(peer: Peer | LlamaCpp, plan: Plan):
    def run(ids: Sequence[int], key: tuple, repeat: int) -> Outcome:
        return peer(ids, plan.max_new_tokens, plan.seed + repeat)
    return run


def run_timed(session: Session, target: LM, method: Method, dice: RandomNumbers,
              memory: Mapping[str, Any] = NO_MEMORY) -> Outcome:
    """Decodes by the method's schedule; the rows' seconds add up to the time from prefill to the last token."""
    took: list[float] = []
    start = perf_counter()
    for session in run(session, target, method, dice, memory):       # noqa: B007, B020
        took.append(perf_counter() - start)
        start = perf_counter()
    took[0] -= session.prefill
    rows = tuple(charged(row, seconds) for row, seconds in zip(measure.rows(session), took, strict=True))
    seconds = sum(row.seconds for row in rows)
    return Outcome(session.output, session.prefill, seconds, len(session.output), len(rows), rows)


def charged(row: measure.Row, seconds: float) -> measure.Row:
    """The row with all of its round's seconds: the rest goes to `how`; if parts overlapped, all go to `wall`."""
    if row.wall is not None:
        return row._replace(wall=seconds)
    return row._replace(how=max(seconds - row.when - row.what - row.target, 0.0))
