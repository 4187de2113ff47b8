"""Where a drafter breaks even: the tokens per target forward from which on drafting is faster than not drafting.

A round of tau tokens takes c_draft + c_verify(n) plain forwards, so its speed is S = tau / (c_draft + c_verify(n))
(Leviathan et al. 2023, theorem 3.8, per round), and S passes 1 where tau equals both costs together. Expected costs are
counted on paper (`work.py`); measured ones are seconds of this machine, all of one process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter
from typing import Any

from specdec_lib import catalog
from specdec_lib.cost.flops import Work, expected_work
from specdec_lib.heads.draft_lm import draft_lm
from specdec_lib.loop import begin
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.training.recipes import DEPTH, NGRAM, RECIPES, beside, spec_of
from specdec_lib.types import LM, NO_DICE, Draft, Kit, Method, Refusal

CONTEXT = 256                                      # tokens, or half of what the target holds where that is less
NEW = 2                                            # tokens committed since the last draft, which the drafter reads
REPEATS = 11
DRAFTERS = (*(name for name, which in RECIPES.items() if not which.fills), NGRAM)
Clock = Callable[[], float]


def break_even(name: str, stored: Any, target: Transformer, measured: Mapping[str, Any], where: Mapping[str, Any],
               depth: int = DEPTH, context: int = CONTEXT, repeats: int = REPEATS, clock: Clock = perf_counter) -> dict:
    """Both sides of the break-even of every part of a drafter, as its card keeps them.

    `stored` is a checkpoint, or the table of an n-gram; `measured` are its card's rates, of chains of length `DEPTH`,
    told only beside that depth; `where` says on what machine this runs. Refusal for a depth that it cannot draft, and
    for a name that drafts nothing.
    """
    if depth < 1 or repeats < 1 or context <= NEW:
        raise Refusal(f"a break-even takes a depth and repeats of at least 1 and a context above {NEW}, got {depth}, "
                      f"{repeats} and {context}")
    context = min(context, target.context // 2)
    out = {"depth": depth, "context": context, "new_tokens": NEW, "repeats": repeats, **where}
    for part in parts_of(name, stored):
        layer = int(part.split()[-1]) if part else None
        state, meta = getattr(stored, "state", {}), getattr(stored, "meta", {})
        lm = target.fresh()
        seconds = time_drafter(method_of(name, part, stored, lm, depth), lm, depth, context, repeats, clock)
        draft, verify = expected_work(state, meta, target.shape, depth, context, NEW, layer)
        out[part or name] = {"expected": expected_costs(draft, verify), "measured": seconds,
                             "reached": rates_on_card(measured, part or name) if depth == DEPTH else {}}
    return out


def parts_of(name: str, stored: Any) -> tuple[str, ...]:
    """The parts of a drafter, as its card names them; Refusal for a name that nobody drafts with."""
    if name not in DRAFTERS:
        raise Refusal(f"{name} is no drafter that is trained here; there are: {', '.join(DRAFTERS)}")
    return ("",) if name == NGRAM else RECIPES[name].parts(stored.meta)


def method_of(name: str, part: str, stored: Any, target: Transformer, depth: int) -> Method:
    """The method that drafts with it, chains of this depth, on this very target."""
    if name == NGRAM:
        return catalog.build(f"draft-model(depth={depth})", Kit(target, draft=stored, parts=catalog.make_part))
    draft = draft_lm(stored.state, target.weights) if name == "draft-lm" else None
    kit = Kit(target, draft=draft, checkpoints=beside(RECIPES[name], stored), parts=catalog.make_part)
    return catalog.build(spec_of(RECIPES[name], part, depth), kit)


def time_drafter(method: Method, target: LM, depth: int, context: int, repeats: int,
                 clock: Clock = perf_counter) -> dict:
    """Medians in milliseconds of a draft, of the forward that verifies it and of a plain one, taken in turns.

    What the tokens say costs nothing, so they are numbers; each repeat has other last ones, or caches would answer.
    Refusal where the drafter cannot draft so many.
    """
    vocab, took = min(1000, target.vocab), []
    base = tuple(i * 7 % vocab for i in range(context - NEW))
    for repeat in range(repeats + 1):
        last = tuple((3 * repeat + i) % vocab for i in range(NEW + 1))
        tokens, other = base + last[:NEW], base + last[:NEW - 1] + last[NEW:]
        target.prefill(tokens[:-1])                # in the loop, the round before has done this
        session = begin(tokens, depth + 1, context=target.context)
        budget = method.when(session, NO_DICE).within(session)
        start = clock()
        draft = method.what(session, budget, NO_DICE)
        drafted = clock()
        if len(draft) != depth:
            raise Refusal(f"a draft of {depth} was asked for and one of {len(draft)} came: give a smaller --depth")
        assert target(tokens, draft).best          # the logits are on the host
        verified = clock()
        assert target(other, Draft()).best
        took.append((drafted - start, verified - drafted, clock() - verified))
    draft, verify, plain = (median(column) for column in zip(*took[1:], strict=True))   # the first round warms up
    found = {"draft_ms": 1000 * draft, "verify_ms": 1000 * verify, "plain_ms": 1000 * plain}
    return {name: round(value, 4) for name, value in found.items()} | costs_in_forwards(draft / plain, verify / plain)


def expected_costs(draft: Work, verify: Work) -> dict:
    """What a machine bound by its memory and one bound by its arithmetic would pay."""
    return {"by weights read": costs_in_forwards(draft.read, verify.read),
            "by multiplications": costs_in_forwards(draft.products, verify.products)}


def costs_in_forwards(draft: float, verify: float) -> dict:
    """Both costs in plain forwards, and the tokens per target forward that pay for them."""
    return {"draft": round(draft, 4), "verify": round(verify, 4), "tokens_per_target_forward": round(draft + verify, 4)}


def rates_on_card(measured: Mapping[str, Any], part: str) -> dict:
    """Tokens per target forward that the card has of this part, by how they were measured."""
    return {kind: measured[kind][part]["tokens_per_target_forward"] for kind in ("teacher-forced", "live")
            if part in measured.get(kind, {})}
