"""A decode of a toy model, to be drawn."""

from specdec_lib import show
from specdec_lib.how.match import Match
from specdec_lib.loop import decode
from specdec_lib.models.table import Table
from specdec_lib.trees import deterministic_chain
from specdec_lib.types import Budget

ALWAYS_NEXT = Table({(): (1, 0, 0), (0,): (0, 1, 0), (1,): (0, 0, 1), (2,): (1, 0, 0)})


def decoded():
    """Two rounds over the cycle a b c, each drafting one right and one wrong token."""
    vocab = show.Vocabulary.of("a b c")
    start = vocab.tokens("a")

    def what(session, budget, dice):
        right = (int(session.tokens[-1]) + 1) % 3
        return deterministic_chain((right, right), "toy")

    for session in decode(start, ALWAYS_NEXT, lambda *_: Budget(2), what, Match(), max_new_tokens=4):
        pass
    return session, vocab
