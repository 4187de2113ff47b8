"""The map of a lattice: every candidate in its cell, paths beside the text, and what is no candidate below them all."""

import pytest

from specdec_lib import figures

WORDS = [["the", "a"], ["cat", "dog"], ["extraordinary", "sat"]]
LOGPS = [[-.1, -2.3], [-.5, -1.0], [-.2, -9.0]]


def drawn(**more):
    return figures.lattice(WORDS, LOGPS, {"best": [0, 0, 0], "searched": [0, 1, 1]}, [0, None], **more)


def test_candidates_stand_below_one_another_in_the_column_of_their_slot():
    cells = drawn().data[0]
    assert [list(row) for row in cells.z] == [[-.1, -.5, -.2], [-2.3, -1.0, -9.0]]
    assert [list(row) for row in cells.text] == [["the", "cat", "extrao…"], ["a", "dog", "sat"]]
    assert [list(row) for row in cells.customdata] == [["the", "cat", "extraordinary"], ["a", "dog", "sat"]]
    assert list(cells.y) == [1, 2]
    assert drawn().layout.yaxis.range[0] > drawn().layout.yaxis.range[1]


def test_a_path_passes_a_corner_of_the_cells_of_its_candidates_and_never_their_text():
    traces = drawn().data[1:]
    assert {trace.name: [round(height) for height in trace.y] for trace in traces} == {
        "best": [1, 1, 1], "searched": [1, 2, 2], "the target's tokens": [1, 3]}
    sides = [[x - round(x) for x in trace.x] for trace in traces]
    assert all(.3 < abs(side) < .5 for path in sides for side in path)
    assert all(.2 < abs(height - round(height)) < .3 for trace in traces for height in trace.y)
    assert list(drawn().layout.xaxis.range) == [.5, 3.5]
    assert len({round(path[0], 2) for path in sides}) == 3


def test_a_token_that_is_no_candidate_is_drawn_in_a_row_of_its_own():
    assert drawn().layout.yaxis.ticktext[-1] == "none of them"
    assert drawn().layout.yaxis.range[0] == 3.6
    inside = figures.lattice(WORDS, LOGPS, {}, [0, 1])
    assert inside.layout.yaxis.range[0] == 2.6
    assert inside.layout.height < drawn().layout.height


def test_the_title_counts_the_slots_that_hold_the_targets_token():
    assert drawn().layout.title.text == "The target's token is a candidate in 1 of 2 slots, the best in 1"
    assert figures.lattice(WORDS, LOGPS).layout.title.text == "The likeliest tokens of 3 slots"
    assert drawn(title="a finding").layout.title.text == "a finding"


def test_slots_may_have_fewer_candidates_than_others():
    cells = figures.lattice([["the"], ["cat", "dog"]], [[-.1], [-.5, -1]]).data[0]
    assert [list(row) for row in cells.text] == [["the", "cat"], [None, "dog"]]


def test_sixteen_slots_of_fifteen_candidates_are_one_legible_small_figure():
    figure = figures.lattice([["quantum"] * 15] * 16, [[-.5 * j for j in range(15)]] * 16, {"a": [0] * 16}, [3] * 16)
    assert figure.layout.height / 15 > 25
    assert figure.data[0].textfont.size >= 10
    assert len(figure.to_json()) < 30_000


def test_more_paths_than_can_be_told_apart_are_refused():
    with pytest.raises(ValueError, match="at most 2 paths beside the target's, got 3 and 3"):
        figures.lattice(WORDS, LOGPS, {"a": [0], "b": [0], "c": [0]})
    with pytest.raises(ValueError, match="words 3, logps 2"):
        figures.lattice(WORDS, LOGPS[:2])


def test_a_line_is_drawn_below_the_candidates_that_a_search_may_use():
    line = next(trace for trace in drawn(kept=[2, 1, 1]).data if trace.name == "searched among those above")
    assert list(line.x) == [.5, 1.5, 1.5, 2.5, 2.5, 3.5]
    assert list(line.y) == [2.5, 2.5, 1.5, 1.5, 1.5, 1.5]
    assert not [trace for trace in drawn().data if trace.name == "searched among those above"]
