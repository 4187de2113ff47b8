"""Cut: how much of a draft stays pending once its first token is verified, and where the next draft branches.

Source: SpecBranch (arXiv 2506.01979). A predictor says how the target will fare with the draft, before it is submitted:
NONE of its tokens will be accepted, SOME, or ALL. Nothing stays, the tokens before the first uncertain position stay,
or the whole draft does; the next draft starts where the kept one ends, with branches there.

The paper's predictor (H-RAD) is an MLP on the states of the target's last four layers at the last verified token and
the embedding of that token's successor: `heads/hrad.py`. `always_some` is the paper's confidence-driven rule alone, and
`ClassOfLength` reads the class off a predicted length, that of AdaEAGLE's network (one state, one number). A predictor
of one's own is any small frozen value with this call. It sees the verified session and the longest path that the budget
allowed the draft: one that read a drafted token would drop tokens because of their own value, and the output would be
biased. The length that a draft came to is such a value too, since what its tokens lead to may have stopped it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specdec_lib.types import ROOT, Draft, Refusal, Session

NONE, SOME, ALL = CLASSES = (0, 1, 2)              # of a draft's tokens that the target will accept
Predict = Callable[[Session, int], int]            # one of CLASSES, from the verified text and the draft's longest path


def always_some(session: Session, longest: int) -> int:
    return SOME


def length_class(expected: float, longest: int) -> int:
    """The class of an expected number of accepted tokens: below one half NONE, from `longest` less one half on ALL."""
    return NONE if expected < 0.5 else ALL if expected >= longest - 0.5 else SOME


@dataclass(frozen=True)
class ClassOfLength:
    """The class of a predicted number of accepted tokens (`length_class`).

    `length(tokens)` is the prediction for the draft that follows these tokens; None, where nothing is known, is SOME.
    """

    length: Callable[[tuple[int, ...]], float | None]

    def __call__(self, session: Session, longest: int) -> int:
        expected = self.length(session.tokens)
        return SOME if expected is None else length_class(expected, longest)


@dataclass(frozen=True)
class CutAtBranchPoint:
    """Keeps what comes before the first position whose best token is less likely than `epsilon`; 0 keeps all."""

    epsilon: float = 0.3
    predict: Predict = always_some

    def __post_init__(self):
        if not 0 <= self.epsilon <= 1:
            raise Refusal(f"epsilon must be a probability between 0 and 1, got {self.epsilon}")

    def __call__(self, session: Session, draft: Draft, longest: int) -> Draft:
        expected = self.predict(session, longest)
        return Draft() if expected == NONE else draft if expected == ALL else before_uncertain(draft, self.epsilon)


def before_uncertain(draft: Draft, epsilon: float) -> Draft:
    """The nodes above the first row of each path with no token as likely as `epsilon`; all without statistics.

    Reads the row that a token was drawn from, not the token, so siblings stay or go together.
    """
    if not draft.stats:
        return draft
    kept: list[int] = []
    for node, parent in enumerate(draft.parents):
        if (parent == ROOT or parent in kept) and draft.stats[node].first >= epsilon:
            kept.append(node)
    return draft if len(kept) == len(draft) else draft.keep(tuple(kept))
