"""Grouped bars of distributions."""

from specdec_lib import figures


def test_a_missing_value_has_no_bar_and_no_label():
    one, other = figures.distributions(["a", "b"], {"x": [0.25, None], "y": [1.0, 0.5]}, "title").data
    assert (list(one.y), list(one.text)) == ([0.25, None], ["0.25", ""])
    assert (list(other.y), list(other.text)) == ([1.0, 0.5], ["1.00", "0.50"])


def test_what_is_emitted_has_one_colour_wherever_it_stands_and_none_of_accepted_or_rejected():
    first = figures.distributions(["a"], {"p": [1], "emitted": [1]}).data[1].marker.color
    second = figures.distributions(["a"], {"p": [1], "q": [1], "emitted": [1]}).data[2].marker.color
    roles = figures.distributions(["a"], {"accepted": [1], "rejected": [1]}).data
    assert first == second
    assert first not in {bar.marker.color for bar in roles}


def test_the_title_leaves_out_tokens_without_a_probability_on_both_sides():
    def title(p, q):
        return figures.distributions(list("ab")[:len(p)], {"p": p, "q": q}).layout.title.text

    assert title([None, 0.2], [1.0, 0.5]).startswith("p and q differ most on “b”")
    assert title([None], [1.0]) == title([], []) == "p and q have no token in common"
