"""The frame of a figure: legends stay below titles, and what has no interval has no whiskers."""

import json

import pytest

from specdec_lib import figures
from specdec_lib.figures import theme
from specdec_lib.figures.hierarchy import VerifiedRow

MARKUP = '</s><a href="https://example.org">&lt;'       # what a model may write, and Plotly would take for its own


def legend(names, title="a title"):
    figure = theme.canvas(title, "x", "y")
    for name in names:
        figure.add_scatter(x=[1], y=[1], name=name)
    return theme.with_legend(figure)


@pytest.mark.parametrize(("names", "title", "more"), [
    (["a", "b"], "a title", 0), (["a" * 20] * 4, "a title", 0), (["a" * 20] * 12, "a title", 2),
    (["a" * 20] * 12, "long words " * 10, 3), (["a", "b"], "long words " * 10, 0)])
def test_a_figure_grows_by_the_rows_of_its_legend_that_the_margin_cannot_hold(names, title, more):
    figure, plain = legend(names, title), theme.canvas("a title", "x", "y")
    assert figure.layout.margin.t == plain.layout.template.layout.margin.t + more * theme.LINE
    assert figure.layout.height == plain.layout.template.layout.height + more * theme.LINE
    assert figure.layout.showlegend


def test_values_without_any_interval_have_no_whiskers():
    assert theme.whiskers([1.0, 2.0], [None, None], "#000000") == {"visible": False}
    assert theme.whiskers([1.0, 2.0], [None, (1.5, 3.0)], "#000000")["array"] == [None, 1.0]


def test_no_two_of_twenty_four_methods_look_alike():
    looks = [theme.series(place) for place in range(24)]
    for mark in ("symbol", "pattern"):             # of points, with lines or without; of bars
        assert len({(look["colour"], look[mark]) for look in looks}) == 24
    assert [tuple(look.values()) for look in looks[:12]] == list(theme.SERIES)


def test_axes_given_to_a_slider_stay():
    figure = figures.curves([1, 2], {"a": [1, 2]}, "x", "y", "a title", x_range=(0, 9))
    assert list(figure.layout.xaxis.range) == [0, 9]
    assert list(figures.rounds([3], [1], top=8, last=20).layout.xaxis.range) == [0.4, 20.6]
    assert figures.rounds([3], [1]).layout.xaxis.range is None
    flat = figures.speed_by_parameter([0, 1], [1.0, 2.0], {"fixed": 1.5}, "h", y_range=(0.5, 3))
    assert list(flat.layout.yaxis.range) == [0.5, 3]


def test_a_name_with_hyphens_is_not_broken_in_a_title():
    name = "a-name-of-many-parts"
    for width in range(len(name), 40):
        said = theme.wrapped(f"a longer title that speaks of {name} and of more", width)
        assert "<br>" in said
        assert name in said


@pytest.mark.parametrize("drawn", [
    lambda word: figures.tree([word], [-1], [0], word), lambda word: figures.lattice([[word, "</s>"]], [[0.0, 0.0]]),
    lambda word: figures.distributions([word], {"p": [1.0]}),
    lambda word: figures.distributions([word], {"p": [1.0], "q": [0.5]}),
    lambda word: figures.acceptance([word], [1.0]), lambda word: figures.sources(["sam"], [word]),
    lambda word: figures.signal([1.0], words=[word]), lambda word: figures.match_lengths([1], words=[word]),
    lambda word: figures.trigger([1.0], [1.0], 2.0, [True], [True], [word]),
    lambda word: figures.candidates([1], [1.0], [True], words=[word]),
    lambda word: figures.draft_lengths([1], [1], [word]),
    lambda word: figures.stopping_points({"fixed": [(1, 1)]}, {}, [word]),
    lambda word: figures.nested_rounds([VerifiedRow("target", 1, (word,), 1, word)]),
    lambda word: figures.by_family([word], {"sam": [2.0]}),
    lambda word: figures.canvas_grid([word, word], [1.0, 1.0], ["given", "new"], 2, "a title")])
def test_words_of_a_model_are_drawn_letter_by_letter_and_are_never_markup(drawn):
    held = json.dumps(json.loads(drawn(MARKUP).to_json()), ensure_ascii=False)
    assert "</s>" not in held
    assert "<a " not in held
    assert theme.literal("&lt;") == "&amp;lt;"
