"""A bench run: prompt by prompt, all runners and repeats of a turn together, so that pairs come from one process.

The first runner rotates. The history of a second turn is plain decoding's first answer, for every runner. Each prompt
is written when it is done, and a run resumes at the next. Streams in shuffled order decode one of their prompts after
each prompt in file order, so a machine that slows down slows down all runners.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path

from specdec_lib import catalog, measure
from specdec_lib.bench import provenance, store_leaks, summary
from specdec_lib.bench.environment import Environment
from specdec_lib.bench.followed_curve import FollowedCurve, resumed_methods
from specdec_lib.bench.plan import FILE, SHUFFLED, Plan
from specdec_lib.bench.prompts import Prompt, known_name
from specdec_lib.bench.results import Decode, select
from specdec_lib.bench.run_folder import RunFolder
from specdec_lib.bench.runners import Runner, make_runners
from specdec_lib.collection import beside_what_is_loaded
from specdec_lib.cost.curves import CostCurve
from specdec_lib.hub.chat_template import Message
from specdec_lib.hub.tokenizer import text_of
from specdec_lib.index.static_store import open_store
from specdec_lib.loop import why_context
from specdec_lib.types import Refusal

Progress = Callable[[int, int, str], None]         # decodes done, decodes in all, the current one
WARM_UP = ("Name the months of the year, in order.",
           "Copy this list and then say how many items it has: lamp, chair, window, lamp, carpet, lamp, chair.")


def run_bench(plan: Plan, world: Environment, prompts: Sequence[Prompt], out: str | Path,
              curve: Callable[[], CostCurve | None] = lambda: None,
              progress: Progress = lambda done, total, name: None, refits: bool = False) -> dict:
    """Runs or resumes the plan in the folder `out` and returns its summary; a finished run is only read.

    `curve` is called once, at a run's start; a resume uses the curve that the run began with. With `refits` it is
    refitted to the run's own forwards after each prompt. Objects loaded before the run are not searched for garbage
    during it: a search takes as long as several rounds, and would be counted in whichever decode it falls.
    """
    with RunFolder.alone(out, plan) as folder, beside_what_is_loaded():
        return folder.summary() or run_rest(folder, plan, world, prompts, curve, progress, refits)


def run_rest(folder: RunFolder, plan: Plan, world: Environment, prompts: Sequence[Prompt],
             curve: Callable[[], CostCurve | None], progress: Progress, refits: bool = False) -> dict:
    """Measures what the folder lacks, finishes it and returns the summary."""
    if plan.store is not None:
        open_store(plan.store)                     # if damaged, refused now and not after measuring
    first = [fitting(world, prompt, prompt.asked()) for prompt in prompts]
    kept = folder.curve or curve()
    if kept is not None:
        folder.keep_curve(kept)
    followed = FollowedCurve(kept, refits, resumed_methods(plan.methods))
    entrants = make_runners(plan, world, lambda: followed.now)
    folder.keep_loaded(world.loaded(), provenance.provenance())
    plain = next(entrant for entrant in entrants if entrant.name == "ar")
    total = sum(len(prompt.turns) for prompt in prompts) * len(entrants) * plan.repeats
    everything: list[Decode] = []
    done = warm = 0
    for place, index, group in schedule(len(prompts), entrants, plan.seed):
        prompt, here = prompts[index], folder.part(place)
        known = [] if plain in group else plain_answers(prompt, everything, world, plain)
        if here is None:
            if not warm:
                warm_up(world, entrants, lambda name: progress(done, total, name))   # noqa: B023
                warm = 1
            here = run_prompt(place, prompt, first[index], world, group, plan.repeats,
                              lambda one, name: progress(done + one, total, name), known)      # noqa: B023
            folder.write_part(place, here)
        else:
            remember(prompt, [*known, *here], world, group, plan.repeats)
        everything += here
        followed.learn(here)
        done += len(here)
        progress(done, total, f"prompt {prompt.question_id}")
    result = sum_up(plan, world, prompts, everything, kept, entrants, folder.begun)
    if followed.refits:
        result["settings"]["refitted_nodes"] = followed.budgets[:-1]
    folder.finish(everything, result)
    return result


def schedule(prompts: int, entrants: Sequence[Runner], seed: int) -> Iterator[tuple[int, int, Sequence[Runner]]]:
    """Yields each part of the folder, the index of its prompt, and its runners.

    Prompts come in file order, each followed by one in shuffled order if a stream has that order.
    """
    groups = {order: [entrant for entrant in entrants if entrant.order == order] for order in (FILE, SHUFFLED)}
    order = random.Random(seed).sample(range(prompts), prompts)
    for place in range(prompts):
        yield place, place, groups[FILE]
        if groups[SHUFFLED]:
            yield prompts + place, order[place], groups[SHUFFLED]


def run_prompt(place: int, prompt: Prompt, first: tuple[int, ...], world: Environment, entrants: Sequence[Runner],
               repeats: int, progress: Callable[[int, str], None] = lambda done, name: None,
               known: Sequence[Decode] = ()) -> list[Decode]:
    """All turns of one prompt by these runners; `known` are plain decoding's answers if it is not one of them."""
    out: list[Decode] = []
    for turn in range(len(prompt.turns)):
        ids = fitting(world, prompt, history(prompt, turn, [*known, *out])) if turn else first
        for repeat in range(repeats):
            start = (place + repeat) % len(entrants)
            for entrant in (*entrants[start:], *entrants[:start]):
                progress(len(out), entrant.name)
                out.append(decoded(prompt, turn, ids, world, entrant, repeat))
    return out


def decoded(prompt: Prompt, turn: int, ids: tuple[int, ...], world: Environment, entrant: Runner,
            repeat: int) -> Decode:
    """One turn by one runner."""
    outcome = entrant.run(ids, (prompt.question_id, turn), repeat)
    text = world.decode(outcome.tokens)
    pieces = tuple(text_of(token, world.decode) for token in outcome.tokens)
    return Decode(prompt.question_id, prompt.family, entrant.name, repeat, turn, entrant.peer, len(ids), outcome, text,
                  pieces, score(prompt, turn, text))


def plain_answers(prompt: Prompt, so_far: Sequence[Decode], world: Environment, plain: Runner) -> list[Decode]:
    """Plain decoding's answers that later turns need: the run's, else decoded now without being measured."""
    out = list(select(so_far, method=plain.name, repeat=0, question_id=prompt.question_id))
    for turn in range(len(out), len(prompt.turns) - 1):
        ids = fitting(world, prompt, history(prompt, turn, out))
        out.append(decoded(prompt, turn, ids, world, plain, 0))
    return out


def history(prompt: Prompt, turn: int, so_far: Sequence[Decode]) -> list[Message]:
    """The conversation before this turn's answer; earlier answers are plain decoding's."""
    return prompt.asked([next(select(so_far, method="ar", repeat=0, turn=earlier)).text for earlier in range(turn)])


def fitting(world: Environment, prompt: Prompt, messages: Sequence[Message]) -> tuple[int, ...]:
    """The conversation as ids; Refusal if it does not fit, since nothing is cut silently."""
    ids, context = tuple(world.encode(messages)), world.target.context
    if not ids:
        raise Refusal(f"prompt {prompt.question_id} is empty: give at least one token")
    turn = sum(role == "user" for role, _ in messages)
    if context is not None and len(ids) >= context:
        raise Refusal(f"prompt {prompt.question_id} has {len(ids)} tokens in turn {turn} and the"
                      f" target's context holds {context}{why_context(world.target)}: shorten it or leave it out,"
                      " nothing is cut silently")
    small = None if world.draft is None else world.draft.context
    if small is not None and len(ids) >= small:
        raise Refusal(f"prompt {prompt.question_id} has {len(ids)} tokens in turn {turn} and the"
                      f" context of the draft model holds {small}: give another --draft, or leave the prompt out")
    return ids


def tell_long_turns(plan: Plan, world: Environment, prompts: Sequence[Prompt], say: Callable[[str], None]) -> None:
    """Warns of the first turn that does not fit if the answers before it are as long as they may be."""
    for prompt in prompts:
        for turn in range(1, len(prompt.turns)):
            asked = len(world.encode(prompt.asked())) + sum(len(world.encode([("user", text)]))
                                                            for text in prompt.turns[1:turn + 1])
            for lm in (world.target, world.draft):
                if lm is not None and asked + turn * plan.max_new_tokens >= (lm.context or inf):
                    return say(f"prompt {prompt.question_id} may not fit the context of {lm.context} tokens in turn"
                               f" {turn + 1}, which would stop the run: lower --max-new-tokens")


def tell_short_room(plan: Plan, world: Environment, prompts: Sequence[Prompt], say: Callable[[str], None]) -> None:
    """Warns of the first prompt behind which the context ends before `max_new_tokens`."""
    if (context := world.target.context) is None:
        return
    for prompt in prompts:
        room = context - len(world.encode(prompt.asked()))
        if 0 < room < plan.max_new_tokens:
            return say(f"prompt {prompt.question_id} leaves room for {room} tokens in the context of {context}: its"
                       f" answer ends there at the latest, before --max-new-tokens {plan.max_new_tokens}")


def warm_up(world: Environment, entrants: Sequence[Runner], progress: Callable[[str], None]) -> None:
    """Every runner decodes unmeasured prompts, as repeat -1, so that no stream's memory contains them."""
    for text, ids in warm_up_prompts(world):
        for entrant in entrants:
            progress(f"warm-up of {entrant.name}")
            entrant.run(ids, (text, 0), -1)


def warm_up_prompts(world: Environment) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The unmeasured prompts with their ids, those that a short context holds."""
    for text in world.warm_up or WARM_UP:
        ids = tuple(world.encode([("user", text)]))
        if len(ids) < (world.target.context or inf):
            yield text, ids


def remember(prompt: Prompt, decodes: Sequence[Decode], world: Environment, entrants: Sequence[Runner],
             repeats: int) -> None:
    """After a resume: streams decode a finished prompt again, unmeasured, to restore their memory."""
    for entrant in entrants:
        for turn in range(len(prompt.turns) if entrant.stream else 0):
            ids = fitting(world, prompt, history(prompt, turn, decodes))
            for repeat in range(repeats):
                entrant.run(ids, (prompt.question_id, turn), repeat)


def score(prompt: Prompt, turn: int, text: str) -> float | None:
    """Against the reference of this turn; several references of a single turn are alternatives."""
    if prompt.reference is None:
        return None
    one_each = len(prompt.turns) > 1 and len(prompt.reference) == len(prompt.turns)
    wanted = prompt.reference[turn:turn + 1] if one_each else prompt.reference
    return measure.reference_score(text, wanted, number=prompt.family == "math_reasoning")


def sum_up(plan: Plan, world: Environment, prompts: Sequence[Prompt], decodes: Sequence[Decode],
           curve: CostCurve | None, entrants: Sequence[Runner], begun: Mapping) -> dict:
    """The run's summary, schema 1; `begun` is the first process's provenance."""
    about = provenance.provenance()
    lossless = {entrant.name: entrant.lossless for entrant in entrants}
    about_them = world, prompts, decodes
    return {"schema": summary.SCHEMA, "created": about["created"], "target": dict(world.about),
            "machine": about["machine"], "versions": about["versions"],
            "prompts": {"file": plan.prompts, "sha256": plan.sha256, "count": len(prompts),
                        "known_as": known_name(plan.sha256)},
            "settings": {**plan.as_dict(), **drafted(plan, world), "command": about["command"],
                         "commit": about["commit"], "changed": about["changed"], "nodes": world.kit(plan, curve).nodes,
                         "cost_curve": None if curve is None else curve.as_dict(),
                         "spread_of_repeats": summary.spread_of_repeats(decodes),
                         "spread_within_decode": summary.spread_within_decode(decodes),
                         "warnings": [*summary.warnings(decodes), *store_leaks.store_leaks(decodes, plan.store),
                                      *provenance.changed_since(begun, about)]},
            "methods": summary.rounded(with_quality(summary.method_summaries(
                decodes, lossless, curve, resumed_methods(plan.methods)), *about_them)),
            "peers": summary.rounded(with_quality(summary.peer_summaries(decodes), *about_them))}


def with_quality(told: dict[str, dict], world: Environment, prompts: Sequence[Prompt],
                 decodes: Sequence[Decode]) -> dict[str, dict]:
    """The same with the target's own measures of quality, of all prompts and of each family."""
    if world.quality is None:
        return told
    for name, one in told.items():
        own = list(select(decodes, method=name))
        one |= world.quality(prompts, own)
        for family, inside in one["by_family"].items():
            inside |= world.quality(prompts, [decode for decode in own if decode.family == family])
    return told


def drafted(plan: Plan, world: Environment) -> dict:
    """Settings known only after loading: the draft model, and which of the plan's checkpoints were used."""
    used = {world.drafter.checkpoint, *world.loaded(),
            *(name for spec in plan.methods for name in catalog.needed_checkpoints(spec))}
    kept = {name: sha256 for name, sha256 in (plan.checkpoints or {}).items() if name in used}
    return {"draft": world.drafter.name or plan.as_dict()["draft"], "checkpoints": kept or None}
