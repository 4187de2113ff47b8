"""What a draft costs, in plain forwards of the target: so much to begin it, and so much for each token.

The first step of a round reads all that was accepted since the last draft, and starts the drafter; each further step
reads one token. One price per token would make short drafts too cheap or long ones too dear.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from specdec_lib.analysis import compare, wording
from specdec_lib.analysis.bench_report import Report
from specdec_lib.analysis.length_policies import policies_by_drafter
from specdec_lib.analysis.report_text import interval_text
from specdec_lib.bench import summary
from specdec_lib.types import Refusal


class DraftPrice(NamedTuple):
    """Plain forwards that a draft costs: `begin` once, unless nothing is drafted, and `token` for each token."""

    begin: float
    token: float

    def __call__(self, length: float) -> float:
        return self.begin + self.token * length if length else 0.0

    @property
    def said(self) -> str:
        """Both prices in words."""
        return f"{self.begin:.2f} to begin and {self.token:.2f} a token"


def measured_prices(report: Report, drafter: str) -> dict[int, float]:
    """Length -> plain forwards that a draft of this length took, from the rounds of the fixed lengths of this drafter.

    Drafts that the end of the answer cut short are left out. Empty if the run has no fixed length of it.
    """
    plain = [row.target for row in compare.method_rounds(report, "ar")]
    found = {}
    for one in policies_by_drafter(report).get(drafter, ()):
        took = [row.what for row in compare.method_rounds(report, one.spec) if row.drafted == one.length]
        if one.length and took and plain:
            found[one.length] = (sum(took) / len(took)) / (sum(plain) / len(plain))
    return found


def mean_price(report: Report, drafter: str) -> float:
    """The mean of the measured prices; Refusal for a run that has no fixed length of this drafter."""
    prices = measured_prices(report, drafter)
    if not prices:
        raise Refusal(f"this run has no draft of a fixed length by {drafter}: name a finished run that has one")
    return sum(prices.values()) / len(prices)


def fit_price(prices: Mapping[int, float]) -> DraftPrice:
    """The least-squares line through these prices by length; Refusal for fewer than two lengths."""
    if len(prices) < 2:
        raise Refusal(f"the price of a token needs drafts of two lengths, and there are {len(prices)}")
    n, mean, level = len(prices), sum(prices) / len(prices), sum(prices.values()) / len(prices)
    slope = (sum(length * price for length, price in prices.items()) - n * mean * level) / (
        sum(length ** 2 for length in prices) - n * mean ** 2)
    return DraftPrice(level - slope * mean, slope)


def price_row(report: Report, drafter: str) -> dict[str, float]:
    """What a draft of each measured length took, as a row of a table."""
    return {f"a draft of {k}, in plain forwards": cost for k, cost in measured_prices(report, drafter).items()}


def price_table(prices: Mapping[str, DraftPrice], took: Mapping[int, float]) -> dict[str, dict[str, float]]:
    """Every price, and what it says of a draft of each length; the last row is what a run `took`, as measured."""
    return {name: {"to begin": one.begin, "a token": one.token} | {f"a draft of {k}": one(k) for k in took}
            for name, one in prices.items()} | {"measured": {f"a draft of {k}": value for k, value in took.items()}}


def drafter_price(report: Report, drafter: str) -> DraftPrice | None:
    """The price of this drafter in a run; of one length alone all is the token's, and without any it is None."""
    took = measured_prices(report, drafter)
    if len(took) > 1:
        return fit_price(took)
    return next((DraftPrice(0.0, price / length) for length, price in took.items()), None)


def drafter_texts(report: Report, spec: str, base: str) -> list[str]:
    """How a method of a run compares with another in words: tokens per forward, price of a draft, and speed."""
    tokens = [report.entries[name]["tokens_per_target_forward"] for name in (spec, base)]
    prices = [next(iter(measured_prices(report, name.split("(")[0]).values()), None) for name in (spec, base)]
    return [wording.than(f"In tokens per forward {spec}", tokens[0], base, tokens[1], "better", "worse"),
            wording.than(f"A draft of {spec}, in plain forwards,", prices[0], f"one of {base}", prices[1], "dearer",
                         "cheaper"),
            wording.over(spec, *summary.speed_ratio(report.decodes, base, spec), base)]


def predicted_speeds(report: Report, drafter: str, prices: Mapping[str, DraftPrice]) -> dict[str, dict]:
    """Each fixed length of a drafter: tokens per forward of the run, the speed that each price predicts, the measured.

    Predictions take the run's tokens and its cost curve, so that they differ by the price of the draft alone. Empty if
    the run has no curve.
    """
    curve, out = report.curve, {}
    for one in policies_by_drafter(report).get(drafter, ()) if curve else ():
        if one.length and curve:
            entry = report.entries[one.spec]
            tokens = entry["tokens_per_target_forward"]
            said = {f"predicted, {name}": curve.expected_speedup(tokens, one.length + 1, price(one.length) * curve(1))
                    for name, price in prices.items()}
            out[f"length {one.length}"] = {"tokens per forward": tokens} | said | {
                "measured speed": entry["speedup"], "95 % interval": interval_text(entry["speedup_ci"])}
    return out
