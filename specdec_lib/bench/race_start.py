"""A race on a loaded target: the decodings of one prompt by methods of the catalogue, and a warm-up before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from specdec_lib import catalog
from specdec_lib.bench.environment import Environment
from specdec_lib.bench.plan import Plan
from specdec_lib.bench.race import ANSWERS, ROUNDS, Race
from specdec_lib.bench.run import warm_up_prompts
from specdec_lib.bench.runners import SynchronizedTarget
from specdec_lib.cost.curves import CostCurve
from specdec_lib.dice import Dice
from specdec_lib.loop import run
from specdec_lib.models.device import wait_for_stream
from specdec_lib.schedules.workers import INLINE
from specdec_lib.specs import parse_part
from specdec_lib.types import Refusal, Session

WARM = 4                                           # tokens of a warm-up
FEWEST = 2                                         # methods of a race


def prompt_race(plan: Plan, specs: Sequence[str], world: Environment, prompt: str, curve: CostCurve | None = None,
                order: str | None = None) -> Race:
    """The race of these methods on a prompt, not started; every method then has fresh caches and the plan's seed.

    Without an `order` rounds alternate, unless a method drafts in a worker of its own: that worker would go on while
    another method computes, so answers follow one another. Refusal for fewer than two methods.
    """
    check_race(specs)
    ids = world.encode([("user", prompt)])

    def decoding(spec: str):
        return lambda: begin_decode(spec, plan, world, curve, ids)

    return Race({spec: decoding(spec) for spec in specs}, order or order_for(plan, specs))


def check_race(specs: Sequence[str]) -> None:
    """Refuses fewer than two methods, and one that is named twice."""
    twice = next((spec for spec in specs if list(specs).count(spec) > 1), None)
    if twice is not None:
        raise Refusal(f"the method {twice} is named twice: name it once")
    if len(specs) < FEWEST:
        raise Refusal(f"a comparison takes two methods or more, such as ar,sam; got {', '.join(specs) or 'none'}")


def order_for(plan: Plan, specs: Sequence[str]) -> str:
    """How these methods take turns so that none computes while another one does."""
    kinds = [parse_part(spec)[1].get("workers", plan.workers) for spec in specs if catalog.card_of(spec).parallel]
    return ROUNDS if all(kind == INLINE for kind in kinds) else ANSWERS


def begin_decode(spec: str, plan: Plan, world: Environment, curve: CostCurve | None,
                 ids: Sequence[int]) -> Iterator[Session]:
    """The sessions of one decode, none of them computed yet."""
    kit, session = world.begin(plan, curve, ids, "given")
    method = catalog.build(spec, kit)
    target = SynchronizedTarget(kit.target, wait_for_stream) if plan.device.startswith("cuda") else kit.target
    return run(session, target, method, Dice(plan.seed), kit.memory)


def warm_up(plan: Plan, specs: Sequence[str], world: Environment, curve: CostCurve | None = None) -> None:
    """Every method decodes a few tokens that no clock measures: the first forwards of a process are slower."""
    short = replace(plan, max_new_tokens=min(WARM, plan.max_new_tokens))
    for _, ids in islice(warm_up_prompts(world), 1):
        for spec in specs:
            for _ in begin_decode(spec, short, world, curve, ids):
                pass
