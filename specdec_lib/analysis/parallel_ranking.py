"""Which parallel schedule would be fastest at a price: five papers' schedules simulated under one set of assumptions.

Everything here is simulated with independent acceptance: alpha is the probability that a drafted token is the target's,
the same for every drafter, which favours cheap drafters. A forward costs the same whatever its width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby

from specdec_lib.analysis.parallel_published import EXIT_SHARE
from specdec_lib.schedules import closed_forms as forms
from specdec_lib.schedules.simulate import Calibration
from specdec_lib.schedules.traces import overlapped_rounds, pipelined, replay
from specdec_lib.what.multi_sequence import divisor_below

HEADS = 3                                          # of SpecBranch, its released code's k_max
SEQUENCES = 2                                      # of DuoDecoding, where its rule allows so many for a length
RETRIEVED = 1.0                                    # tokens that Double's drafter wins by retrieval in a step: assumed
LAYERS = 24
CLOSE = 0.01                                       # a lead that is called none
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


def closed_form_speeds(alpha: float, ratio: float) -> dict[str, float]:
    """The same speeds by the closed forms, which no draws make uncertain; the best first."""
    length = forms.matched_length(ratio)
    sequences, longer = divisor_below(SEQUENCES, length), round(length * (1 + RETRIEVED))
    heads, several = any_of(alpha, HEADS), any_of(alpha, sequences)
    found = {"pearl": forms.pearl_speed(alpha, ratio),
             "specbranch": forms.two_mode_speed(alpha, length, ratio, heads),
             "duodecoding": forms.two_mode_speed(alpha, length // sequences, ratio, several, length),
             "double": forms.two_mode_speed(alpha, longer, ratio, steps=length),
             "ppsd": forms.pipelined_speed(alpha, round(EXIT_SHARE * LAYERS), LAYERS)}
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def leaders(speeds: Mapping[str, float]) -> list[str]:
    """The fastest, and those that are slower by less than CLOSE of it: no lead to speak of under such assumptions."""
    return [name for name, speed in speeds.items() if speed > (1 - CLOSE) * max(speeds.values())]


def leading_title(speeds: Mapping[str, float], alpha: float, ratio: float) -> str:
    """Which schedule these speeds have first, or which ones without a lead."""
    best = leaders(speeds)
    return (f"At alpha = {alpha:g}, ratio {ratio:g}, {' and '.join(best)} {'is' if len(best) == 1 else 'are'} first"
            " (closed forms)")


def ahead_text(ranges: Sequence[tuple[float, float]], lowest: float) -> str:
    """The ranges of acceptance in which a schedule is ahead, of those from `lowest` to 1."""
    if list(ranges) == [(lowest, 1.0)]:
        return f"at every alpha from {lowest:g} on"
    shown = [[f"{end:.{2 if end < .995 else 3}f}" for end in one] for one in ranges]       # no end is called 1.00
    said = [f"from alpha = {low} on" if one[1] == 1 else f"up to alpha = {high}" if one[0] == lowest else
            f"from alpha = {low} to {high}" for one, (low, high) in zip(ranges, shown, strict=True)]
    return " and ".join(said) or f"at no alpha from {lowest:g} on"


def map_title(alphas: Sequence[float], ratios: Sequence[float], winners: Sequence[Sequence[str]],
              name: str = "PEARL", at: Sequence[float] = (4, 16)) -> str:
    """At which acceptances of a map a schedule is the fastest, at some of its speed ratios: every range is named."""
    def ranges(row: Sequence[str]) -> str:
        runs = [list(run) for won, run in groupby(range(len(row)), lambda place: row[place] == name) if won]
        said = [f"from alpha = {alphas[run[0]]:.2f} on" if run[-1] == len(row) - 1 else
                f"at alpha = {alphas[run[0]]:.2f}" if len(run) == 1 else
                f"from alpha = {alphas[run[0]]:.2f} to {alphas[run[-1]]:.2f}" for run in runs]
        return ", ".join(said) or "at no alpha of the map"

    said = [f"{ranges(winners[list(ratios).index(ratio)])} at ratio {ratio:g}" for ratio in at]
    return f"{name} is fastest {' and '.join(said)}"


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
