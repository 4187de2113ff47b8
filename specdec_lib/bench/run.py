"""A bench run: prompt by prompt, all contenders and repeats of a turn together, so that pairs come from one process.

Who goes first rotates. Second turns get plain decoding's first answer as history, for everyone. Written as it goes
and resumed at the prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from specdec_lib import measure
from specdec_lib.bench import provenance, summary
from specdec_lib.bench.contenders import Contender, Message, World, contenders
from specdec_lib.bench.decodes import Decode, of
from specdec_lib.bench.folder import Folder
from specdec_lib.bench.plan import Plan, trained
from specdec_lib.bench.prompts import Prompt, known_name
from specdec_lib.cost import CostCurve
from specdec_lib.types import Refusal

Progress = Callable[[int, int, str], None]         # decodes done, decodes to do, what is under way
WARM_UP = ("Name the months of the year, in order.",
           "Copy this list and then say how many items it has: lamp, chair, window, lamp, carpet, lamp, chair.")


def bench(plan: Plan, world: World, prompts: Sequence[Prompt], out: str | Path,
          curve: Callable[[], CostCurve | None] = lambda: None,
          progress: Progress = lambda done, total, name: None) -> dict:
    """Runs or resumes the plan in the folder `out` and returns its summary; a finished run is only summed up again.

    `curve` is asked once, at a run's start; a resume uses the curve that the run began with.
    """
    folder = Folder(out, plan)
    if folder.finished:
        return folder.summary()
    first = [fitting(world, prompt, [("user", prompt.turns[0])]) for prompt in prompts]
    kept = folder.curve or curve()
    if kept is not None:
        folder.keep_curve(kept)
    entrants = contenders(plan, world, kept)
    each = len(entrants) * plan.repeats
    total = sum(len(prompt.turns) for prompt in prompts) * each
    everything: list[Decode] = []
    done = warm = 0
    for index, prompt in enumerate(prompts):
        here = folder.part(index)
        if here is None:
            if not warm:
                warm_up(world, entrants, lambda name: progress(done, total, name))   # noqa: B023
                warm = 1
            here = run_prompt(index, prompt, first[index], world, entrants, plan.repeats,
                              lambda one, name: progress(done + one, total, name))   # noqa: B023
            folder.write_part(index, here)
        else:
            remember(prompt, here, world, entrants, plan.repeats)
        everything += here
        done += len(prompt.turns) * each
        progress(done, total, f"prompt {prompt.question_id}")
    result = sum_up(plan, world, prompts, everything, kept, entrants)
    folder.finish(everything, result)
    return result


def run_prompt(index: int, prompt: Prompt, first: tuple[int, ...], world: World, entrants: Sequence[Contender],
               repeats: int, progress: Callable[[int, str], None] = lambda done, name: None) -> list[Decode]:
    """All turns of one prompt by everyone."""
    out: list[Decode] = []
    for turn in range(len(prompt.turns)):
        ids = fitting(world, prompt, history(prompt, turn, out)) if turn else first
        for repeat in range(repeats):
            start = (index + repeat) % len(entrants)
            for entrant in (*entrants[start:], *entrants[:start]):
                progress(len(out), entrant.name)
                outcome = entrant.run(ids, (prompt.question_id, turn), repeat)
                text = world.decode(outcome.tokens)
                pieces = tuple(world.decode((token,)) for token in outcome.tokens)
                out.append(Decode(prompt.question_id, prompt.family, entrant.name, repeat, turn, entrant.peer,
                                  len(ids), outcome, text, pieces, score(prompt, turn, text)))
    return out


def history(prompt: Prompt, turn: int, so_far: Sequence[Decode]) -> list[Message]:
    """The conversation before this turn's answer; earlier answers are plain decoding's."""
    out: list[Message] = []
    for earlier in range(turn):
        answer = next(of(so_far, method="ar", repeat=0, turn=earlier)).text
        out += [("user", prompt.turns[earlier]), ("assistant", answer)]
    return [*out, ("user", prompt.turns[turn])]


def fitting(world: World, prompt: Prompt, messages: Sequence[Message]) -> tuple[int, ...]:
    """The conversation as ids; Refusal where it does not fit, since nothing is cut silently."""
    ids, context = tuple(world.encode(messages)), world.target.context
    if not ids:
        raise Refusal(f"prompt {prompt.question_id} is empty: give at least one token")
    if context is not None and len(ids) >= context:
        raise Refusal(f"prompt {prompt.question_id} has {len(ids)} tokens in turn {(len(messages) + 1) // 2} and the"
                      f" target's context holds {context}: shorten it or leave it out, nothing is cut silently")
    return ids


def warm_up(world: World, entrants: Sequence[Contender], progress: Callable[[str], None]) -> None:
    """Everyone decodes prompts that are never measured; what is learnt there is kept from the streams (repeat -1)."""
    for text in WARM_UP:
        ids = tuple(world.encode([("user", text)]))
        for entrant in entrants:
            progress(f"warm-up of {entrant.name}")
            entrant.run(ids, (text, 0), -1)


def remember(prompt: Prompt, decodes: Sequence[Decode], world: World, entrants: Sequence[Contender],
             repeats: int) -> None:
    """After a resume: streams decode a finished prompt again, unmeasured, to have in memory what they had."""
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


def sum_up(plan: Plan, world: World, prompts: Sequence[Prompt], decodes: Sequence[Decode], curve: CostCurve | None,
           entrants: Sequence[Contender]) -> dict:
    """The summary of design's schema 1."""
    about = provenance.provenance()
    lossless = {entrant.name: entrant.lossless for entrant in entrants}
    return {"schema": summary.SCHEMA, "created": about["created"], "target": dict(world.about),
            "machine": about["machine"], "versions": about["versions"],
            "prompts": {"file": plan.prompts, "sha256": plan.sha256, "count": len(prompts),
                        "known_as": known_name(plan.sha256)},
            "settings": {**plan.as_dict(), **drafted(plan, world), "command": about["command"],
                         "commit": about["commit"], "changed": about["changed"], "nodes": world.kit(plan, curve).nodes,
                         "cost_curve": None if curve is None else curve.as_dict(),
                         "spread_of_repeats": summary.restlessness(decodes),
                         "spread_within_decode": summary.unrest_within(decodes),
                         "warnings": summary.warnings(decodes)},
            "methods": summary.methods(decodes, lossless, curve), "peers": summary.peers(decodes)}


def drafted(plan: Plan, world: World) -> dict:
    """Settings that only the open world knows: who drafted, and which of the plan's checkpoints were used."""
    used = {world.drafter.checkpoint, *(name for spec in plan.methods for name in trained(spec))}
    kept = {name: sha256 for name, sha256 in (plan.checkpoints or {}).items() if name in used}
    return {"draft": world.drafter.name or plan.as_dict()["draft"], "checkpoints": kept or None}
