"""Where a drafter breaks even: the tokens per target forward from which on drafting is faster than not drafting.

A round of tau tokens takes c_draft + c_verify(n) plain forwards, so its speed is S = tau / (c_draft + c_verify(n))
(Leviathan et al. 2023, theorem 3.8, per round), and S passes 1 where tau equals the sum of both costs. Expected costs
are counted (`flops.py`); measured ones are seconds on this machine, all from one process. Knows nothing of training:
see `training/eval/break_even.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter
from typing import Any

from torch import Tensor

from specdec_lib.cost.flops import Work, expected_work
from specdec_lib.heads.drafter_linear import drafter_size
from specdec_lib.loop import begin
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.types import NO_DICE, Draft, Method, Refusal, TappedLM

CONTEXT = 256                                      # tokens, or half of what the target holds where that is less
NEW = 2                                            # tokens committed since the last draft, which the drafter reads
REPEATS = 11
Clock = Callable[[], float]


def break_even_of_part(method: Method, target: TappedLM, state: Mapping[str, Tensor], meta: Mapping[str, Any],
                       layer: int | None, depth: int, context: int, repeats: int, clock: Clock = perf_counter) -> dict:
    """Expected and measured costs of one method that drafts chains of `depth` for `target`.

    `state` and `meta` are the drafter's checkpoint (empty for a table in memory), `layer` its exit layer, if any.
    Nothing is expected (None) of a target that transformers runs, since only our own decoder's layers are counted.
    Raises Refusal where the method drafts fewer tokens.
    """
    measured, expected = time_drafter(method, target, depth, context, repeats, clock), None
    if isinstance(target, Transformer):
        expected = expected_costs(*expected_work(state, meta, target.shape, depth, context, NEW, layer,
                                                 drafter_size(target.weights)))
    return {"expected": expected, "measured": measured}


def time_drafter(method: Method, target: TappedLM, depth: int, context: int, repeats: int,
                 clock: Clock = perf_counter) -> dict:
    """Medians in milliseconds of a draft, of the forward that verifies it and of a plain forward, measured in turns.

    The costs do not depend on the content, so the tokens are arbitrary ids; the last ones differ in each repeat, so
    that no cache answers. Raises Refusal where the drafter drafts fewer than `depth` tokens.
    """
    vocab, took = min(1000, target.vocab), []
    base = tuple(i * 7 % vocab for i in range(context - NEW))
    for repeat in range(repeats + 1):
        last = tuple((3 * repeat + i) % vocab for i in range(NEW + 1))
        tokens, other = base + last[:NEW], base + last[:NEW - 1] + last[NEW:]
        target.prefill(tokens[:-1])                # in a decode, the previous round has done this
        session = begin(tokens, depth + 1, context=target.context)
        budget = method.when(session, NO_DICE).within(session)
        start = clock()
        draft = method.what(session, budget, NO_DICE)
        drafted = clock()
        if len(draft) != depth:
            raise Refusal(f"a draft of {depth} tokens was requested and the drafter gave {len(draft)}: "
                          "give a smaller --depth")
        assert target(tokens, draft).best          # waits until the logits are on the host
        verified = clock()
        assert target(other, Draft()).best
        took.append((drafted - start, verified - drafted, clock() - verified))
    draft, verify, plain = (median(column) for column in zip(*took[1:], strict=True))   # the first round warms up
    found = {"draft_ms": 1000 * draft, "verify_ms": 1000 * verify, "plain_ms": 1000 * plain}
    return {name: round(value, 4) for name, value in found.items()} | costs_in_forwards(draft / plain, verify / plain)


def expected_costs(draft: Work, verify: Work) -> dict:
    """Costs on a machine bound by memory (weights read) and on one bound by arithmetic (multiplications)."""
    return {"by weights read": costs_in_forwards(draft.read, verify.read),
            "by multiplications": costs_in_forwards(draft.products, verify.products)}


def costs_in_forwards(draft: float, verify: float) -> dict:
    """Both costs in plain forwards, and their sum: the tokens per target forward at which drafting breaks even."""
    return {"draft": round(draft, 4), "verify": round(verify, 4), "tokens_per_target_forward": round(draft + verify, 4)}


def rates_on_card(measured: Mapping[str, Any], part: str) -> dict:
    """Tokens per target forward that the card gives for this part, by how they were measured."""
    return {kind: measured[kind][part].get("tokens_per_target_forward") for kind in ("teacher-forced", "live")
            if part in measured.get(kind, {})}
