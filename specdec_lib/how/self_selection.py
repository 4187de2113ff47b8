"""Self-selection: of several drafted chains keep the one that the target expects to accept longest, and no other.

Source: SpecDiff-2 (arXiv 2511.00606, algorithm 1 and equation 7). A chain's expected streak is sum over m of P(x_1) ...
P(x_m), each probability given the tokens before it, under the distribution that is sampled from; one forward over the
trie of all chains gives them. The chain with the largest is kept, the first of equals. Then greedy acceptance: x is
accepted with probability P(x), and after a rejection a token of P without x is emitted. One draw does both: a token is
drawn from P, and the walk continues while it is the chain's next. `q` is not read, every node counts as a deterministic
proposal.

Lossless: the choice depends on P and on no random number, so the kept chain is fixed before the first draw. At
temperature 0 the streak counts the target's own tokens, so this is a walk down the trie by argmax. Above it, the same
draws walked down the whole trie (`match`) never accept less: a chain that is not kept can no longer be followed.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec_lib.cards import Card
from specdec_lib.scores import Scores
from specdec_lib.types import ROOT, Draft, RandomNumbers, Session, Verdict


@dataclass(frozen=True)
class SelfSelection:
    """Keeps one chain of the trie by its expected streak, then draws from the target along it."""

    def __call__(self, session: Session, draft: Draft, scores: Scores, dice: RandomNumbers) -> Verdict:
        path: list[int] = []
        node = ROOT
        for following in (*best_chain(session, draft, scores), None):
            position = len(session.tokens) + len(path)
            token = dice.at(position).choose(scores.distribution(node + 1, session.sampling))
            if following is None or token != draft.tokens[following]:
                return Verdict.of(draft, tuple(path), token)
            path.append(following)
            node = following
        raise AssertionError("the last of the chain is None, which returns")


def best_chain(session: Session, draft: Draft, scores: Scores) -> tuple[int, ...]:
    """Nodes of the chain with the largest expected streak, root to leaf; of equals the one drafted first."""
    expected = expected_streaks(session, draft, scores)
    leaves = [node for node in range(len(draft)) if node not in draft.children]
    return draft.path(max(leaves, key=lambda leaf: expected[leaf], default=ROOT))


def expected_streaks(session: Session, draft: Draft, scores: Scores) -> tuple[float, ...]:
    """Expected accepted tokens of the chain that ends at each node, were it kept; one distribution per parent."""
    reach, expected = {ROOT: 1.0}, {ROOT: 0.0}
    for parent, children in draft.children.items():    # parents come before their children, as in the draft
        p = scores.distribution(parent + 1, session.sampling) if reach[parent] else None
        for child in children:
            reach[child] = reach[parent] * p.probability(draft.tokens[child]) if p else 0.0
            expected[child] = expected[parent] + reach[child]
    return tuple(expected[node] for node in range(len(draft)))


CARD = Card("self-selection", idea="of several chains keep the one the target expects to accept longest",
            source="SpecDiff-2, arXiv 2511.00606", make=lambda kit: SelfSelection(), notebook="35_how_self_selection")
