"""Prefix and dual cache: equal to whole forwards where nothing has changed, and what is kept is what is read."""

from dataclasses import replace

import pytest
import torch

from specdec_lib.canvas.block_cache import DUAL, PREFIX, BlockCache, computed_positions, recomputed
from specdec_lib.canvas.catalog import make_canvas_method
from specdec_lib.canvas.loop import finished
from specdec_lib.canvas.padded import PaddedModel
from specdec_lib.canvas.sudoku_net import SudokuNet, SudokuShape
from specdec_lib.canvas.text import pretrained_canvas_model, text_canvas
from specdec_lib.canvas.types import Canvas, CanvasRound, CanvasSession
from specdec_lib.canvas.world_sudoku import SudokuModel, puzzle_canvas
from specdec_lib.heads.dream_llada import load_pretrained
from specdec_lib.types import Refusal
from tests.canvas.test_text import model as causal_model
from tests.heads.test_dream_llada import KNOWN, MASK, TEXT, made

CLUES = [(7 * place + place // 9) % 9 + 1 if place % 4 else 0 for place in range(81)]


@pytest.fixture(scope="module")
def sudoku():
    net = SudokuNet(SudokuShape(width=24, layers=2, heads=2, size=8, hidden=32), seed=3)
    with torch.no_grad():
        net.head *= 30                             # forecasts that differ from canvas to canvas
    return SudokuModel(net.double().eval())


@pytest.fixture(scope="module", params=["Dream", "LLaDA"])
def text(request, tmp_path_factory):
    folder = made(request.param, tmp_path_factory.mktemp(request.param))
    return pretrained_canvas_model(load_pretrained(folder.folder, KNOWN, torch.float64))


def written(canvas: Canvas, count: int = 2) -> Canvas:
    some = canvas.open[:count]
    return canvas.fill(some, [1 + place % 9 for place in range(len(some))])


def test_a_sudoku_forward_that_keeps_is_the_whole_forward(sudoku):
    canvas = puzzle_canvas(CLUES)
    row, _ = sudoku.keep(canvas)
    assert torch.allclose(row.logp, sudoku((canvas,))[0].logp, atol=1e-6)


@pytest.mark.parametrize("kind", [PREFIX, DUAL])
def test_a_sudoku_without_a_change_has_the_whole_forwards_forecast(sudoku, kind):
    canvas = Canvas(tuple(CLUES), 0, puzzle_canvas(CLUES).area, 5)
    row, kept = sudoku.keep(canvas)
    again = sudoku.within(canvas, kept, recomputed(canvas, kind))
    assert torch.allclose(again.logp, row.logp[list(again.positions)], atol=1e-6)


def test_a_cell_reads_what_was_kept_of_others_and_what_is_new_of_the_block(sudoku):
    canvas = Canvas(tuple(CLUES), 0, puzzle_canvas(CLUES).area, 5)
    _, kept = sudoku.keep(canvas)
    now = written(canvas)
    found = sudoku.within(now, kept, canvas.open_block)
    whole = sudoku((now,))[0]
    gap = (found.logp - whole.logp[list(found.positions)])[:, 1:].abs().max()
    assert gap > 1e-3                              # an approximation: the others have changed
    everything = sudoku.within(now, kept, tuple(range(81)))
    assert torch.allclose(everything.logp, whole.logp, atol=1e-6)


def test_a_text_without_a_change_has_the_whole_forwards_forecast(text):
    canvas = text_canvas(TEXT, 6, MASK, 3)
    row, kept = text.keep(canvas)
    assert torch.allclose(row.logp, text((canvas,))[0].logp, atol=1e-9)
    for kind in (PREFIX, DUAL):
        again = text.within(canvas, kept, recomputed(canvas, kind))
        assert torch.allclose(again.logp, row.logp[[row.column[at] for at in again.positions]], atol=1e-9)


def test_a_text_of_one_layer_is_exact_within_the_block_whatever_was_written_in_it(text):
    """The keys and values of the first layer are the embeddings' alone, so those of unchanged positions stay true."""
    canvas = text_canvas(TEXT, 6, MASK, 3)
    shallow = type(text)(replace(text.weights, layers=text.weights.layers[:1]), text.mask, text.shifted, text.attention)
    _, kept = shallow.keep(canvas)
    now = written(canvas)
    for kind in (PREFIX, DUAL):
        found = shallow.within(now, kept, recomputed(now, kind))
        whole = shallow((now,))[0]
        assert torch.allclose(found.logp, whole.logp[[whole.column[at] for at in found.positions]], atol=1e-9)


@pytest.mark.parametrize("kind", [PREFIX, DUAL])
def test_blocks_of_one_position_are_those_of_the_threshold_rule(sudoku, kind):
    """Each block begins with a whole forward, so with one position a block nothing is ever reused."""
    canvas = puzzle_canvas(CLUES)
    cached, plain = (finished(canvas, sudoku, make_canvas_method(spec, sudoku)) for spec in (
        f"cached-blocks(cache={kind!r}, block=1)", "threshold(theta=0.9, block=1)"))
    assert cached.canvas == plain.canvas
    assert computed_positions(cached, kind) == 81 * cached.forwards == computed_positions(plain, None)


def test_positions_that_are_computed_by_hand():
    canvas = Canvas((9, 0, 0, 9, 0, 0), 0, (1, 2, 4, 5), 2)
    assert canvas.open_block == (1, 2)
    assert recomputed(canvas, DUAL) == (1, 2)
    assert recomputed(canvas, PREFIX) == (1, 2, 3, 4, 5)
    later = canvas.fill([1, 2, 4], [3, 3, 3])
    assert (recomputed(later, DUAL), recomputed(later, PREFIX)) == ((4, 5), (4, 5))


@pytest.mark.parametrize(("kind", "expected"), [(None, 6 * 4), (PREFIX, 6 + 5 + 6 + 2), (DUAL, 6 + 2 + 6 + 2)])
def test_positions_computed_in_a_decode(kind, expected):
    session = CanvasSession.begin(Canvas((9, 0, 0, 9, 0, 0), 0, (1, 2, 4, 5), 2))
    for position in (2, 1, 4, 5):
        session = session.after(CanvasRound((position,), (3,), (0.5,)))
    assert computed_positions(session, kind) == expected
    assert (session.forwards, session.rows, session.ties) == (4, 4, 0)


class Counting:
    """Notes what it is asked, and forecasts nothing new."""

    def __init__(self, model):
        self.model, self.asked = model, []

    def keep(self, canvas):
        self.asked.append(len(canvas))
        return self.model.keep(canvas)

    def within(self, canvas, kept, positions):
        self.asked.append(len(positions))
        return self.model.within(canvas, kept, positions)


@pytest.mark.parametrize("kind", [PREFIX, DUAL])
def test_the_count_of_positions_is_what_the_model_is_asked(sudoku, kind):
    canvas, counting = puzzle_canvas(CLUES), Counting(sudoku)
    for name in ("vocab", "mask", "end", "caches"):
        setattr(counting, name, getattr(sudoku, name))
    done = finished(canvas, counting, make_canvas_method(f"cached-blocks(cache={kind!r}, block=7)", counting))
    assert sum(counting.asked) == computed_positions(done, kind)
    assert min(counting.asked) < 81


def test_a_cache_serves_one_decode(sudoku):
    canvas = puzzle_canvas(CLUES)
    with pytest.raises(ValueError, match="too many values"):
        BlockCache(sudoku, DUAL)((canvas, canvas))


@pytest.mark.parametrize(("canvases", "asked"), [(1, 4), (3, 4), (4, 4), (5, 5)])
def test_a_padded_batch_has_at_least_its_rows_and_forecasts_for_what_was_asked(sudoku, canvases, asked):
    some, seen = [Canvas(tuple(CLUES), 0, puzzle_canvas(CLUES).area, block) for block in range(1, canvases + 1)], []
    assert len(PaddedModel(lambda rows: seen.extend(rows) or sudoku(rows), 4)(some)) == canvases
    assert (seen[:canvases], len(seen)) == (some, asked)


def test_models_without_a_cache_are_refused(sudoku):
    for model in (causal_model(), PaddedModel(sudoku, 4)):
        with pytest.raises(Refusal, match="no such cache"):
            make_canvas_method("cached-blocks", model)
    for spec, said in (("cached-blocks(cache='both')", "'prefix' or 'dual'"), ("cached-blocks(theta=0)", "theta"),
                       ("cached-blocks(block=-1)", "at least 1 position")):
        with pytest.raises(Refusal, match=said):
            make_canvas_method(spec, sudoku)
