"""Summaries of decodes made up by hand."""

import json

import pytest

from specdec_lib.bench import summary
from specdec_lib.bench.results import Decode, Outcome
from specdec_lib.cost.curves import CostCurve
from specdec_lib.measure import Divergence, Row


def row(token, target=1.0, drafted=0, accepted=0, margin=2.0):
    return Row("d" * bool(drafted), drafted, accepted, min(drafted, accepted + 1), 1 + accepted, drafted, 1 + drafted,
               0.0, 0.5 * bool(drafted), target, 0.0, 0.1, (token,) * (1 + accepted),
               ("d",) * accepted + ("",), (margin,) * (1 + accepted))


def one(method, question=1, rows=(), tokens=None, seconds=None, repeat=0, turn=0, peer=False, family="qa", score=None):
    tokens = tuple(t for r in rows for t in r.tokens) if tokens is None else tokens
    seconds = sum(r.seconds for r in rows) if seconds is None else seconds
    return Decode(question, family, method, repeat, turn, peer, 10,
                  Outcome(tokens, 1.0, seconds, len(tokens) - peer, max(len(rows), len(tokens) - peer), tuple(rows)),
                  "", (), score)


PLAIN = [one("ar", q, (row(7), row(7), row(7), row(7))) for q in range(5)]
FAST = [one("fast", q, (row(7, 1.5, 3, 3),)) for q in range(5)]


def test_speed_counts_totals_of_the_same_prompts_in_whatever_order_they_come():
    entry = summary.method_summaries([*PLAIN, *reversed(FAST)], {"ar": True, "fast": True}, None)["fast"]
    assert entry["speedup"] == 4 / 2
    assert entry["speedup_ci"] == pytest.approx([2, 2])
    assert entry["speedup_end_to_end"] == 5 / 3    # one second of prefill each
    assert entry["tokens_per_second"] == 2
    assert entry["identical_prompts"] == entry["prompts"] == 5


def test_a_family_with_fewer_than_five_prompts_has_no_interval():
    families = [one("ar", q, (row(7),), family="qa" if q else "rag") for q in range(6)]
    entry = summary.method_summaries(families, {}, None)["ar"]
    assert entry["by_family"]["qa"]["speedup_ci"] == pytest.approx([1, 1])
    assert entry["by_family"]["rag"]["speedup_ci"] is None
    assert entry["by_family"]["rag"]["speedup"] == 1


def test_the_expected_speedup_uses_the_curve_and_the_measured_time_of_drafting():
    curve = CostCurve((1, 4), (8,), ((2.0, 3.5),))
    entry = summary.method_summaries([*PLAIN, *FAST], {}, curve)["fast"]
    assert entry["expected_speedup"] == 4 * 1 / (3.5 / 2 + 0.5)
    assert summary.method_summaries(PLAIN, {}, None)["ar"]["expected_speedup"] is None
    resumed = summary.method_summaries([*PLAIN, *FAST], {}, curve, {"fast"})
    assert (resumed["fast"]["expected_speedup"], resumed["ar"]["expected_speedup"]) == (None, 1.0)


def test_the_expected_speedup_of_plain_decoding_is_1_and_a_machine_that_is_slower_changes_none():
    def told(times):
        rows = [row(7)._replace(target=1.0 * times, how=0.25 * times)] * 4
        drafted = [row(7, 1.5, 3, 2)._replace(target=1.5 * times, what=0.5 * times, when=0.125 * times)]
        made = summary.method_summaries([*(one("ar", q, rows) for q in range(5)),
                                         *(one("fast", q, drafted) for q in range(5))], {}, curve)
        return made["ar"]["expected_speedup"], made["fast"]["expected_speedup"]
    curve = CostCurve((1, 4), (8,), ((2.0, 3.5),))
    assert told(1.0) == told(3.0) == (1.0, 3 * 1.25 / (3.5 / 2 + 0.625))


def test_one_other_token_in_one_repeat_makes_a_prompt_differ_and_shows_its_margin():
    plain = [one("ar", 1, (row(7), row(8, margin=0.25)), repeat=r) for r in range(2)]
    other = [one("x", 1, (row(7), row(8)), repeat=0), one("x", 1, (row(7), row(9)), repeat=1)]
    entry = summary.method_summaries([*plain, *other], {}, None)["x"]
    assert entry["identical_prompts"] == 0
    assert entry["first_divergence_margins"] == [0.25]
    assert summary.divergences(plain, other) == {1: (0, Divergence(1, (8, 9), 0.25))}


def test_a_peer_pays_for_all_tokens_but_its_first():
    peer = [one("hf", q, tokens=(7,) * 4, seconds=6.0, peer=True) for q in range(5)]
    entry = summary.peer_summaries([*PLAIN, *peer])["hf"]
    assert entry["tokens_per_second"] == 0.5
    assert entry["speedup"] == 0.5
    assert entry["tokens_per_target_forward"] == 1
    assert entry["identical_prompts"] == 5
    assert summary.speed_ratio([*PLAIN, *peer], "hf", "ar") == (2.0, pytest.approx([2.0, 2.0]))


def test_a_peer_whose_one_token_answers_took_no_time_leaves_a_summary_that_can_be_written():
    plain = [one("ar", q, (row(7), row(7))) for q in range(6)]
    peer = [one("hf", q, tokens=(7, 7), seconds=float(q > 3), peer=True) for q in range(6)]
    told = summary.peer_summaries([*plain, *peer])["hf"]
    assert told["speedup"] == pytest.approx(3)
    assert told["speedup_ci"] is None
    assert json.dumps(told, allow_nan=False)


def test_repeats_that_differ_warn_of_a_busy_machine():
    calm = [one("ar", 1, (row(7, 1.0 + 0.01 * r),), repeat=r) for r in range(3)]
    busy = [one("ar", 1, (row(7, 1.0 + 0.3 * r),), repeat=r) for r in range(3)]
    assert summary.warnings(calm) == []
    assert summary.spread_of_repeats(busy) == pytest.approx(0.6 / 1.3)
    assert "busy" in summary.warnings(busy)[0]
    assert "46%" in summary.warnings(busy)[0]


def test_forwards_that_spread_warn_with_one_repeat_and_with_repeats_that_agree():
    jumpy = [one("ar", 1, tuple(row(7, 1.0 + (i % 4)) for i in range(16)))]
    assert summary.spread_of_repeats(jumpy) is None
    alike = [*jumpy, one("ar", 1, tuple(row(7, 1.0 + (i % 4)) for i in range(16)), repeat=1)]
    assert summary.spread_of_repeats(alike) == 0
    assert "spread by" in summary.warnings(alike)[0]
    assert "spread by" in summary.warnings(jumpy)[0]


def test_decodes_that_differ_though_each_is_calm_warn_of_a_busy_machine():
    calm = [one("ar", q, tuple(row(7, 1.0 + 0.01 * q) for _ in range(16))) for q in range(8)]
    waves = [one("ar", q, tuple(row(7, 1.0 + q % 4) for _ in range(16))) for q in range(8)]
    assert summary.warnings(calm) == []
    assert "busy" in summary.warnings(waves)[0]


def test_a_few_long_waits_warn_of_a_busy_machine():
    waits = [one("ar", q, tuple(row(7, 9.0 if i == 5 else 1.0) for i in range(16))) for q in range(8)]
    assert summary.spread_within_decode(waits) == pytest.approx(0.5)
    assert "spread by 50%" in summary.warnings(waits)[0]
    assert summary.middle_half(range(8, 0, -1)) == (7 - 3) / 4.5


def test_only_a_method_that_drafts_ahead_says_how_its_time_was_measured():
    ahead = row(7)._replace(ahead=4, discarded=1)
    for rows, said in (([row(7)], None), ([ahead], "in turn"), ([ahead, ahead._replace(wall=1.0)], "in parallel")):
        assert summary.overlap_measures(rows).get("time") == said


def test_a_drafter_that_is_never_right_is_said_aloud():
    useless = [one("fast", 1, (row(7, 1.0, drafted=2), row(7, 1.0, drafted=2)))]
    assert "no drafted token accepted" in summary.warnings([*PLAIN, *useless])[0]


def test_scores_are_means_of_prompts_and_none_where_there_is_no_reference():
    scored = [one("ar", 1, (row(7),), score=1.0), one("ar", 2, (row(7),), score=0.0), one("ar", 3, (row(7),))]
    assert summary.method_summaries(scored, {}, None)["ar"]["reference_score"] == 0.5
    assert summary.method_summaries(PLAIN, {}, None)["ar"]["reference_score"] is None


def test_quality_comes_with_intervals_over_prompts():
    plain = [one("ar", q, (row(7), row(8), row(9), row(6)), score=1.0) for q in range(6)]
    half = [one("lossy", q, (row(7), row(8), row(9), row(6) if q % 2 else row(5)), score=q % 2) for q in range(6)]
    entry = summary.method_summaries([*plain, *half], {"lossy": False}, None)["lossy"]
    low, high = entry["quality_ci"]["reference_score"]
    assert low < entry["reference_score"] == 0.5 < high
    assert low >= 0
    assert high <= 1
    assert entry["quality_ci"]["ar_overlap"] == pytest.approx([0.75 + low / 4, 0.75 + high / 4])
    assert entry["quality_ci"]["target_nll"] == pytest.approx([0.1, 0.1])
    assert summary.method_summaries(plain, {}, None)["ar"]["quality_ci"]["ar_overlap"] == [1, 1]


def test_quality_has_no_interval_where_nothing_or_too_little_was_seen():
    peer = [one("hf", q, tokens=(7,) * 4, seconds=6.0, peer=True) for q in range(5)]
    seen = summary.peer_summaries([*PLAIN, *peer])["hf"]["quality_ci"]
    assert seen["target_nll"] is None
    assert seen["reference_score"] is None
    assert seen["ar_overlap"] == [1, 1]
    few = summary.method_summaries(PLAIN[:4], {}, None)["ar"]
    assert set(few["quality_ci"].values()) == {None}
    assert few["ar_overlap"] == 1


def test_repeats_and_turns_of_a_prompt_are_one_draw_of_the_bootstrap():
    loops = [one("ar", q, tokens=(1,) * (8 if q else 5), repeat=r) for q in range(5) for r in range(3)]
    entry = summary.quality_measures(loops, loops)
    assert entry["repeated_4grams"] == (4 * 4 + 1) / (4 * 5 + 2)
    assert entry["quality_ci"] == summary.quality_measures(loops[::3], loops[::3])["quality_ci"]


def test_a_change_of_quality_is_paired_with_plain_decoding_prompt_by_prompt():
    """Scores of 0 and 1 lie far apart among prompts; the method is a quarter worse on every one of them."""
    plain = [one("ar", q, (row(7), row(8), row(9), row(6)), score=q % 2 + .25) for q in range(6)]
    worse = [one("lossy", q, (row(7), row(8), row(9), row(5)), score=q % 2) for q in range(6)]
    entry = summary.method_summaries([*plain, *worse], {"lossy": False}, None)["lossy"]
    assert entry["quality_change"] == pytest.approx({"target_nll": 0, "ar_overlap": -.25, "reference_score": -.25,
                                                     "repeated_4grams": 0})
    assert entry["quality_change_ci"]["reference_score"] == pytest.approx([-.25, -.25])
    assert entry["quality_ci"]["reference_score"][1] - entry["quality_ci"]["reference_score"][0] > .5
    own = summary.method_summaries(plain, {}, None)["ar"]
    assert set(own["quality_change"].values()) == {0}
    assert all(interval == [0, 0] for interval in own["quality_change_ci"].values())


def test_a_change_of_likelihood_weighs_prompts_by_their_tokens():
    dear = row(7)._replace(nll=1.1)
    plain = [one("ar", q, (row(7),) * 4) for q in range(6)]
    mixed = [one("lossy", q, (dear,) if q == 0 else (row(7),) * 4) for q in range(6)]
    value, (low, high) = summary.quality_change([*plain, *mixed], "ar", "lossy")["target_nll"]
    assert value == pytest.approx((1.1 + 5 * 4 * .1) / 21 - .1)
    assert abs(low) < 1e-9 < value < high


def test_two_lossy_methods_are_compared_with_each_other_and_their_overlaps_are_with_plain_decoding():
    plain = [one("ar", q, (row(7), row(8), row(9), row(6))) for q in range(6)]
    half = [one("half", q, (row(7), row(8), row(5), row(5))) for q in range(6)]
    none = [one("none", q, (row(4), row(4), row(4), row(4))) for q in range(6)]
    assert summary.quality_change([*plain, *half, *none], "half", "none")["ar_overlap"] == (-.5, [-.5, -.5])
    assert summary.quality_change([*plain, *half, *none[:4]], "half", "none")["ar_overlap"] == (-.5, None)


def test_tokens_that_were_not_the_targets_best_are_counted_and_unknown_in_older_tables():
    kept = row(7)._replace(not_best=0)
    plain = [one("ar", q, (kept,) * 4) for q in range(5)]
    loose = [one("loose", q, (row(7, 1.0, 3, 3)._replace(not_best=q % 2),)) for q in range(5)]
    entries = summary.method_summaries([*plain, *loose], {}, None)
    assert entries["ar"]["not_best_per_100"] == 0
    assert entries["loose"]["not_best_per_100"] == 10
    assert summary.method_summaries(PLAIN, {}, None)["ar"]["not_best_per_100"] is None


def test_a_summary_keeps_seven_digits_and_whatever_is_no_real_number_as_it_is():
    told = {"speedup": 1.23456789012, "ci": (0.1 + 0.2, None), "prompts": 24, "lossless": True,
            "by": {"tiny": 1e-17 / 3}}
    assert summary.rounded(told) == {"speedup": 1.234568, "ci": [0.3, None], "prompts": 24, "lossless": True,
                                     "by": {"tiny": 3.333333e-18}}
    assert summary.rounded(told)["lossless"] is True
