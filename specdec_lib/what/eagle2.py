"""EAGLE-2: grow a tree by the head's own confidence, with one forward of the head per level.

Source: Li et al. 2024 (EAGLE-2). Formula: the score of a node is the log-probability of its path under the head,
s(child) = s(parent) + ln q(token). The root proposes its best `width` tokens; the best `width` nodes of each level do
the same for the next; of all scored nodes the best `nodes` are submitted. They form a tree: no probability exceeds one,
so a parent scores at least as high as its children, and it was found before them. Cost: one forward of the head per
level.

Nodes are chosen by score and none is drawn, so every node is deterministic at every temperature. That is lossless under
any rule that treats them so (`match`, `rejection`). With `width` >= `nodes` no tree of this size and depth has more
expected accepted tokens under the head; a narrower one may miss some. Where decoding is greedy, q is sharpened
(`log_chances`), which the paper does not do. Of these nodes only those are submitted that gain more than their rows
cost, by `cost.row_costs`, or with a `price` those of at least that path probability; candidates whose children cannot
be among them are not asked for any (`next_frontier`). The paper submits all it may, `price=0`.

With `counts` a node's score is s(parent) + ln softmax(sharpness x logits + counts x p), where p is the probability of
its token by what followed the same tokens earlier in the text (`heads/text_counts.py`). That is ours, and off unless a
method asks for it. Captured graphs do not count yet.

On a CPU one call of C grows the tree (`heads/eagle_tree.h`), and on a GPU one launch of a graph
(`heads/captured_tree.py`), where the budget's stop rule is a path's probability or none. `grow_candidates` is the same
in Python, for every other head and rule.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from math import exp, inf, log
from typing import TYPE_CHECKING, cast

from specdec_lib.cards import Card, Kit
from specdec_lib.cost.row_costs import FREE, RowCosts, node_costs
from specdec_lib.heads.eagle_tree import Candidates, Growth, ScoredNode
from specdec_lib.heads.text_counts import TextCounts
from specdec_lib.scores import KEPT, Scores, TokenStats
from specdec_lib.sharing import ScoresRequest, run_through
from specdec_lib.trees import Asked, UnlikelyPath
from specdec_lib.types import ROOT, Budget, Draft, RandomNumbers, Refusal, Session, Trail

if TYPE_CHECKING:
    from specdec_lib.heads.eagle import EagleHead
    from specdec_lib.models.llama.decoder import Transformer

NAME = "eagle2"
GREEDY = 1.1                                       # sharpness where decoding is greedy; see `data/results/tuning`
COUNTS = 2.75                                      # weight of counts there, where a method takes them
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
    sharpness: float = 1.0                         # of the probabilities, see `log_chances`
    counts: TextCounts | None = None               # of the text, likewise

    def __post_init__(self):
        if not 0 <= self.price <= 1:
            raise Refusal(f"price must be a probability between 0 and 1, got {self.price}")
        if not 0 < self.sharpness < inf:
            raise Refusal(f"sharpness must be above 0 and finite, got {self.sharpness}")

    def __call__(self, session: Session, budget: Budget, dice: RandomNumbers) -> Draft:
        if not self.drafts(session, budget):
            return Draft()
        pool = self.grown_at_once(session, budget) or grow_candidates(
            session.end, budget, lambda fed: self.head(session.tokens, fed), self.sharpness, self.counts, self.worth)
        return self.submitted(pool, budget)

    def asking(self, session: Session, budget: Budget, dice: RandomNumbers) -> Generator[ScoresRequest, Scores, Draft]:
        """The same, a level's forward left to others where no single call of the head grows the tree."""
        if not self.drafts(session, budget):
            return Draft()
        pool = self.grown_at_once(session, budget) or (yield from growing_candidates(
            session.end, budget, partial(ScoresRequest, self.head, session.tokens), self.sharpness, self.counts,
            self.worth))
        return self.submitted(pool, budget)

    def drafts(self, session: Session, budget: Budget) -> bool:
        """Whether there is a tree to grow, for which the counts have read the text: one token has no hidden state."""
        grows = len(session.tokens) > 1 and budget.size > 0
        if grows and self.counts:
            self.counts.read(session.tokens)
        return grows

    def submitted(self, pool: Sequence[ScoredNode], budget: Budget) -> Draft:
        """The best of these candidates, as many as are worth their rows."""
        scores = scores_of(pool)
        worth = [node for node in ranking(scores)[:budget.size] if not self.price or scores[node] >= log(self.price)]
        return candidate_tree(pool, sorted(worth[:self.rows.worth([exp(scores[node]) for node in worth])]))

    @property
    def worth(self) -> tuple[float, ...]:
        """By rank, what the probability of a path must be for its node to be worth its row."""
        return (self.price,) if self.price else self.rows.least

    def grown_at_once(self, session: Session, budget: Budget) -> Sequence[ScoredNode]:
        """The candidates of `grow_candidates` by one call of the head; empty where that cannot grow this tree."""
        stop = budget.stop
        if budget.width > self.head.widest or not (stop is None or isinstance(stop, UnlikelyPath)):
            return []
        growth = Growth(budget.depth, budget.width, budget.size, 0.0 if stop is None else stop.least, session.end,
                        self.sharpness, self.counts, self.worth)
        return self.head.tree(session.tokens, growth)


def grow_candidates(end: frozenset[int], budget: Budget, ask: Callable[[Draft], Scores], sharpness: float = 1.0,
                    counts: TextCounts | None = None, worth: Sequence[float] = ()) -> list[ScoredNode]:
    """Every candidate scored while growing the tree, level by level; one call of `ask` per level, for its frontier.

    `counts` have read the text that `ask` drafts behind.
    """
    return run_through(growing_candidates(end, budget, ask, sharpness, counts, worth))


def growing_candidates(end: frozenset[int], budget: Budget, ask: Callable[[Draft], Asked], sharpness: float = 1.0,
                       counts: TextCounts | None = None, worth: Sequence[float] = ()
                       ) -> Generator[Asked, Scores, list[ScoredNode]]:
    """`grow_candidates` whose forwards may be others': yields `ask(frontier)` and is sent its scores."""
    pool: list[ScoredNode] = []
    fed: list[int] = []
    frontier: list[int] = [ROOT]
    for _ in range(budget.depth):
        scores = yield ask(candidate_tree(pool, fed))
        level = len(pool)
        pool += expand(pool, frontier, scores, budget.width, sharpness, counts)
        if budget.stop and budget.stop(candidate_trail(pool, level)):
            break                                  # scored candidates stay; no further level
        frontier = next_frontier(pool, level, budget, end, worth)
        if not frontier:
            break
        fed += frontier
    return pool


def expand(pool: list[ScoredNode], parents: Sequence[int], scores: Scores, width: int, sharpness: float = 1.0,
           counts: TextCounts | None = None) -> list[ScoredNode]:
    """The best `width` children of each parent, best first; the last rows of `scores` belong to the parents."""
    first_row = len(scores) - len(parents)
    rows = tuple(range(first_row, len(scores)))
    row_stats = scores.row_stats(rows, min(max(width, KEPT), scores.columns))
    tops = (part[first_row:] for part in row_stats.tops)
    found = []
    for parent, ids, logits, lse, entropy in zip(parents, *tops, row_stats.lse, row_stats.entropy, strict=True):
        above = 0.0 if parent == ROOT else pool[parent].score
        bonus = counts.bonus(path_to(pool, parent), ids) if counts and counts.weight else ()
        first, second = (exp(min(logit - lse, 0.0)) for logit in logits[:2])
        best = sorted(zip(log_chances(logits, lse, sharpness, bonus), ids, strict=True), key=lambda pair: -pair[0])
        found += [ScoredNode(token, parent, above + of, TokenStats(exp(of), first, second, entropy))
                  for of, token in best[:width]]
    return sorted(found, key=lambda node: -node.score)


def log_chances(logits: Sequence[float], lse: float, sharpness: float, bonus: Sequence[float] = ()) -> list[float]:
    """Log-probabilities of a row's best tokens: softmax(sharpness x logits + bonus) over these alone.

    At sharpness 1 without a bonus over all, whose log-sum-exp is `lse`. Under greedy decoding a token counts as right
    where the target likes it best, and the likeliest one is right more often than the head's probability says, which is
    learned at temperature 1. That is temperature scaling (Guo et al. 2017, arXiv 1706.04599). The bonus joins both
    models log-linearly. Rounding raises no probability above 1, so no child ranks above its parent.
    """
    joined = [sharpness * logit + more for logit, more in zip(logits, bonus or [0.0] * len(logits), strict=True)]
    if sharpness != 1 or bonus:
        best, total = max(joined), 0.0             # `sum` rounds otherwise from Python 3.12 on, and the C code does not
        for score in joined:
            total += exp(score - best)
        lse = best + log(total)
    return [min(score - lse, 0.0) for score in joined]


def path_to(pool: list[ScoredNode], node: int) -> tuple[int, ...]:
    """The tokens of the path to this candidate, or to the root."""
    out: list[int] = []
    while node != ROOT:
        out.append(pool[node].token)
        node = pool[node].parent
    return tuple(reversed(out))


def next_frontier(pool: list[ScoredNode], level: int, budget: Budget, end: frozenset[int],
                  worth: Sequence[float] = ()) -> list[int]:
    """The best `width` nodes from index `level` on that may have a child in the final tree.

    Scores only fall along a path, so the child of a node ranks after it and after all better candidates. Where
    `nodes` - 1 or more candidates rank before the node, no child of it can be chosen, and leaving it out changes no
    tree. Nor does it where the node's own probability is not `worth` a row at the first rank that a child can have.
    """
    ranks = {node: rank for rank, node in enumerate(ranking(scores_of(pool))[:budget.size - 1], 1)}
    nodes = [node for node in range(level, len(pool)) if node in ranks and pool[node].token not in end
             and (not worth or exp(pool[node].score) >= worth[min(ranks[node], len(worth) - 1)])]
    return nodes[:budget.width]


def scores_of(pool: Sequence[ScoredNode]) -> Sequence[float]:
    """The score of every candidate."""
    return pool.scores if isinstance(pool, Candidates) else [node.score for node in pool]


def ranking(scores: Sequence[float]) -> list[int]:
    """The places of these scores, best first; at equal scores the earlier one, so parents come before children."""
    return sorted(range(len(scores)), key=scores.__getitem__, reverse=True)


def candidate_trail(pool: list[ScoredNode], node: int) -> Trail:
    """Token statistics along the path to this candidate."""
    out: list[TokenStats] = []
    while node != ROOT:
        out.append(pool[node].stat)
        node = pool[node].parent
    return tuple(reversed(out))


def candidate_tree(pool: Sequence[ScoredNode], nodes: Sequence[int]) -> Draft:
    """The draft of these candidates, all deterministic; every parent must be among them, before its children."""
    place = {ROOT: ROOT} | {node: i for i, node in enumerate(nodes)}
    kept = [pool[node] for node in nodes]
    stats = tuple(node.stat for node in kept)
    return Draft(tuple(node.token for node in kept), tuple(place[node.parent] for node in kept), stats=stats,
                 source=(NAME,) * len(kept), confidence=tuple(stat.prob for stat in stats))


def make(kit: Kit, price: float | None = None, text_tokens: bool = True, sharpness: float | None = None,
         counts: float | None = 0.0) -> Eagle2:
    """The head of `eagle`, which is trained on chains; width, depth and nodes come with the budget.

    Without a price the kit's cost curve says which nodes are worth their rows. `text_tokens`: the text's own tokens can
    be drafted as well as those that the head was trained to draft. Without a `sharpness` it is GREEDY where decoding is
    greedy, else 1: where the target samples, its own probabilities decide. `counts` is the weight of what followed the
    same tokens earlier in the text; None is COUNTS where decoding is greedy, else 0.
    """
    from specdec_lib.heads.eagle import eagle_head

    counts = (COUNTS if is_greedy(kit) else 0.0) if counts is None else counts
    return Eagle2(eagle_head(kit.checkpoints["eagle"], cast("Transformer", kit.target), text_tokens),
                  *node_costs(kit, GAIN, price), usual_sharpness(kit) if sharpness is None else sharpness,
                  TextCounts(counts) if counts else None)


def usual_sharpness(kit: Kit) -> float:
    """The sharpness for the sampling of this kit."""
    return GREEDY if is_greedy(kit) else 1.0


def is_greedy(kit: Kit) -> bool:
    """Whether this kit decodes greedily."""
    return kit.sampling is None or kit.sampling.greedy


CARD = Card(NAME, idea="grow a tree by the head's confidence", source="Li et al. 2024, EAGLE-2", make=make,
            needs=("eagle",), notebook="24_what_eagle", reads_states=True)
