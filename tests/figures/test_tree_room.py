"""The axis of a tree leaves room above the first line, for the words over its nodes."""

from specdec_lib import figures


def test_a_tree_has_almost_a_line_of_room_above_its_first_node_and_half_a_line_below_its_last():
    axis = figures.tree(["a", "b", "c"], [-1, -1, -1]).layout.yaxis
    assert axis.range == (2.5, -0.9)
    assert not axis.visible
