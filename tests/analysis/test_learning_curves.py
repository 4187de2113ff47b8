"""Learning curves from made-up logs: what is read, what a fit that went on counts, what is refused."""

import gzip
import json
from math import inf

import pytest

from specdec_lib.analysis.learning_curves import (
    Look,
    PowerLaw,
    amount,
    curves_of_shelf,
    depth_texts,
    fit_power_law,
    keep_curves,
    late_gain,
    load_curves,
    longest_predicted,
    looks_of,
    power_laws,
    tau_difference,
    text_needed,
    trained_text,
    trained_texts,
)
from specdec_lib.types import Refusal


def look(tokens, held, watched, name="eagle"):
    rates = {kind: {name: {"tokens_per_target_forward": value}} for kind, value in (("held_out", held),
                                                                                   ("watched", watched))}
    return {"step": tokens // 100, "tokens": tokens, **rates}


LOG = [look(0, 1.2, 1.1), {"step": 1, "tokens": 100, "loss": 3.0}, look(1000, 1.8, 1.4), look(3000, 2.0, 1.5)]


def test_looks_are_the_measured_lines_and_count_the_tokens_of_the_fit_before():
    assert looks_of(LOG, "eagle") == (Look(0, 1.2, 1.1), Look(1000, 1.8, 1.4), Look(3000, 2.0, 1.5))
    assert [one.tokens for one in looks_of(LOG, "eagle", 500)] == [500, 1500, 3500]


@pytest.mark.parametrize("log", [[], LOG[:2], [{name: value for name, value in line.items() if name != "watched"}
                                              for line in LOG]])
def test_a_log_that_watched_no_answers_is_refused(log):
    with pytest.raises(Refusal, match="train with --watch"):
        looks_of(log, "eagle")


def test_what_is_kept_is_read_back_with_its_gain_and_points(tmp_path):
    out = tmp_path / "curves.json"
    made = {"command": "specdec train eagle", "tokens_before": 500}
    keep_curves({"eagle": LOG}, {"eagle": made}, out, {"prompts": 3})
    curve, = load_curves(out)
    assert (curve.name, curve.made["command"]) == ("eagle", "specdec train eagle")
    assert curve.gain == pytest.approx((3000, 0.8, 0.4))
    assert curve.points("watched") == [(0.0005, 1.1), (0.0015, 1.4), (0.0035, 1.5)]
    assert json.loads(out.read_text())["watched"] == {"prompts": 3}
    keep_curves({"longer": LOG}, {"longer": made | {"drafter": "eagle"}}, out, {})
    assert load_curves(out)[0].looks == curve.looks


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"runs": {"eagle": {"looks": [[1]], "made": {}}}}', '{"runs": 3}'])
def test_another_file_is_refused(text, tmp_path):
    (tmp_path / "odd.json").write_text(text)
    with pytest.raises(Refusal, match="holds no learning curves"):
        load_curves(tmp_path / "odd.json")


def test_a_power_law_is_found_again_and_says_when_a_goal_is_reached():
    law = PowerLaw(2.0, 0.3, 0.4)
    found = fit_power_law([(n, law.at(n)) for n in (0.1, 0.2, 0.5, 1.0, 3.0)])
    assert found == pytest.approx(law, rel=1e-3)
    assert found.at(found.tokens_for(1.9)) == pytest.approx(1.9)
    assert law.tokens_for(1.9) == pytest.approx(3 ** 2.5)
    assert law.tokens_for(2.0) == inf


def test_the_law_without_one_end_differs_where_that_end_lies_off():
    law = PowerLaw(2.0, 0.3, 0.4)
    ends = [(n, law.at(n)) for n in (0.1, 0.2, 0.5, 1.0, 3.0)]
    whole, parts = power_laws([*ends[:-1], (3.0, law.at(3.0) - 0.05)])
    assert len(parts) == 5
    assert parts[-1] == pytest.approx(fit_power_law(ends[:-1]), rel=1e-3)
    assert parts[-1].at(9.0) > whole.at(9.0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("ends", [[(1, 2.0), (2, 1.9), (4, 1.95), (8, 1.8)], [(2, 1.5), (2, 1.6), (2, 1.7)]])
def test_fits_that_do_not_rise_predict_no_text(ends):
    law, without = power_laws(ends)
    assert law.scale <= 0
    assert law.tokens_for(1.5) == inf
    assert text_needed(1.5, law, without).endswith("per forward: the fits do not rise with their text")


def test_three_ends_have_a_law_and_no_laws_without_one():
    law = PowerLaw(2.0, 0.3, 0.4)
    ends = [(n, law.at(n)) for n in (0.1, 0.2, 0.5)]
    assert power_laws(ends)[1] == ()
    assert longest_predicted(ends, (), 0.05)[1] is None


def test_whether_shorter_runs_say_where_the_longest_ends_is_said_with_both_numbers():
    law = PowerLaw(2.0, 0.3, 0.4)
    for off, holds in ((0.0, True), (0.1, False)):
        ends = [*((n, law.at(n)) for n in (0.1, 0.2, 0.5)), (1.0, law.at(1.0) - off)]
        said, found = longest_predicted(ends, power_laws(ends)[1], 0.05)
        assert found == holds
        assert said == (f"the law of the others predicts the longest of these 4 fits, after 1 million tokens, to 0.05: "
                        f"1.70 predicted, {1.7 - off:.2f} measured")


def test_a_law_of_two_ends_is_refused():
    with pytest.raises(ValueError, match="needs as many ends of runs, got 2"):
        fit_power_law([(1, 1.5), (2, 1.6)])


def test_a_late_gain_is_that_of_the_last_third_whenever_the_looks_were():
    points = [(1.0, 1.2), (2.0, 1.5), (3.0, 1.55), (4.0, 1.6)]
    assert late_gain(points) == pytest.approx(0.05)
    assert late_gain(points, 0.5) == pytest.approx(0.075)
    assert late_gain([(0.0, 1.0), (3.0, 1.9)]) == pytest.approx(0.3)
    assert late_gain(points[:1]) == 0


def told(tau, rounds, *rates):
    return {"tokens_per_target_forward": tau, "rounds": rounds, "conditional_acceptance": rates}


def test_a_gain_inside_the_error_of_the_rounds_is_no_gain():
    few, many = (told(1.52, rounds, 0.52) for rounds in (100, 100_000))
    assert tau_difference(few, told(1.5, 100, 0.5)) == 0
    assert tau_difference(many, told(1.5, 100_000, 0.5)) == pytest.approx(0.02)
    assert trained_text("it", few, "untrained", told(1.5, 100, 0.5)) == (
        "it, trained, and untrained show no difference: 1.52 against 1.50")
    assert trained_text("it", many, "untrained", told(1.5, 100_000, 0.5)) == (
        "it, trained, is better than untrained: 1.52 against 1.50")
    assert trained_text("it", told(1.4, 10_000, 0.4), "untrained", told(1.5, 10_000, 0.5)) == (
        "it, trained, is worse than untrained: 1.40 against 1.50")


def test_a_trained_drafter_is_held_against_its_better_start():
    cards = {"a": {"measured": {"from random weights": {"a": told(1.0, 9, 0.0)},
                                "as it starts": {"a": told(1.2, 9, 0.2)},
                                "teacher-forced": {"a": told(2.0, 900, 0.5, 1.0)}}},
             "counted": {"measured": {"teacher-forced": {"counted": told(1.5, 9, 0.5)}}}}
    assert trained_texts(cards, {"a": ("a", "a"), "counted": ("counted", "counted")}) == [
        "a, trained, is better than untrained (as it starts): 2.00 against 1.20"]


def test_depths_are_told_apart_by_the_drafts_that_reach_them():
    few, many = (depth_texts(told(1, rounds, 0.5, 0.2), told(1, rounds, 0.5, 0.3), ("before", "after"), 2)
                 for rounds in (100, 10_000))
    assert few == ["depth 2: 0.20 before (50 drafts), 0.30 after (50), not told apart"]
    assert many == ["depth 2: 0.20 before (5,000 drafts), 0.30 after (5,000), told apart"]
    assert len(depth_texts(told(1, 9, 0.0, None), told(1, 9, 0.5, 0.5), ("before", "after"))) == 1   # nothing goes on


def test_the_text_for_a_goal_is_said_with_its_range():
    law, other = PowerLaw(2.0, 0.3, 0.4), PowerLaw(1.85, 0.2, 0.4)
    assert text_needed(1.9, law) == "predicted for 1.90 tokens per forward: 16 million tokens"
    assert text_needed(1.9, law, (other, law)).endswith(": 16 million tokens; leaving out one fit changes that to "
                                                        "between 16 million tokens and never")
    assert [amount(n) for n in (0.123, 1234, 2.5e6, 1e12, inf)] == [
        "0.12 million tokens", "1.2 billion tokens", "2.5 trillion tokens", "over a quadrillion tokens", "never"]


def test_the_curves_of_a_shelf_are_read_from_its_logs_by_part(tmp_path):
    exits = {"step": 0, "tokens": 2_000_000, "watched": {"exit 5": {"tokens_per_target_forward": 1.3}}}
    for name, log in (("eagle", LOG), ("early-exit", [exits]), ("unwatched", LOG[1:2])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, log)).encode()))
    found = curves_of_shelf(tmp_path, ("eagle", "early-exit", "unwatched", "absent"))
    assert found == {"eagle": [(0, 1.1), (0.001, 1.4), (0.003, 1.5)], "early-exit, exit 5": [(2.0, 1.3)]}
    assert curves_of_shelf(tmp_path, ("eagle",), "held_out")["eagle"][0] == (0, 1.2)
