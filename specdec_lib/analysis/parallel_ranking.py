"""Which parallel schedule would be fastest at a price: five papers' schedules simulated under one set of assumptions.

Everything here is simulated with independent acceptance: alpha is the probability that a drafted token is the target's,
the same for every drafter, which favours cheap drafters. A forward costs the same whatever its width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from specdec_lib.analysis.parallel_published import EXIT_SHARE
from specdec_lib.schedules import closed_forms as forms
from specdec_lib.schedules.simulate import Calibration
from specdec_lib.schedules.traces import overlapped_rounds, pipelined, replay
from specdec_lib.what.multi_sequence import divisor_below

HEADS = 3                                          # of SpecBranch, its released code's k_max
SEQUENCES = 2                                      # of DuoDecoding, where its rule allows so many for a length
RETRIEVED = 1.0                                    # tokens that Double's drafter wins by retrieval in a step: assumed
LAYERS = 24
ASSUMED = (f"specbranch: {HEADS} branches, drafted as one batch at the price of one; duodecoding: {SEQUENCES} sequences"
           f" that share the budget, one where that does not divide it; heads are right independently, an upper"
           f" estimate; ppsd: exit after {EXIT_SHARE:.0%} of the layers,"
           f" a device for each stage; double: {RETRIEVED:g} retrieved token for each drafted one; all accept alike")


def any_of(alpha: float, heads: int) -> float:
    """The probability that one of several first tokens is the target's, if they were independent: an upper estimate."""
    return 1 - (1 - alpha) ** heads


def simulated_speeds(alpha: float, ratio: float, rounds: int = 400, seed: int = 0,
                     more: float = 0.0) -> dict[str, float]:
    """Times plain decoding of each schedule at this acceptance and speed ratio, simulated; the best first.

    `more` is the price of a further branch of SpecBranch in draft steps: 0 on a device with room for a batch.
    """
    length = forms.matched_length(ratio)
    draw = partial(overlapped_rounds, alpha, rounds=rounds, seed=seed)
    sequences = divisor_below(SEQUENCES, length)
    longer = round(length * (1 + RETRIEVED))
    step = Calibration(1.0, float(ratio))
    found = {"pearl": ratio * replay(draw(length), step).rate,
             "specbranch": ratio * replay(draw(length, branches=HEADS, first=any_of(alpha, HEADS)),
                                          Calibration(1.0, float(ratio), more=more)).rate,
             "duodecoding": ratio * replay(draw(length // sequences, branches=sequences,
                                                first=any_of(alpha, sequences)), step).rate,
             "double": ratio * replay(draw(longer), Calibration(length / longer, float(ratio))).rate,
             "ppsd": LAYERS * pipelined(alpha, LAYERS, round(EXIT_SHARE * LAYERS), rounds, seed).rate}
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def fastest_schedules(alphas: Sequence[float], ratios: Sequence[float]) -> list[list[str]]:
    """The faster of plain decoding, serial speculation at its best length, and PEARL, by their closed forms."""
    return [[max(speeds, key=speeds.__getitem__) for speeds in (candidates(alpha, ratio) for alpha in alphas)]
            for ratio in ratios]


def candidates(alpha: float, ratio: float) -> Mapping[str, float]:
    """Closed-form speeds of the three; a lead below a hundredth is a tie, and goes to the simpler one."""
    length = forms.best_serial_length(alpha, ratio)
    found = {"plain decoding": 1.0, "serial speculation": forms.serial_speed(alpha, length, ratio),
             "PEARL": forms.pearl_speed(alpha, ratio)}
    return {name: round(speed, 2) for name, speed in found.items()}
