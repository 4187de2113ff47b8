"""The Sudoku world: the shipped network solves held-out puzzles, alone and in a batch alike."""

import shutil
from copy import deepcopy

import pytest
import torch

from specdec_lib.canvas.catalog import make_canvas_method
from specdec_lib.canvas.loop import finished
from specdec_lib.canvas.sudoku import BLANK, fold, puzzles, solutions
from specdec_lib.canvas.world_sudoku import (
    SudokuModel,
    cells_right,
    load_sudoku,
    open_world,
    puzzle_canvas,
    sudoku_tasks,
)
from specdec_lib.canvas.worlds import open_world as world_by_name
from specdec_lib.checkpoints.card import SHIPPED, read_card
from specdec_lib.dice import Dice
from specdec_lib.training.eval.canvas_solving import CONFIDENT, RANDOM, fill_in_order, solved_by_order
from specdec_lib.types import Refusal


@pytest.fixture(scope="module")
def model():
    torch.set_num_threads(1)
    return load_sudoku()


def test_tasks_are_held_out_puzzles_whose_blanks_take_turns():
    tasks = sudoku_tasks(7, seed=3, blanks=(20, 35))
    assert [task.family for task in tasks] == ["20 blanks", "35 blanks"] * 3 + ["20 blanks"]
    assert tasks[:4] == sudoku_tasks(4, seed=3, blanks=(20, 35))
    assert len({task.id for task in tasks}) == 7
    for task in tasks:
        assert solutions(task.canvas.tokens, 2) == [task.answer]
        assert fold(task.answer) == 0
        assert task.canvas.masked == task.canvas.area
    with pytest.raises(Refusal, match="different numbers"):
        sudoku_tasks(2, blanks=(30, 30))


def test_the_shipped_network_solves_puzzles_with_thirty_blanks(model):
    world = open_world(4, 0, blanks=(30,))
    method = make_canvas_method("stepwise", model)
    done = [finished(task.canvas, world.model, method, Dice(0)) for task in world.tasks]
    assert all(world.solved(task, session.canvas) for task, session in zip(world.tasks, done, strict=True))
    assert all(session.forwards == 30 for session in done)
    assert world.quality(world.tasks[0], done[0].canvas) == {"cells_right": 1.0}
    wrong = done[0].canvas.fill(done[0].canvas.area[:3], [done[0].canvas.tokens[at] % 9 + 1
                                                         for at in done[0].canvas.area[:3]])
    assert not world.solved(world.tasks[0], wrong)
    assert cells_right(world.tasks[0], wrong) == {"cells_right": 0.9}


def test_the_card_keeps_what_was_asked_of_the_network_and_order_matters(model):
    measured = read_card(SHIPPED, "canvas-sudoku")["measured"]["held-out puzzles"]
    assert measured["30 blanks"][CONFIDENT] >= 0.8
    assert measured["50 blanks"][RANDOM] < measured["50 blanks"][CONFIDENT] - 0.2
    assert solved_by_order(model.net, puzzles(4, 50), (CONFIDENT,))[CONFIDENT] >= 2


def test_a_canvas_has_the_same_forecast_alone_and_in_a_batch_and_twice(model):
    canvases = [puzzle_canvas(puzzle.clues) for puzzle in puzzles(5, 45)]
    batch = model(canvases)
    for canvas, row in zip(canvases, batch, strict=True):
        alone = model((canvas,))[0]
        assert alone.best == row.best

        def order(forecast, canvas=canvas):
            return sorted(canvas.masked, key=lambda place: -forecast.confidence[place])

        assert order(alone) == order(row)
        assert max(abs(a - b) for a, b in zip(alone.confidence, row.confidence, strict=True)) < 1e-6
    assert all(torch.equal(one.logp, two.logp) for one, two in zip(model(canvases), batch, strict=True))


def test_certain_cells_keep_their_order_though_single_precision_calls_them_all_one(model):
    sharp = SudokuModel(deepcopy(model.net))
    sharp.net.head.mul_(2.5)
    canvas = puzzle_canvas(puzzles(1, 30)[0].clues)
    row = sharp((canvas,))[0]
    sure = [row.confidence[place] for place in canvas.masked]
    assert len(set(torch.tensor(sure, dtype=torch.float32).tolist())) < len(set(sure)) == len(sure)


def test_stepwise_decoding_is_the_filling_that_training_measures(model):
    puzzle = puzzles(1, 45)[0]
    session = finished(puzzle_canvas(puzzle.clues), model, make_canvas_method("stepwise", model))
    filled = fill_in_order(model.net, torch.tensor([puzzle.clues]), CONFIDENT)
    assert list(session.canvas.tokens) == filled[0].tolist()


def test_the_mask_is_never_a_forecast_and_clues_stay(model):
    canvas = puzzle_canvas(puzzles(1, 50)[0].clues)
    row = model((canvas,))[0]
    assert BLANK not in row.best
    assert torch.isneginf(row.logp[:, BLANK]).all()
    assert model.mask == BLANK
    assert model.vocab == 10


def test_a_missing_or_foreign_checkpoint_is_refused(tmp_path):
    with pytest.raises(Refusal, match="specdec train canvas-sudoku"):
        load_sudoku(tmp_path)
    shutil.copytree(SHIPPED / "length-predictor", tmp_path / "canvas-sudoku")
    with pytest.raises(Refusal, match="does not hold the tensors"):
        load_sudoku(tmp_path)


def test_the_world_is_found_by_name_and_shows_boards():
    world = world_by_name("sudoku", 2, 1)
    assert [task.family for task in world.tasks] == ["30 blanks", "40 blanks"]
    assert world.text(world.tasks[0].canvas).count(".") == 30
    assert world.about["checkpoint"] == "canvas-sudoku"
