"""Growing drafts, one node after another from a law, or as certain chains and tries from tokens already known.

And what lengths are worth: expected from chances of acceptance, or known where the text to come is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

import torch

from specdec_lib.types import ROOT, Budget, Draft, Refusal, Round, Scores, Session, Sight, Trail


def grow(session: Session, budget: Budget, dice, ask: Callable[[Draft], Scores], source: str = "") -> Draft:
    """A chain drawn token by token; `ask(draft)` scores it, and its last row gives the next law.

    A token that was drawn stays: the stop rule is asked afterwards and may only leave the next one undrawn, so the
    promise of `q` holds whatever the rule looked at. At temperature 0 every node is certain. Stops after an end token.
    """
    draft = Draft()
    while len(draft) < min(budget.depth, budget.size):
        scores = ask(draft)
        row = len(draft)
        law = scores.law(row, session.sampling)
        token = dice.at(len(session.tokens) + row).choose(law)
        seen = sight(scores, row, token)
        draft = Draft(draft.tokens + (token,), draft.parents + (row - 1,),
                      draft.q + (law if len(law.ids) > 1 else None,), draft.sights + (seen,),
                      draft.source + (source,) if source else (), draft.belief + (seen.chance,))
        if token in session.end or (budget.stop and budget.stop(draft.sights)):
            break
    return draft


def sight(scores: Scores, row: int, token: int) -> Sight:
    """What one row shows of `token`: its chance, the two best chances and the entropy (raw softmax, nats)."""
    logits = scores.logits[row]
    logits = logits if logits.dtype == torch.float64 else logits.float()
    chances = torch.softmax(logits, -1)
    first, second = torch.topk(chances, 2).values.tolist()
    entropy = float(torch.special.entr(chances).sum())
    column = token if scores.ids is None else int((scores.ids == token).nonzero()[0, 0])
    return Sight(float(chances[column]), first, second, entropy)


def certain_chain(tokens: Sequence[int], source: str = "", belief: Sequence[float] = ()) -> Draft:
    """A chain of certain nodes, as retrieval drafts it."""
    tokens = tuple(tokens)
    return Draft(tokens, tuple(range(ROOT, len(tokens) - 1)), source=(source,) * len(tokens) if source else (),
                 belief=tuple(belief))


def certain_trie(chains: Iterable[Sequence[int]], nodes: int, source: str = "") -> Draft:
    """Several chains merged into one tree of certain nodes, in order, until `nodes` are used."""
    tokens: list[int] = []
    parents: list[int] = []
    place: dict[tuple[int, int], int] = {}
    for chain in chains:
        parent = ROOT
        for token in chain:
            if (parent, token) not in place:
                if len(tokens) == nodes:
                    break
                place[parent, token] = len(tokens)
                tokens.append(token)
                parents.append(parent)
            parent = place[parent, token]
    return Draft(tuple(tokens), tuple(parents), source=(source,) * len(tokens) if source else ())


def prune(draft: Draft, budget: Budget) -> Draft:
    """What this budget would have allowed of a larger draft: by depth, by number of nodes, and cut by its stop rule.

    The stop rule cuts below the first node at which it fires, so the node that fired stays, as in `grow`.
    """
    kept: list[int] = []
    closed = {ROOT: False}
    for node, parent in enumerate(draft.parents):
        if closed.get(parent, True) or draft.depths[node] > budget.depth or len(kept) == budget.size:
            continue
        kept.append(node)
        closed[node] = bool(budget.stop and draft.sights and budget.stop(draft.trail(node)))
    return draft if len(kept) == len(draft) else draft.keep(tuple(kept))


@dataclass(frozen=True)
class Unlikely:
    """Stop drafting where the chances along the path multiply to less than `least`."""

    least: float

    def __call__(self, trail: Trail) -> bool:
        return prod(sight.chance for sight in trail) < self.least


def worthwhile(budget: Budget, least: float) -> Budget:
    """The same budget, no further below a path of less chance than `least`; at 0 as far as it goes."""
    if not 0 <= least <= 1:
        raise Refusal(f"least is a chance between 0 and 1, got {least}")
    return replace(budget, stop=Unlikely(least)) if least else budget


def offered(round: Round) -> int:
    """Depths at which the draft went on below the accepted path: as many as were accepted, or one more.

    A path that the loop cut short was not rejected, so nothing more was offered there.
    """
    path = round.verdict.path
    rejected = len(round.verdict.tokens) > len(path) and (path[-1] if path else ROOT) in round.draft.children
    return len(path) + rejected


def rates(chances: Iterable[float], seconds: Callable[[int], float]) -> Iterator[float]:
    """Tokens expected per second of a round that drafts a chain of 0, 1, 2, ... tokens, as far as there are chances.

    `chances` are those of acceptance at depth 1, 2, ..., each once the token before was accepted; `seconds(n)` is all
    that a round with n drafted tokens costs, in any unit. The verdict's own token is counted.
    """
    tokens = reach = 1.0
    yield tokens / seconds(0)
    for n, chance in enumerate(chances, 1):
        reach *= chance
        tokens += reach
        yield tokens / seconds(n)


def best_length(chances: Iterable[float], seconds: Callable[[int], float], shortest: int = 0) -> int:
    """How many tokens of a chain bring the most tokens per second, of all lengths from `shortest`; a tie is short."""
    worth = list(rates(chances, seconds))[shortest:]
    return shortest + worth.index(max(worth))


class Offer(NamedTuple):
    """What one drafter would do in one round from one place of a known text."""

    drafted: int                                   # nodes
    tokens: int                                    # accepted, and the verdict's own
    ms: float                                      # drafting and one forward, predicted; any unit will do

    @property
    def rate(self) -> float:
        """Tokens per millisecond."""
        return self.tokens / self.ms


def accepted(draft: Draft, text: Sequence[int]) -> int:
    """Nodes of the draft that greedy verification accepts where the target goes on with `text`."""
    node, depth = ROOT, 0
    while depth < len(text):
        node = next((child for child in draft.children.get(node, ()) if draft.tokens[child] == text[depth]), ROOT)
        if node == ROOT:
            break
        depth += 1
    return depth


def quickest(offers: Sequence[Sequence[Offer]]) -> tuple[int, ...]:
    """For every place of a known text the length to draft there, so that the rest is written soonest; a tie is short.

    `offers[n][place]` is what a draft of `n` tokens would do at a place. Worked out backwards from the end of the text;
    the last token is left to the verdict, so no length reaches beyond it.
    """
    places = len(offers[0])
    left = [0.0] * (places + 1)                    # ms from here to the end of the text
    best = [0] * places
    for place in reversed(range(places)):
        spent = [some[place].ms + left[place + some[place].tokens] for some in offers[:places - place]]
        left[place] = min(spent)
        best[place] = spent.index(left[place])
    return tuple(best)


def noted(draft: Draft, **notes) -> Draft:
    """The draft with these notes added, to be recorded with its round."""
    return replace(draft, notes={**draft.notes, **notes})
