"""Entropy trigger: retrieve while the target's entropy over its last tokens is low, else use the model drafter.

Source: ReSpec (arXiv 2511.01282), Algorithm 1, known to us at second hand. `H_k` is the mean entropy of the target's
rows that produced the last k tokens, `C_k = H_k + penalty / k` its cost (the paper's lambda_e / k), `k* = argmin C_k`
for k = 1..look_back, and retrieval drafts if `H_k* <= threshold`. Cost: no forward, because those rows were scored when
the tokens were verified.

Published: the term lambda_e / k, look_back 3 and threshold 1.5. Not published: the value of lambda_e (1.0 is a
re-implementation's), and whether k* is also the number of tokens to match (`reading`). The base of the paper's
logarithm is not known to us either: this file reads 1.5 as nats; in bits it would be 1.04 nats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, isnan, log

from specdec_lib.cards import Card, Kit
from specdec_lib.trees import stop_when_unlikely
from specdec_lib.types import QUERY, Budget, RandomNumbers, Refusal, Session

READINGS = ("switch", "query")
PAPER_VOCAB = 32_000                               # of Vicuna, the target of the published run


def decide(entropies: Sequence[float], look_back: int, penalty: float, threshold: float) -> tuple[bool, int]:
    """(retrieve?, k*) from entropies, newest last; a tie goes to the smaller k; (False, 0) without entropies."""
    best, mean, k_star, total = inf, inf, 0, 0.0
    for k in range(1, min(look_back, len(entropies)) + 1):
        total += entropies[-k]
        price = total / k + penalty / k
        if price < best:
            best, mean, k_star = price, total / k, k
    return k_star > 0 and mean <= threshold, k_star


def last_entropies(session: Session, n: int) -> tuple[float, ...]:
    """Entropies (nats) of the rows that produced the last `n` output tokens, oldest first; fewer if fewer exist."""
    found: list[float] = []
    for round in reversed(session.rounds):
        found += reversed(round.row_stats.entropy)
        if len(found) >= n:
            break
    return tuple(reversed(found[:n]))


@dataclass(frozen=True)
class EntropyTrigger:
    """`retrieve` where the trigger fires, else `model`; the first round has no entropy, so it is `model`."""

    retrieve: Budget
    model: Budget
    look_back: int = 3                             # l
    penalty: float = 1.0                           # lambda_e of Algorithm 1; not published, 1 is a re-implementation's
    threshold: float = 1.5                         # theta_entropy, nats; the paper's log base is unknown
    reading: str = "switch"                        # "query": k* is also the number of tokens to match
    unit: float = 1.0                              # nats in one unit of penalty and threshold

    def __post_init__(self):
        if self.look_back < 1:
            raise Refusal(f"look_back must be at least 1 token, got {self.look_back}")
        if not (isfinite(self.penalty) and self.penalty >= 0):
            raise Refusal(f"penalty must be finite and zero or more, got {self.penalty}")
        if isnan(self.threshold):
            raise Refusal("threshold must be a number, got nan")
        if self.reading not in READINGS:
            raise Refusal(f"reading must be one of {', '.join(READINGS)}, got {self.reading!r}")
        if not self.unit > 0:
            raise Refusal(f"unit must be above zero nats, got {self.unit}")

    def __call__(self, session: Session, dice: RandomNumbers) -> Budget:
        entropies = [entropy / self.unit for entropy in last_entropies(session, self.look_back)]
        fires, k = decide(entropies, self.look_back, self.penalty, self.threshold)
        if not fires:
            return self.model
        retrieve = self.retrieve
        if self.reading == "query":
            retrieve = retrieve.each(lambda own: replace(own, notes={**own.notes, QUERY: k}))
        return retrieve.then(self.model)


def make(kit: Kit, look_back: int = 3, penalty: float | None = None, threshold: float | None = None,
         reading: str = "switch", normalised: bool = False, retrieve: str = "feedback-retrieval",
         model: str = "eagle2", depth: int | None = None, width: int = 8, nodes: int | None = None,
         model_depth: int | None = None, model_width: int | None = None, model_nodes: int | None = None,
         least: float = 0.0) -> EntropyTrigger:
    """Depth and nodes default to the nodes that the cost curve allows; the model's sizes to those of retrieval.

    `least` stops the model's tree below a path of lower probability. `penalty` defaults to 1.0, our choice: the paper
    gives the term lambda_e / k without its value. `threshold` defaults to the paper's 1.5, read as nats: the base of
    the paper's logarithm is not known, and 1.5 bits would be 1.04 nats. `normalised` divides entropies by the largest
    possible one, ln V, because a threshold in nats does not transfer to another vocabulary; both defaults are then
    divided by ln of Vicuna's vocabulary.
    """
    if normalised and kit.facts.vocab < 2:
        raise Refusal("a normalised entropy needs the size of the target's vocabulary, which is not known")
    unit, known = (log(kit.facts.vocab), log(PAPER_VOCAB)) if normalised else (1.0, 1.0)
    depth, nodes = kit.nodes if depth is None else depth, kit.nodes if nodes is None else nodes
    tree = Budget.of(model, depth if model_depth is None else model_depth,
                     width if model_width is None else model_width, nodes if model_nodes is None else model_nodes)
    return EntropyTrigger(Budget.of(retrieve, depth, width, nodes), stop_when_unlikely(tree, least), look_back,
                          1.0 / known if penalty is None else penalty, 1.5 / known if threshold is None else threshold,
                          reading, unit)


CARD = Card("entropy-trigger", idea="retrieve where the entropy of the last tokens is low",
            source="ReSpec, arXiv 2511.01282", make=make, notebook="11_when_entropy_trigger")
