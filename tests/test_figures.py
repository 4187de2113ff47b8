"""Figures are functions of numbers: labelled, small, honest in their titles, and readable without colour."""

import ast
import inspect
from pathlib import Path

import pytest

from specdec_lib import figures
from specdec_lib.figures import theme
from specdec_lib.figures.hierarchy import VerifiedRow
from specdec_lib.figures.tradeoff import TradeoffPoint

WORDS = ["cat", "dog", "mat"]
EVERY = {
    "board": lambda: figures.board([4] + [0] * 80, [0] * 81, [.9] + [None] * 80, {0: 1}),
    "canvas_grid": lambda: figures.canvas_grid(["5", "", "7", "1"], [None, None, .9, .4], ["given", "", "new", "kept"],
                                               2, "Two of four positions are written"),
    "solved_by_forwards": lambda: figures.solved_by_forwards({"tolerator": {8: (.4, (.3, .5)), 16: (.6, None)},
                                                              "parallel": {8: (.3, None)}}, "tolerator solves most"),
    "waterfall": lambda: figures.waterfall(["eagle2", "+ trigger"], [1.4, .9], [(1.2, 1.6), (.8, .95)]),
    "break_even_plane": lambda: figures.break_even_plane({"search": (.2, 1.3)}, 1.1, {"paper": (1.0, 7.0)}, (.01, 3),
                                                         (.9, 8)),
    "lengths_by_rule": lambda: figures.lengths_by_rule({"printed": [8, 4]}, {"printed": [2, 0]}, 8),
    "speedups": lambda: figures.speedups(["ar", "sam"], [1, 1.9], [(0.98, 1.02), (1.7, 2.1)], [1, 2.0]),
    "by_family": lambda: figures.by_family(["qa", "rag"], {"sam": [1.2, None], "tr": [1.5, 1.6]},
                                           {"sam": [(1.1, 1.3), None]}, {"sam": [1.3, 1.4]}),
    "tokens_per_forward": lambda: figures.tokens_per_forward(["ar", "sam"], [1, 1.93]),
    "conditional_acceptance": lambda: figures.conditional_acceptance({"sam": [.5, .7, None], "tr": [.6]}),
    "time_split": lambda: figures.time_split({"sam": {"target": .9, "drafter": .06, "overhead": .04}}),
    "cost_curve": lambda: figures.cost_curve([1, 8, 16], [.020, .022, .036], 7),
    "tokens_by_depth": lambda: figures.tokens_by_depth([1, 2], {.5: [1.5, 1.75], .8: [1.8, 2.44]}),
    "speed_map": lambda: figures.speed_map([.1, .9], [0, .3], [[1.1, 5], [.5, 1.6]]),
    "curves": lambda: figures.curves([1, 2], {"a": [1, 2], "b": [2, None]}, "x (s)", "y (s)", "the line b falls"),
    "rounds": lambda: figures.rounds([4, 4, 2], [4, 1, 0]),
    "sources": lambda: figures.sources(["", "sam", "tr", ""], list("abcd")),
    "signal": lambda: figures.signal([.1, 2.2, 3.0], threshold=2, stops=[1, 2]),
    "pipeline": lambda: figures.pipeline([0, 1, 0], [0, 0, 1], [0, 2, 2], [2, 6, 4], [True, True, False],
                                         ["below", "above"]),
    "match_lengths": lambda: figures.match_lengths([0, 1, 2], shortest=2),
    "distributions": lambda: figures.distributions(WORDS, {"p": [.5, .3, .2], "q": [.2, .7, .1],
                                                           "other": [.75, 0, .25]}),
    "speed_by_parameter": lambda: figures.speed_by_parameter([0.1, 0.2], [1.0, 1.2], {"the oracle": 1.5}, "h"),
    "draft_lengths": lambda: figures.draft_lengths([2, 1, 3], [1, 3, 3]),
    "early_exit_grid": lambda: figures.early_exit_grid([5, 10], [1, 2], [[1.1, .9], [None, 1.0]], "predicted"),
    "nested_rounds": lambda: figures.nested_rounds([VerifiedRow("1  middle ← small", 1, ("the", "cat"), 1, "dog"),
                                                    VerifiedRow("1  target ← middle", 1, ("the", "dog"), 2, "sat")]),
    "stack_path": lambda: figures.stack_path(["small", "middle", "target"], [.02, .2, 1.0], [.02, .1, .4], [0, 1],
                                             [2, 4]),
    "predicted_measured": lambda: figures.predicted_measured(["a", "b"], [30.0, 40.0], [31.0, 50.0], "ms per token"),
    "stopping_points": lambda: figures.stopping_points({"svip": [(2, 1), (1, 0)], "fixed 1": [(1, 1), (1, 0)]},
                                   {"entropy": [.1, .2, .3], "chance": [.9, None, .5]}, WORDS),
    "regrets": lambda: figures.regrets({"svip": .2, "fixed 1": .35}),
    "draft_lengths_by_round": lambda: figures.draft_lengths_by_round([8, 6, 3], [8, 2, 3], [4, 2, 0], [4, 3, 1]),
    "acceptance": lambda: figures.acceptance(WORDS, [1, .43, 1]),
    "training_curves": lambda: figures.training_curves({"eagle": [(0, 1.0), (1, 1.5)],
                                                        "draft-lm": [(0, None), (2, 1.2)]}),
    "depth_weights": lambda: figures.depth_weights({"decay": [1, .8, .64], "streak": [1.2, .7, .3]}),
    "gains": lambda: figures.gains(["eagle", "ngram"], {"as it starts": [1.1, None], "trained": [1.8, 1.3]}),
    "histogram": lambda: figures.histogram([.1, .2, 1.7, 3.2], 1.5),
    "trigger": lambda: figures.trigger([.1, 2.0, .3], [None, .1, 2.0], 1.5, [False, True, True], [True, True, False]),
    "precision_recall": lambda: figures.precision_recall({"always": (1, .2), "never": (0, None)}, [(.1, .9), (1, .2)]),
    "candidates": lambda: figures.candidates([4, 8, 9], [.5, .35, .65], [True, False, True], .5, WORDS),
    "ratios": lambda: figures.ratios(["eagle2", "respec"], [.92, 1.4], [(.8, 1.05), (1.2, 1.6)]),
    "round_split": lambda: figures.round_split({"sam": {"when": .1, "what": .2, "target": 6.0, "how": .3}}),
    "shares": lambda: figures.shares({"sam": {"sam": .4, "nobody": .6}, "respec": {"eagle2": 1.0}}),
    "tradeoff": lambda: figures.tradeoff({"R0": TradeoffPoint(1.5, (1.2, 1.8), 1, None),
                                          "R1": TradeoffPoint(2, None, .8, None)},
                                         "overlap", {"r": ["R0"], "s": ["R1"]}, lossless=("R0",), level=1.0),
    "lattice": lambda: figures.lattice([WORDS] * 16, [[-.1, -2.5, -6.0]] * 16, {"best": [0] * 16, "found": [1, 2]},
                                       [0, 1, None]),
    "schedule_timeline": lambda: figures.schedule_timeline(
        [("drafter", 0, 1, "draft", 0), ("target", 0, 2, "verify", 0), ("drafter", 1, 2, "rolled back", 0)]),
    "schedule_map": lambda: figures.schedule_map([.5, .9], [2, 10], [["plain", "serial"], ["serial", "pearl"]],
                                                 {"here": (.6, 3), "there": (.8, 7)}, {"paper": 5}),
    "densities": lambda: figures.densities([0, 1], {"p": [.1, .2], "q": [.2, .1], "other": [.1, .1]}, "They cross",
                                           {"drawn": [.1, .4]}),
    "image_grid": lambda: figures.image_grid({"plain": [[[0.0] * 8] * 8] * 2, "exact": [[[17.0] * 8] * 8] * 2},
                                             "Two images of each"),
    "patch_acceptance": lambda: figures.patch_acceptance({"a": [.5, None, .7], "b": [.6, .2, None]}, "It rises there"),
    "tree": lambda: figures.tree(["the", "a", "cat", "dog"], [-1, -1, 0, 0], (0, 2), "sat"),
    "parameter_contour": lambda: figures.parameter_contour(("theta", "least"), [1, 2], [.1, .2], [[1.0, 3], [None, 2]],
                                                           "tokens per forward"),
    "parallel_settings": lambda: figures.parallel_settings({"theta": [1, 2, 3, 4, None], "rule": list("abaab")},
                                                           "tokens per forward", [1.0, 2, 3, 1.5, 2]),
    "settings_front": lambda: figures.settings_front({"a": (1, 2), "b": (2, 1), "c": (.5, .5)}, ["b", "a"], "x", "y"),
    "sensitivity_bars": lambda: figures.sensitivity_bars(["theta", "least"], [1.5, 1.02], [(1.2, 1.8), None],
                                                         "tokens per forward"),
}


@pytest.fixture(params=EVERY, name="figure")
def _figure(request):
    return EVERY[request.param]()


def test_every_public_figure_is_drawn_in_these_tests():
    drawn = {name for name in figures.__all__ if inspect.isfunction(getattr(figures, name))}
    assert drawn == set(EVERY)


def test_every_figure_says_its_takeaway_and_names_an_axis(figure):
    assert len(figure.layout.title.text) > 8
    assert figure.layout.xaxis.title.text or figure.layout.yaxis.title.text


def test_every_figure_travels_as_plain_small_json(figure):
    text = figure.to_json()
    assert "bdata" not in text
    assert len(text) < 200_000


def test_two_traces_of_one_figure_never_differ_in_colour_alone(figure):
    def sign(trace):
        marker, line = getattr(trace, "marker", None), getattr(trace, "line", None)
        pattern = marker.pattern.shape if trace.type == "bar" else getattr(marker, "symbol", None)
        return trace.type, getattr(trace, "mode", None), pattern, getattr(line, "dash", None)

    named = [sign(trace) for trace in figure.data if trace.name]
    assert len(set(named)) == len(named)


def test_the_palette_keeps_its_distance_for_red_green_blind_readers():
    def seen(colour):                              # deuteranopia, linear approximation of Vienot et al. 1999
        r, g, b = (int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5))
        return .33 * r + .67 * g, .33 * r + .67 * g, -.02 * r + .02 * g + b

    roles = ["accepted", "rejected", "extra", "draft", "target"]
    apart = {(one, other): sum((a - b) ** 2 for a, b in zip(seen(theme.PALETTE[one]), seen(theme.PALETTE[other]),
                                                            strict=True)) ** .5
             for one in roles for other in roles if one < other}
    assert min(apart.values()) > 0.1, min(apart, key=apart.get)


def test_no_other_file_of_the_library_holds_a_plotly_colour():
    import specdec_lib
    root = Path(specdec_lib.__file__).parent
    for path in root.rglob("*.py"):
        if "figures" in path.parts:
            continue
        words = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
        assert not [word for word in words if word in theme.PALETTE.values()], path


def test_faster_is_said_only_where_the_interval_lies_above_one():
    unsure = figures.speedups(["a", "b"], [1.4, 1.2], [(0.9, 1.9), (0.8, 1.6)])
    assert "No method is surely faster" in unsure.layout.title.text
    sure = figures.speedups(["a", "b"], [1.4, 1.2], [(0.9, 1.9), (1.1, 1.3)])
    assert sure.layout.title.text.startswith("b decodes 1.20 times")


def test_a_speedup_without_interval_is_not_called_faster():
    figure = figures.speedups(["a"], [1.4])
    assert "(no interval)" in figure.layout.title.text


def test_nothing_measured_is_said_and_drawn():
    assert figures.speedups(["a"], [None], [None]).layout.title.text == "No speed-up was measured"
    assert figures.conditional_acceptance({}).layout.title.text == "No drafts"


def test_whiskers_end_where_the_interval_ends():
    bar = figures.speedups(["a"], [1.9], [(1.7, 2.2)]).data[0]
    assert bar.error_y.array[0] == pytest.approx(0.3)
    assert bar.error_y.arrayminus[0] == pytest.approx(0.2)


def test_where_there_is_no_interval_there_is_no_error_bar():
    figure = figures.speedups(["ar", "sam"], [1, 1.9], [None, (1.7, 2.1)])
    assert figure.layout.shapes[0].y0 == 1             # plain decoding
    assert list(figure.data[0].error_y.array) == [None, pytest.approx(0.2)]
    assert list(figure.data[0].error_y.arrayminus) == [None, pytest.approx(0.2)]


def test_bars_with_numbers_on_them_say_on_hover_what_the_number_is(figure):
    labelled = [trace for trace in figure.data if trace.type == "bar" and trace.text and trace.textposition != "none"]
    assert all("%{x}" in (trace.hovertemplate or "") for trace in labelled)
    assert figure.layout.template.layout.yaxis.hoverformat == ",.4~r"


def test_numbers_on_bars_contrast_with_their_bar():
    drawn = [EVERY[name]() for name in ("time_split", "round_split", "shares", "pipeline")]
    pairs = [(trace.textfont.color, trace.marker.color) for figure in drawn for trace in figure.data]
    assert len(pairs) > 6
    assert min(theme.contrast(*pair) for pair in pairs) >= 4.5


def test_columns_of_different_length_are_refused_by_name():
    with pytest.raises(ValueError, match="names 2, measured 1"):
        figures.speedups(["a", "b"], [1.0])


def test_a_stop_outside_the_signal_is_refused():
    with pytest.raises(ValueError, match="positions in the 2 values, got 5"):
        figures.signal([1, 2], stops=[5])


def test_a_threshold_is_named_in_the_legend_and_not_on_the_values():
    for figure, name in ((figures.signal([.1, 2.2], threshold=2), "threshold 2"),
                         (figures.match_lengths([1, 5], shortest=3), "draft from 3")):
        assert figure.layout.showlegend
        assert [(line.name, line.showlegend) for line in figure.layout.shapes] == [(name, True)]
        assert not figure.layout.annotations
    assert not figures.match_lengths([1, 5]).layout.showlegend


def test_a_child_before_its_parent_is_refused():
    with pytest.raises(ValueError, match="node 0 must come after its parent"):
        figures.tree(["a", "b"], [1, -1])


def test_a_tree_puts_a_parent_between_its_first_and_last_child():
    figure = figures.tree(["a", "b", "c", "d"], [-1, 0, 0, 0])
    heights = figure.data[-1].y
    assert heights[0] == (heights[1] + heights[3]) / 2


def test_the_figure_of_rounds_counts_what_was_wasted():
    figure = figures.rounds([4, 2], [3, 0])
    assert list(figure.data[1].y) == [1, 2]
    assert figure.layout.title.text == "3 of 6 drafted tokens were accepted in 2 rounds"
    assert figure.layout.yaxis.dtick == 1, "there is no half a node"
    assert figures.rounds([60], [3]).layout.yaxis.dtick is None


def test_the_curve_of_a_run_names_the_one_that_changed_most():
    figure = figures.training_curves({"slow": [(0, 1.0), (9, 1.1)], "fast": [(0, 1.0), (1, None), (2, 1.75)]})
    assert figure.layout.title.text == "fast: tokens per target forward from 1.00 to 1.75"


@pytest.mark.parametrize("draw", [
    lambda names: figures.training_curves({name: [(0, 1.0), (1, 1.2)] for name in names}),
    lambda names: figures.conditional_acceptance({name: [0.5, 0.4] for name in names})])
def test_a_legend_of_many_long_names_gets_room_above_the_plot(draw):
    few, many = (draw([f"a drafter with a long name, {place}" for place in range(count)]) for count in (2, 12))
    assert many.layout.margin.t > (few.layout.margin.t or theme.TEMPLATE.layout.margin.t)
    assert many.layout.height > (few.layout.height or theme.TEMPLATE.layout.height)


def test_weights_of_depths_are_shown_as_shares_of_their_rule():
    figure = figures.depth_weights({"even": [2, 2], "early": [3, 1]})
    assert [list(bar.y) for bar in figure.data] == [[.5, .5], [.75, .25]]
    assert figure.layout.title.text.startswith("early spends 75%")


def test_a_drafter_measured_once_has_no_gain():
    figure = figures.gains(["eagle", "ngram"], {"untrained": [1.0, None], "trained": [1.2, 3.0]})
    assert figure.layout.title.text.startswith("eagle goes from 1.00 to 1.20")
    both = figures.gains(["eagle", "ngram"], {"untrained": [1.0, 1.1], "trained": [1.2, 1.2]})
    assert both.layout.title.text.startswith("eagle gains most: from 1.00 to 1.20")
    assert figures.gains([], {"trained": []}).layout.title.text == "No trained drafter yet"
    assert [line.name for line in figure.layout.shapes if line.showlegend] == ["plain decoding"]
    assert {bar.textangle for bar in figure.data} == {0}
    crowd = figures.gains([str(n) for n in range(11)], {"untrained": [1.0] * 11, "trained": [1.2] * 11})
    assert {bar.textangle for bar in crowd.data} == {-90}, "side by side the numbers would overprint"
    assert figures.training_curves({}).layout.title.text == "No trained drafter yet"


def test_a_long_title_gets_room_above_the_plot_and_a_long_axis_title_a_second_line():
    short = theme.canvas("A word", "x", "y")
    long = theme.canvas("word " * 40, "x", "a measure with its unit (95 % interval of it)")
    lines = long.layout.title.text.count("<br>") + 1
    assert lines == 4
    assert short.layout.margin.t is None
    assert long.layout.margin.t == short.layout.template.layout.margin.t + 2 * theme.LINE
    assert long.layout.height == short.layout.template.layout.height + 2 * theme.LINE     # the plot keeps its size
    assert "<br>" in long.layout.yaxis.title.text
    assert short.layout.yaxis.title.text == "y"
