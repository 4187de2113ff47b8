"""Surprises in nats, a rule without a bound, and a drafter of random trees."""

import math

from specdec_lib.trees import prune
from specdec_lib.types import ROOT, Draft

FREE = math.inf


def n(prob: float) -> float:
    return -math.log(prob)


def trees(session, budget, dice):
    return prune(Draft((1, 0, 2, 1, 2, 1), (ROOT, ROOT, 0, 1, 1, 0)), budget)
