"""What a draft costs: counted by hand on made-up rounds, and held against the speeds of a kept run."""

from statistics import mean, median

import pytest

from specdec_lib.analysis.bench_report import load_report
from specdec_lib.analysis.draft_prices import (
    DraftPrice,
    drafter_price,
    drafter_texts,
    fit_price,
    mean_price,
    measured_prices,
    predicted_speeds,
    price_table,
)
from specdec_lib.types import Refusal
from tests.analysis.test_respec_ablation import PLAIN, decodes, row
from tests.bench.made_up import report


def drafted(length, seconds):
    return row("eagle", length, 1.0, seconds)._replace(drafted=length, width=length + 1)


def test_a_line_goes_through_what_drafts_of_two_lengths_took():
    run = report(PLAIN, decodes("eagle(depth=1)", drafted(1, 0.5), drafted(1, 0.7)),
                 decodes("eagle(depth=3)", drafted(3, 1.0), drafted(2, 99.0)))       # the end cut the last one short
    assert measured_prices(run, "eagle") == pytest.approx({1: 0.6, 3: 1.0})
    assert fit_price({1: 0.6, 3: 1.0}) == pytest.approx((0.4, 0.2))
    assert [DraftPrice(0.4, 0.2)(length) for length in (0, 1, 2)] == pytest.approx([0, 0.6, 0.8])
    assert measured_prices(run, "draft-model") == {}
    assert drafter_price(run, "draft-model") is None
    assert drafter_price(report(PLAIN, decodes("eagle(depth=2)", drafted(2, 0.5))), "eagle") == (0, 0.25)
    with pytest.raises(Refusal, match="drafts of two lengths, and there are 1"):
        fit_price({1: 0.6})


def test_the_mean_price_of_a_drafter_needs_a_fixed_length_of_it():
    run = load_report("data/results/diffuspec")
    assert mean_price(run, "diffusion-draft") == mean(measured_prices(run, "diffusion-draft").values())
    with pytest.raises(Refusal, match="no draft of a fixed length by pearl"):
        mean_price(run, "pearl")


def test_in_the_kept_run_two_prices_predict_what_was_measured_and_one_does_not():
    run = load_report("data/results/policies")
    fitted = fit_price(measured_prices(run, "eagle"))
    found = predicted_speeds(run, "eagle", {"two": fitted, "one": DraftPrice(0, fitted(1))})
    off = {name: [abs(line[f"predicted, {name}"] / line["measured speed"] - 1) for line in found.values()]
           for name in ("two", "one")}
    assert len(found) == 8
    assert median(off["two"]) < 0.03               # the machine was busy: one length is off by 0.1
    assert median(off["one"]) > 0.1


def test_a_table_of_prices_ends_with_what_was_measured():
    table = price_table({"fitted": DraftPrice(0.4, 0.2)}, {1: 0.7})
    assert table["fitted"] == pytest.approx({"to begin": 0.4, "a token": 0.2, "a draft of 1": 0.6})
    assert table["measured"] == {"a draft of 1": 0.7}


def test_two_drafters_of_the_kept_run_are_compared_in_tokens_price_and_speed():
    run = load_report("data/results/diffuspec")
    tokens, price, speed = drafter_texts(run, "eagle", "diffusion-draft(depth=4)")
    assert tokens == "In tokens per forward eagle is better than diffusion-draft(depth=4): 2.10 against 1.57"
    assert price == ("A draft of eagle, in plain forwards, is cheaper than one of diffusion-draft(depth=4): "
                     "0.20 against 0.28")
    assert speed.startswith("eagle is ")
    assert " faster than diffusion-draft(depth=4): 1.37 times (" in speed
    assert drafter_texts(run, "diffusion-draft(depth=4)", "eagle")[0].count("worse than eagle") == 1
