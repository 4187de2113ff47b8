"""A canvas is filled where it may be, block by block, and a session is replayed from its rounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from specdec_lib.canvas.types import Canvas, CanvasRound, CanvasSession, tokens_as_text

CANVAS = Canvas((9, 5, 9, 9, 9, 7), 9, (0, 2, 3, 4), block=2)


def test_masked_positions_are_those_of_the_area_and_open_ones_those_of_the_first_block_with_a_mask():
    assert CANVAS.masked == (0, 2, 3, 4)
    assert CANVAS.open == (0, 2)
    assert tokens_as_text(CANVAS) == "_ 5 _ _ _ 7"
    assert CANVAS.fill((0,), (1,)).open == (2,)
    assert CANVAS.fill((0, 2), (1, 1)).open == (3, 4)
    assert CANVAS.fill(CANVAS.area, (1, 2, 3, 4)).full


def test_given_positions_are_never_filled():
    with pytest.raises(ValueError, match=r"\[1\]"):
        CANVAS.fill((0, 1), (1, 1))


@given(some.lists(some.tuples(some.sampled_from(CANVAS.area), some.integers(0, 9)), unique_by=lambda pair: pair[0]))
def test_erasing_what_was_filled_gives_the_canvas_back(pairs):
    positions = [position for position, _ in pairs]
    filled = CANVAS.fill(positions, [token for _, token in pairs])
    assert filled.erase(positions) == CANVAS
    assert all(filled.tokens[position] == token for position, token in pairs)


def test_a_session_is_replayed_from_its_rounds():
    session = CanvasSession.begin(CANVAS)
    for round in (CanvasRound((0, 2), (1, 2), (.5, .5), rows=3), CanvasRound((0,), (9,), (0.,), forwards=0, rows=0)):
        session = session.after(round)
    assert session.canvases()[-1] == session.canvas
    assert [canvas.answer for canvas in session.canvases()] == [(9, 9, 9, 9), (1, 2, 9, 9), (9, 2, 9, 9)]
    assert (session.forwards, session.rows) == (1, 3)
