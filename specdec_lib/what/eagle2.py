"""EAGLE-2: grow a tree by the head's own confidence, with one forward of the head per level.

Source: Li et al. 2024 (EAGLE-2). Formula: the score of a node is the log-probability of its path under the head,
s(child) = s(parent) + ln q(token). The root proposes its best `width` tokens; the best `width` nodes of each level do
the same for the next; of all scored nodes the best `nodes` are submitted. They form a tree: no probability exceeds one,
so a parent scores at least as high as its children, and it was found before them. Cost: one forward of the head per
level.

Nodes are chosen by score and none is drawn, so every node is deterministic at every temperature. That is lossless under
any rule that treats them so (`match`, `rejection`). With `width` >= `nodes` no tree of this size and depth has more
expected accepted tokens under the head; a narrower one may miss some. Where decoding is greedy, q is sharpened
(`sharpened`), which the paper does not do. Of these nodes only those are submitted that gain
more than their rows cost, by `cost.row_costs`, or with a `price` those of at least that path probability. The paper
submits all it may, `price=0`.

On a CPU one call of C grows the tree (`heads/eagle_tree.h`), and on a GPU one launch of a graph
(`heads/captured_tree.py`), where the budget's stop rule is a path's probability or none. `grow_candidates` is the same
in Python, for every other head and rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, inf, log
from typing import TYPE_CHECKING, cast

from specdec_lib.cards import Card, Kit
from specdec_lib.cost.row_costs import FREE, RowCosts, node_costs
from specdec_lib.heads.eagle_tree import Growth, ScoredNode
from specdec_lib.scores import KEPT, Scores, TokenStats
from specdec_lib.trees import UnlikelyPath
from specdec_lib.types import ROOT, Budget, Draft, RandomNumbers, Refusal, Session, Trail

if TYPE_CHECKING:
    from specdec_lib.heads.eagle import EagleHead
    from specdec_lib.models.llama.decoder import Transformer

NAME = "eagle2"
GREEDY = 1.1                                       # sharpness where decoding is greedy; see `data/results/tuning`
GAIN = 1.25                                        # tokens per forward time; less, since greedy rows are surer


@dataclass(frozen=True)
class Eagle2:
    """The best tree that `head` finds within depth, width and nodes, level by level, best nodes first in each.

    A node's confidence is the head's probability of its token after the parent; the log of their product along the path
    is its score.
    """

    head: EagleHead
    price: float = 0.0                             # nodes whose path probability is lower are not submitted
    rows: RowCosts = FREE                          # and no more nodes than are worth their rows
    sharpness: float = 1.0                         # of the probabilities, see `sharpened`

    def __post_init__(self):
        if not 0 <= self.price <= 1:
            raise Refusal(f"price must be a probability between 0 and 1, got {self.price}")
        if not 0 < self.sharpness < inf:
            raise Refusal(f"sharpness must be above 0 and finite, got {self.sharpness}")

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        if len(session.tokens) < 2 or not budget.size:     # one token has no hidden state yet
            return Draft()
        pool = self.grown_at_once(session, budget)
        if not pool:
            pool = grow_candidates(session.end, budget, lambda fed: self.head(session.tokens, fed), self.sharpness)
        worth = [node for node in ranking(pool)[:budget.size] if not self.price or pool[node].score >= log(self.price)]
        return candidate_tree(pool, sorted(worth[:self.rows.worth([exp(pool[node].score) for node in worth])]))

    def grown_at_once(self, session: Session, budget: Budget) -> list[ScoredNode]:
        """The candidates of `grow_candidates` by one call of the head; empty where that cannot grow this tree."""
        stop = budget.stop
        if budget.width > self.head.widest or not (stop is None or isinstance(stop, UnlikelyPath)):
            return []
        growth = Growth(budget.depth, budget.width, budget.size, 0.0 if stop is None else stop.least, session.end,
                        self.sharpness)
        return self.head.tree(session.tokens, growth)


def grow_candidates(end: frozenset[int], budget: Budget, ask: Callable[[Draft], Scores],
                    sharpness: float = 1.0) -> list[ScoredNode]:
    """Every candidate scored while growing the tree, level by level; one call of `ask` per level, for its frontier."""
    pool: list[ScoredNode] = []
    fed: list[int] = []
    frontier: list[int] = [ROOT]
    for _ in range(budget.depth):
        scores = ask(candidate_tree(pool, fed))
        level = len(pool)
        pool += expand(pool, frontier, scores, budget.width, sharpness)
        if budget.stop and budget.stop(candidate_trail(pool, level)):
            break                                  # scored candidates stay; no further level
        frontier = next_frontier(pool, level, budget, end)
        if not frontier:
            break
        fed += frontier
    return pool


def expand(pool: list[ScoredNode], parents: Sequence[int], scores: Scores, width: int,
           sharpness: float = 1.0) -> list[ScoredNode]:
    """The best `width` children of each parent, best first; the last rows of `scores` belong to the parents."""
    first_row = len(scores) - len(parents)
    rows = tuple(range(first_row, len(scores)))
    row_stats = scores.row_stats(rows, min(max(width, KEPT), scores.columns))
    tops = (part[first_row:] for part in row_stats.tops)
    found = []
    for parent, ids, logits, lse, entropy in zip(parents, *tops, row_stats.lse, row_stats.entropy, strict=True):
        above = 0.0 if parent == ROOT else pool[parent].score
        logp = sharpened(logits, lse, sharpness)
        first, second = (exp(min(logit - lse, 0.0)) for logit in logits[:2])
        found += [ScoredNode(token, parent, above + of, TokenStats(exp(of), first, second, entropy))
                  for token, of in zip(ids[:width], logp, strict=False)]
    return sorted(found, key=lambda node: -node.score)


def sharpened(logits: Sequence[float], lse: float, sharpness: float) -> list[float]:
    """Log-probabilities of a row's best tokens after softmax(sharpness x logits) over these alone; at 1 over all.

    Under greedy decoding a token counts as right where the target likes it best, and the likeliest one is right more
    often than the head's probability says, which is learned at temperature 1. That is temperature scaling (Guo et al.
    2017, arXiv 1706.04599). Rounding raises no probability above 1, so no child ranks above its parent.
    """
    if sharpness != 1:
        total = 0.0                                # `sum` rounds otherwise from Python 3.12 on, and the C code does not
        for logit in logits:
            total += exp(sharpness * (logit - logits[0]))
        lse = sharpness * logits[0] + log(total)
    return [min(sharpness * logit - lse, 0.0) for logit in logits]


def next_frontier(pool: list[ScoredNode], level: int, budget: Budget, end: frozenset[int]) -> list[int]:
    """The best `width` nodes from index `level` on that may have a child in the final tree.

    Scores only fall along a path, so the child of a node ranks after it and after all better candidates. Where
    `nodes` - 1 or more candidates rank before the node, no child of it can be chosen, and leaving it out changes no
    tree.
    """
    possible = set(ranking(pool)[:budget.size - 1])
    nodes = [node for node in range(level, len(pool)) if node in possible and pool[node].token not in end]
    return nodes[:budget.width]


def ranking(pool: list[ScoredNode]) -> list[int]:
    """Indices of the pool, best score first; at equal scores the earlier one, so parents come before children."""
    return sorted(range(len(pool)), key=lambda node: -pool[node].score)


def candidate_trail(pool: list[ScoredNode], node: int) -> Trail:
    """Token statistics along the path to this candidate."""
    out: list[TokenStats] = []
    while node != ROOT:
        out.append(pool[node].stat)
        node = pool[node].parent
    return tuple(reversed(out))


def candidate_tree(pool: list[ScoredNode], nodes: Sequence[int]) -> Draft:
    """The draft of these candidates, all deterministic; every parent must be among them, before its children."""
    place = {ROOT: ROOT} | {node: i for i, node in enumerate(nodes)}
    kept = [pool[node] for node in nodes]
    stats = tuple(node.stat for node in kept)
    return Draft(tuple(node.token for node in kept), tuple(place[node.parent] for node in kept), stats=stats,
                 source=(NAME,) * len(kept), confidence=tuple(stat.prob for stat in stats))


def make(kit: Kit, price: float | None = None, text_tokens: bool = True, sharpness: float | None = None) -> Eagle2:
    """The head of `eagle`, which is trained on chains; width, depth and nodes come with the budget.

    Without a price the kit's cost curve says which nodes are worth their rows. `text_tokens`: the text's own tokens can
    be drafted as well as those that the head was trained to draft. Without a `sharpness` it is GREEDY where decoding is
    greedy, else 1: where the target samples, its own probabilities decide.
    """
    from specdec_lib.heads.eagle import eagle_head

    return Eagle2(eagle_head(kit.checkpoints["eagle"], cast("Transformer", kit.target), text_tokens),
                  *node_costs(kit, GAIN, price), usual_sharpness(kit) if sharpness is None else sharpness)


def usual_sharpness(kit: Kit) -> float:
    """The sharpness for the sampling of this kit."""
    return GREEDY if kit.sampling is None or kit.sampling.greedy else 1.0


CARD = Card(NAME, idea="grow a tree by the head's confidence", source="Li et al. 2024, EAGLE-2", make=make,
            needs=("eagle",), notebook="24_what_eagle")
