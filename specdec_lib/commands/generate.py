"""`specdec generate`: an answer as a stream of text, then one line of statistics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

from specdec_lib import catalog, measure
from specdec_lib.bench.environment import Environment
from specdec_lib.bench.plan import Plan
from specdec_lib.commands.printable import printable
from specdec_lib.cost.curves import CostCurve
from specdec_lib.dice import Dice
from specdec_lib.loop import run
from specdec_lib.types import Refusal, Session


def stream_answer(plan: Plan, spec: str, world: Environment, curve: CostCurve | None, prompt: str) -> Iterator[str]:
    """Pieces of the answer as they come (a character may span tokens), then one line of statistics."""
    kit, session = world.begin(plan, curve, world.encode([("user", prompt)]), "given")
    method = catalog.build(spec, kit)
    stream = world.stream()
    for session in run(session, kit.target, method, Dice(plan.seed), kit.memory):   # noqa: B020
        yield printable(stream.push(session.rounds[-1].verdict.tokens))
    yield printable(stream.finish())
    yield f"\n{statistics(session, spec, plan, None if kit.draft is None else kit.draft.context)}\n"


def read_prompt(word: str, stdin: TextIO) -> str:
    """The prompt itself, or for `-` what stdin holds; Refusal for an empty one and for what is no text."""
    try:
        prompt = stdin.read() if word == "-" else word
        prompt.encode("utf-8")                     # fails for bytes that were read as halves of characters
    except UnicodeError:
        raise Refusal("the prompt is not UTF-8 text: give a text file on stdin, saved as UTF-8") from None
    if not prompt.strip():
        raise Refusal("the prompt is empty: give some text to answer")
    return prompt


def statistics(session: Session, spec: str, plan: Plan, drafts_up_to: int | None = None) -> str:
    """One line: counts, then seconds, then method, target and device.

    `drafts_up_to` is the context of the draft model; where the text is longer, the line says so.
    """
    rows = measure.rows(session)
    seconds = sum(row.seconds for row in rows)
    short = "" if drafts_up_to is None or len(session.tokens) <= drafts_up_to else (
        f" (the draft model holds {drafts_up_to} tokens and drafts none beyond them)")
    cut = session.done and len(session.output) < plan.max_new_tokens and session.tokens[-1] not in session.end
    return (f"[{len(session.output)} tokens in {len(rows)} forwards{' (the context ends here)' if cut else ''}{short},"
            f" {measure.tokens_per_target_forward(rows):.2f} per forward;"
            f" prefill of {session.prompt} tokens {session.prefill:.2f} s, decode {seconds:.2f} s,"
            f" {len(session.output) / seconds:.1f} tokens/s; {spec}, {plan.as_dict()['target']}, {plan.device},"
            f" {plan.dtype}, {plan.threads} threads]")
