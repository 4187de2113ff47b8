"""Time per round of a method's own bookkeeping as the text grows: the trigger, candidates with scores, and the trie.

No model runs. A synthetic text, much of it copied from itself, stands in for the target's output, so that drafts are
accepted and rejected, and each round records entropies and chains. The model drafter drafts nothing, and the
retrieval drafter is called every round, whether the trigger fires or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from math import ceil
from random import Random
from statistics import median
from time import perf_counter
from typing import NamedTuple, cast

import torch

from specdec_lib import catalog
from specdec_lib.cards import Kit
from specdec_lib.loop import begin
from specdec_lib.scores import RowStats
from specdec_lib.trees import nodes_along
from specdec_lib.types import LM, NO_DICE, Method, Refusal, Round, Session, Verdict
from specdec_lib.when.entropy_trigger import EntropyTrigger

LIMIT = 0.5                                        # ms per round, the limit for all parts together
SIZES = (500, 1000, 2000, 4000)                    # tokens of context
PROMPT = 256
STEPS = 100                                        # rounds that one size is measured over
COLD = 3                                           # new method objects whose first round is timed
BEYOND = 64                                        # tokens after the last size, so that drafts have full size
VOCAB = 32_000
ROWS = torch.zeros(1, 1)                           # the logits of a round are not read here
Clock = Callable[[], float]


class Timing(NamedTuple):
    """Milliseconds of a round: the median and the 95th percentile."""

    median: float
    high: float


class Overhead(NamedTuple):
    """At about `tokens` of context, after `rounds`; `cold`: median ms of the first round of new method objects."""

    tokens: int
    rounds: int
    when: Timing
    what: Timing
    together: Timing
    cold: float


def overheads(spec: str = "respec", sizes: Sequence[int] = SIZES, nodes: int = 8, steps: int = STEPS, seed: int = 0,
              clock: Clock = perf_counter, progress: Callable[[int, int, str], None] = lambda *now: None,
              ) -> tuple[Overhead, ...]:
    """The overhead of `spec` at each size, over the last `steps` rounds before it, in one growing decode.

    Refusal for a method without the entropy trigger, and for sizes that leave no output behind the prompt.
    """
    sizes = tuple(sorted(set(sizes)))
    if not sizes or sizes[0] <= PROMPT:
        raise Refusal(f"sizes are tokens of context above the {PROMPT} of the prompt, got {list(sizes)}:"
                      " give larger ones")
    if steps < 1 or nodes < 1:
        raise Refusal(f"steps and nodes are at least 1, got {steps} and {nodes}")
    text, entropies = passages(sizes[-1] + BEYOND, seed)
    out: list[Overhead] = []
    took: list[tuple[float, float]] = []
    for session, when, what in timed_rounds(without_model(spec, nodes), text, entropies, clock):
        took.append((when, what))
        progress(min(len(session.tokens), sizes[-1]), sizes[-1], "tokens of context")
        if len(session.tokens) >= sizes[len(out)]:
            out.append(overhead(session, took[-steps:], [without_model(spec, nodes) for _ in range(COLD)], clock))
        if len(out) == len(sizes):
            break
    return tuple(out)


def overhead(session: Session, took: Sequence[tuple[float, float]], unread: Sequence[Method],
             clock: Clock) -> Overhead:
    """Sums up the seconds of the last rounds; `unread` are objects of the same method before their first round."""
    cold = median(sum(timed_questions(one, session, clock)[2:]) for one in unread)
    return Overhead(len(session.tokens), len(session.rounds), timing([when for when, _ in took]),
                    timing([what for _, what in took]), timing([when + what for when, what in took]), 1000 * cold)


def timed_rounds(method: Method, text: Sequence[int], entropies: Sequence[float],
                 clock: Clock = perf_counter) -> Iterator[tuple[Session, float, float]]:
    """A decode of this text: the session after every round, and the seconds that `when` and `what` took in it."""
    session = begin(text[:PROMPT], len(text) - PROMPT)
    while not session.done:
        budget, draft, when, what = timed_questions(method, session, clock)
        place = len(session.tokens)
        path = nodes_along(draft, text[place:place + draft.depth])
        verdict = Verdict(path, tuple(text[place:place + len(path) + 1])).until(session)
        own = tuple(entropies[place:place + len(verdict.tokens)])
        row_stats = RowStats(ROWS, ROWS, (0,) * len(own), (0.0,) * len(own), own)
        session = session.after(Round(budget, draft, row_stats, verdict, ()))
        yield session, when, what


def timed_questions(method: Method, session: Session, clock: Clock) -> tuple:
    """The retrieval budget and draft, and the seconds of `when` and `what`."""
    start = clock()
    method.when(session, NO_DICE)
    then = clock()
    budget = method.when.retrieve.within(session)
    draft = method.what(session, budget, NO_DICE)
    return budget, draft, then - start, clock() - then


def without_model(spec: str, nodes: int) -> Method:
    """The method with a model drafter that drafts nothing, for a kit without a model."""
    models = [name for name in catalog.card_of(spec).parts
              if name in catalog.parts()["what"] and name not in ("feedback-retrieval", "switch")]

    def part(name: str, kit: Kit, **given):
        return catalog.make_part("nothing", kit) if name in models else catalog.make_part(name, kit, **given)
    stands_in = dict.fromkeys(catalog.needs(catalog.cards_of(spec)))
    method = catalog.build(spec, Kit(cast(LM, None), nodes=nodes, parts=part, checkpoints=stands_in))
    if not isinstance(method.when, EntropyTrigger):
        raise Refusal(f"{spec} has no entropy trigger to measure: take respec or a variant")
    return method


def passages(tokens: int, seed: int = 0, vocab: int = VOCAB) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """A text of so many tokens with the entropy (nats) of the row that each was read from.

    New tokens follow Zipf's law and come at 3 nats on average. Four stretches of five, of 5 to 40 tokens each, are
    copied from anywhere earlier, at 0.3 nats, with one token in twenty replaced; some occur at dozens of positions.
    """
    dice = Random(seed)
    weights = list(accumulate(1 / rank for rank in range(1, vocab + 1)))
    text, entropies = [], []
    while len(text) < tokens:
        n, copied = dice.randint(5, 40), len(text) > 64 and dice.random() < 0.8
        start = dice.randrange(max(1, len(text) - n))
        for place, new in enumerate(dice.choices(range(vocab), cum_weights=weights, k=n)):
            again = copied and dice.random() < 0.95
            text.append(text[start + place] if again else new)
            entropies.append(dice.expovariate(1 / 0.3 if again else 1 / 3.0))
    return tuple(text[:tokens]), tuple(entropies[:tokens])


def timing(seconds: Sequence[float]) -> Timing:
    """In milliseconds."""
    ordered = sorted(seconds)
    return Timing(1000 * median(ordered), 1000 * ordered[ceil(0.95 * len(ordered)) - 1])


def rows(found: Sequence[Overhead]) -> list[dict]:
    """One row per size, in ms per round."""
    return [{"tokens of context": one.tokens, "rounds before": one.rounds, "when": one.when.median,
             "what": one.what.median, "both": one.together.median, "95 % within": one.together.high,
             "first round": one.cold} for one in found]


def overhead_table(found: Sequence[Overhead]) -> str:
    """The rows for a terminal."""
    lines = [[name if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else f"{value:.3f}"
              for name, value in row.items()] for row in ({key: key for key in rows(found)[0]}, *rows(found))]
    return "\n".join("  ".join(f"{word:>17}" for word in line) for line in lines)


def as_dict(found: Sequence[Overhead], spec: str, nodes: int, seed: int, provenance: dict) -> dict:
    """The result for JSON, in ms per round."""
    return {"method": spec, "nodes": nodes, "seed": seed, "limit": LIMIT, "provenance": provenance,
            "sizes": [one._asdict() | {name: getattr(one, name)._asdict() for name in ("when", "what", "together")}
                      for one in found]}


def verdict(found: Sequence[Overhead]) -> str:
    """The longest context against the limit, in one sentence."""
    last = found[-1]
    side = "under" if last.together.high < LIMIT else "above"
    return (f"at {last.tokens:,} tokens the trigger, the scores and the trie cost {last.together.median:.2f} ms a"
            f" round, 95 % of rounds at most {last.together.high:.2f} ms: {side} the limit of {LIMIT} ms")
