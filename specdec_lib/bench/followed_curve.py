"""The cost curve that a run's choices follow: a saved one stays, one that was measured is refitted as the run goes on.

It changes between prompts alone, so that all methods decode a prompt with the same curve, and is made of what the run's
folder keeps, so that a resumed run goes on with what it has learned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from specdec_lib import catalog
from specdec_lib.bench.results import Decode
from specdec_lib.bench.runners import WARM
from specdec_lib.cost.curves import CostCurve
from specdec_lib.cost.refit import LATEST, refitted
from specdec_lib.specs import MethodSpec

EXITS = "early-exit"                               # the checkpoint of drafters that begin the target's own forward


class FollowedCurve:
    """`now` is the curve of the next prompt, `begun` that of the first; None where there is none.

    Forwards of `resumed` methods do not count.
    """

    def __init__(self, begun: CostCurve | None, refits: bool = False, resumed: Collection[str] = ()):
        self.begun = self.now = begun
        self.refits = refits and begun is not None
        self.budgets = [] if begun is None else [begun.nodes()]        # nodes by prompt, of those begun so far
        self.resumed = resumed
        self.forwards: list[tuple[int, float]] = []

    def learn(self, decodes: Iterable[Decode]) -> None:
        """Refits the curve to the decodes of one more prompt, if it is one that is refitted."""
        if self.refits and self.begun is not None:
            whole = (decode for decode in decodes if decode.method not in self.resumed)
            self.forwards = [*self.forwards, *forwards_of(whole)][-LATEST:]
            self.now = refitted(self.begun, self.forwards)
            self.budgets.append(self.now.nodes())


def resumed_methods(methods: Iterable[MethodSpec]) -> set[str]:
    """Those whose verification resumes rows that their drafter took through the first layers: a part of a forward.

    A drafter beside the target has rows of its own. A method that learns across prompts runs under the names of its
    streams as well.
    """
    names = (str(spec) for spec in methods
             if EXITS in catalog.needed_checkpoints(spec) and not catalog.card_of(spec).ahead)
    return {one for name in names for one in (name, *(f"{name} ({said})" for said in WARM.values()))}


def forwards_of(decodes: Iterable[Decode]) -> Iterator[tuple[int, float]]:
    """Width and seconds of each verification that had the machine for itself, in the order of the decodes."""
    for decode in decodes:
        for row in decode.outcome.rows:
            if row.wall is None and row.target > 0:            # no drafter computed beside it
                yield row.width, row.target
