"""The timeline of a schedule and the map of winners: every second is drawn once, and a region carries its name."""

import math

import pytest

from specdec_lib import figures
from specdec_lib.figures import theme
from specdec_lib.figures.schedule_map import pale, roomiest
from specdec_lib.schedules.simulate import Calibration
from specdec_lib.schedules.traces import overlapped_rounds, replay

SPANS = [("drafter", 0, 1, "draft", 0), ("drafter", 1, 3, "rolled back", 0), ("drafter", 3, 4, "wait", 0),
         ("target", 0, 4, "verify", 0)]


def test_the_bars_of_a_lane_are_as_long_as_the_simulation():
    done = replay(overlapped_rounds(.7, 4, 20), Calibration(1.0, 6.0, .5))
    figure = figures.schedule_timeline(done.intervals)
    for lane in ("drafter", "target"):
        drawn = sum(x for bar in figure.data for x, y in zip(bar.x, bar.y, strict=True) if y == lane)
        assert drawn == pytest.approx(done.seconds)


def test_the_title_says_what_each_lane_waits_and_rolls_back():
    title = figures.schedule_timeline(SPANS).layout.title.text.replace("<br>", " ")
    assert title == "The drafter waits 25% and rolls back 50% of the time; the target never waits"
    half = figures.schedule_timeline([("target", 0, 1, "wait", 0), ("target", 1, 2, "verify", 0)])
    assert half.layout.title.text == "The target waits 50% of the time"
    assert figures.schedule_timeline([]).layout.title.text == "Nothing was done"


def test_rolled_back_work_is_hatched_in_the_colour_of_rejection_and_waiting_is_thin():
    bars = {bar.name: bar for bar in figures.schedule_timeline(SPANS).data}
    assert bars["rolled back"].marker.pattern.shape == "/"
    assert bars["wait"].width < bars["draft"].width
    assert bars["rolled back"].marker.color == theme.PALETTE["rejected"]
    assert bars["verify"].marker.pattern.shape == ""


def test_a_window_shows_what_happens_in_it_and_scales_with_the_unit():
    figure = figures.schedule_timeline(SPANS, scale=1000, unit="ms", window=(3500, 4000))
    assert {bar.name for bar in figure.data if len(bar.x)} == {"wait", "verify"}
    assert list(figure.layout.xaxis.range) == [3500, 4000]
    assert {bar.name: (list(bar.base), list(bar.x)) for bar in figure.data if len(bar.x)}["wait"] == ([3000], [1000])
    assert "ms" in figure.layout.xaxis.title.text
    cut = figures.schedule_timeline(SPANS, scale=1000, window=(2500, 3500))
    assert cut.layout.title.text.replace("<br>", " ").startswith("The drafter waits 50% and rolls back 50% of")


def test_the_axis_says_which_time_it_is():
    assert "simulated time" in figures.schedule_timeline(SPANS).layout.xaxis.title.text
    assert "measured in turn" in figures.schedule_timeline(SPANS, time="measured in turn").layout.xaxis.title.text


def test_a_kind_that_has_no_look_is_refused():
    with pytest.raises(ValueError, match="got sleep"):
        figures.schedule_timeline([("drafter", 0, 1, "sleep", 0)])


def test_the_map_names_each_region_inside_of_it_and_says_who_wins_most():
    winners = [["plain", "pearl", "pearl"], ["plain", "serial", "pearl"]]
    figure = figures.schedule_map([.1, .5, .9], [2, 10], winners)
    assert figure.layout.title.text == "pearl wins in 50% of this map"
    assert {note.text for note in figure.layout.annotations} == {"plain", "pearl", "serial"}
    assert [[["plain", "pearl", "serial"][z] for z in row] for row in figure.data[0].z] == winners


def test_a_region_carries_its_name_where_it_has_room_on_both_sides_and_not_in_its_narrow_part():
    narrow = [[True] * 7, *[[True] + [False] * 6 for _ in range(6)]]
    assert roomiest(narrow) == (0, 2)
    assert roomiest([[True] * 5] * 5) == (2, 2)


def test_a_name_stands_beside_a_point_of_its_region():
    winners = [["pearl"] * 7 for _ in range(7)]
    places = [figures.schedule_map([place / 8 for place in range(1, 8)], [1, 2, 4, 8, 16, 32, 64], winners, points)
              .layout.annotations[0] for points in ({}, {"here": (.5, 8.1)})]
    assert (places[0].x, places[0].y) == (.5, pytest.approx(math.log10(8)))
    assert (places[1].x, places[1].y) != (places[0].x, places[0].y)
    full = figures.schedule_map([.5], [2], [["pearl"]], {"here": (.5, 2)})             # no free cell is left
    assert full.layout.annotations[0].text == "pearl"


def test_a_level_is_a_line_with_its_name_upon_it():
    figure = figures.schedule_map([.1, .9], [1, 100], [["plain", "pearl"]] * 2, levels={"a paper": 10})
    assert [shape.y0 for shape in figure.layout.shapes] == [10]
    assert [note.y for note in figure.layout.annotations if note.text == "a paper"] == [1]      # 10 to the 1
    papers = [note.bgcolor for note in figure.layout.annotations if note.text in ("plain", "pearl")]
    assert papers == [colour for _, colour in figure.data[0].colorscale[::2]]     # a line passes behind the names
    assert figure.layout.yaxis.type == "log"


def test_letters_on_a_region_contrast_with_it():
    assert min(theme.contrast(theme.INK, pale(colour)) for colour, *_ in theme.SERIES) >= 4.5
