"""The direction of a sentence comes from its numbers, and from nothing else."""

import pytest

from specdec_lib import show
from specdec_lib.analysis import compare, report_text, wording


@pytest.mark.parametrize(("interval", "said"), [
    ((1.01, 1.2), "faster"), ((0.8, 0.99), "slower"), ((0.9, 1.1), "not told apart"), ((1.0, 1.2), "not told apart"),
    ((0.8, 1.0), "not told apart"), (None, "no interval: fewer than five prompts")])
def test_a_verdict_needs_the_whole_interval_on_one_side(interval, said):
    assert wording.verdict(interval) == said
    assert compare.Comparison("x", "y", 1.0, interval).verdict == said


def test_a_verdict_takes_other_words_and_another_line():
    assert wording.verdict((2.1, 3.0), "pays", "costs", "neither surely", line=2.0) == "pays"
    assert wording.verdict((1.1, 1.9), "pays", "costs", "neither surely", line=2.0) == "costs"
    assert wording.verdict((1.1, 2.9), "pays", "costs", "neither surely", line=2.0) == "neither surely"


def test_a_ratio_with_an_interval_becomes_a_sentence():
    assert wording.over("x", 1.04, (1.02, 1.07), "y") == "x is surely faster than y: 1.04 times (1.02 to 1.07)"
    assert wording.over("x", 0.94, (0.9, 0.98), "y") == "x is surely slower than y: 0.94 times (0.90 to 0.98)"
    assert wording.over("x", 1.0, (0.9, 1.1), "y") == "x is not told apart from y: 1.00 times (0.90 to 1.10)"
    assert wording.over("x", 0.94, (0.9, 0.98), "y", sure="") == "x is slower than y: 0.94 times (0.90 to 0.98)"
    assert wording.over("x", 1.5, None, "y").startswith("no interval says whether x is faster or slower than y")
    assert wording.over("x", None, None, "y") == "x and y have no ratio here"


@pytest.mark.parametrize(("interval", "said"), [
    ((0.90, 0.98), "0.90 to 0.98"), ((0.902, 0.9967), "0.902 to 0.997"), ((1.0012, 1.1), "1.001 to 1.100"),
    ((0.96, 0.9998), "0.9600 to 0.9998"), ((1.000001, 1.2), "1.00000 to 1.20000"), ((1.2, 1.3), "1.20 to 1.30"),
    ((0.9967, 1.2), "1.00 to 1.20"), ((0.9, 1.003), "0.90 to 1.00"), ((1.0, 1.0), "1.00 to 1.00")])
def test_an_interval_beside_1_does_not_look_as_if_it_held_it(interval, said):
    assert wording.ends(interval) == said


def test_a_ratio_has_the_digits_of_its_interval():
    assert wording.over("x", .957, (.913, .999), "y") == "x is surely slower than y: 0.957 times (0.913 to 0.999)"
    assert report_text.times_text(1.003, (1.001, 1.005)) == "1.003 times (1.001 to 1.005)"
    assert report_text.times_text(1.003, (.98, 1.02)) == "1.00 times (0.98 to 1.02)"
    assert report_text.times_text(1.003) == "1.00 times"


@pytest.mark.parametrize(("interval", "value", "said"), [
    ((0.9, 1.1), 1.0, "contains"), ((0.9, 1.1), 0.8, "lies above"), ((0.9, 1.1), 1.2, "lies below"),
    ((0.9, 1.1), 1.1, "contains"), (None, 1.0, "does not exist beside")])
def test_an_interval_lies_above_below_or_around_a_value(interval, value, said):
    assert wording.placed(interval, value) == said


@pytest.mark.parametrize(("one", "other", "said"), [
    (1.31, 1.22, "x is faster than y: 1.31 against 1.22"), (1.22, 1.31, "x is slower than y: 1.22 against 1.31"),
    (1.221, 1.224, "x is neither faster nor slower than y: 1.22 against 1.22")])
def test_two_numbers_are_compared_as_they_are_shown(one, other, said):
    assert wording.than("x", one, "y", other) == said


def test_a_comparison_takes_other_words_and_a_missing_number():
    assert wording.than("they", 3.0, "it", 2.0, "more often right", "less often right", 0, "are") == (
        "they are more often right than it: 3 against 2")
    assert wording.than("x", None, "y", 1.0) == "x cannot be compared with y: – against 1.00"


@pytest.mark.parametrize(("flags", "said"), [
    ((True, True), "all 2"), ((False, False), "none of 2"), ((True, False, True), "2 of 3"), ((), "none of 0")])
def test_flags_are_counted(flags, said):
    assert wording.how_many(flags) == said


@pytest.mark.parametrize(("values", "said"), [
    ((1, 2, 2, 3), "rises"), ((3, 3, 1), "falls"), ((1, 3, 2), "rises and falls"), ((2, None, 2), "stays the same"),
    ((1, None, 2), "rises")])
def test_a_trend_is_read_from_neighbours(values, said):
    assert wording.trend(values) == said


@pytest.mark.parametrize(("holds", "said"), [
    (True, "holds here"), (False, "does not hold here"), (None, "no data here say whether")])
def test_a_finding_says_whether_it_holds_and_never_raises(holds, said):
    shown = show.finding("a < b & c", holds)
    assert repr(shown) == f"{said}: a < b & c"
    assert shown._repr_html_() == f"<div><b>{said}</b>: a &lt; b &amp; c</div>"


@pytest.mark.parametrize(("part", "whole", "said"), [(1.0, 3.0, "33 %"), (-1.0, 2.0, "-50 %"), (1.0, 0.0, "–"),
                                                     (1.0, -1.0, "–")])
def test_a_share_needs_a_whole(part, whole, said):
    assert wording.percent(part, whole) == said


def test_a_missing_number_is_a_dash():
    assert [wording.number(1.234), wording.number(1.234, 1), wording.number(None)] == ["1.23", "1.2", "–"]
