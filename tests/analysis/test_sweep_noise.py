"""What settings that do the same work say of the times of a sweep's cells."""

from specdec_lib.analysis.sweep_measures import SPEED, TOKENS
from specdec_lib.analysis.sweep_noise import clock_factor, noise_sentence, same_decodes
from tests.analysis.test_sweep import factorial, row, run_of


def timed(spec, seconds, forwards, **more):
    return [row(spec, q, 10, forwards, {"theta": spec}, seconds=seconds, plain_seconds=1.0, plain_tokens=10,
                **{"method": "respec", **more}) for q in range(6)]


def test_settings_with_equal_counts_on_every_prompt_form_a_group_and_others_stand_outside():
    found = same_decodes(run_of(timed("fast", 0.5, 5) + timed("slow", 0.6, 5) + timed("other", 0.2, 4)))
    assert [one.labels for one in found] == [("fast", "slow")]
    assert found[0].speeds == (2.0, 1 / 0.6)
    assert abs(found[0].spread - 1.2) < 1e-12


def test_the_factor_of_the_clock_is_the_widest_spread_of_equal_work_and_1_without_any():
    alike = run_of(timed("fast", 0.5, 5) + timed("slow", 0.6, 5))
    assert abs(clock_factor(alike, SPEED) - 1.2) < 1e-12
    assert clock_factor(alike, TOKENS) == clock_factor(run_of(timed("fast", 0.5, 5)), SPEED) == 1


def test_one_prompt_that_differs_parts_two_settings():
    one, two = timed("a", 0.5, 5), timed("b", 0.5, 5)
    two[3]["forwards"], two[4]["forwards"] = 4, 6                  # the totals agree, the prompts do not
    assert same_decodes(run_of(one + two)) == []


def test_another_dtype_or_method_is_other_work_whatever_the_counts():
    one = timed("a", 0.5, 5)
    assert same_decodes(run_of(one + timed("a", 0.9, 5, dtype="bfloat16"))) == []
    assert same_decodes(run_of(one + timed("b", 0.9, 5, method="sam"))) == []


def test_the_widest_group_is_told_and_a_counted_sweep_has_none():
    wide, narrow = timed("a", 0.5, 5) + timed("b", 0.75, 5), timed("c", 0.5, 4) + timed("d", 0.55, 4)
    said = noise_sentence(same_decodes(run_of(narrow + wide)))
    assert said.startswith("4 settings did the same work")
    assert "a measured 2.00 and b measured 1.33 times plain decoding" in said
    assert "a factor of 1.50" in said
    assert same_decodes(factorial()) == []
    assert noise_sentence([]).startswith("No two settings did the same work")
