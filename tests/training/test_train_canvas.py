"""The Sudoku network in training: its loss is the bound, a killed fit repeats its steps, what its card says."""

import json
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch

from specdec_lib import cli
from specdec_lib.canvas.sudoku import BLANK, CELLS, boards, fold, puzzles
from specdec_lib.canvas.sudoku_net import SudokuNet, SudokuShape
from specdec_lib.canvas.world_sudoku import load_sudoku, open_world
from specdec_lib.checkpoints.card import card_text
from specdec_lib.training import train_canvas as trained
from specdec_lib.training.eval.canvas_solving import AT_ONCE, CONFIDENT, RANDOM, fill_in_order, solved_by_order
from specdec_lib.training.fit import KEPT_LOG, LOG, STATE, Settings, read_log
from specdec_lib.types import Refusal
from tests.canvas.tables import is_solved

SMALL = SudokuShape(width=24, layers=1, loops=2, heads=1, size=8, hidden=32)


@pytest.fixture(scope="module")
def base():
    return np.array(list(islice(boards(0, held_out=False), 16)))


def order(out, **changes):
    return replace(trained.CanvasOrder(out, 0.05, shape=SMALL, bases=8, batch=4, steps=80, puzzles=((8, 3), (30, 2))),
                   **changes)


class Knows:
    """A network that knows these boards but for the cells it gets wrong, and is surer of later cells."""

    def __init__(self, solutions, wrong=()):
        self.solutions, self.wrong = torch.tensor(solutions), wrong

    def __call__(self, canvas):
        logits = torch.nn.functional.one_hot(self.solutions - 1, 9).float() * torch.linspace(1, 9, CELLS)[:, None]
        for cell in self.wrong:
            logits[:, cell] = logits[:, cell].roll(1, -1)
        return logits


def test_training_boards_are_of_the_other_fold_and_their_images_too(base):
    solved, canvas = trained.masked_boards(base, 50, (0, 0))
    assert all(is_solved(board) and fold(board) == 1 for board in solved.tolist())
    assert ((canvas == BLANK) | (canvas == solved)).all()


def test_the_number_of_masked_cells_is_uniform_and_the_seed_decides_the_batch(base):
    _, canvas = trained.masked_boards(base, 4000, (1, 0))
    counts = np.bincount((canvas == BLANK).sum(1).numpy(), minlength=CELLS + 1)
    assert counts[0] == 0
    assert counts[trained.MOST_MASKED + 1:].sum() == 0
    assert counts[1:trained.MOST_MASKED + 1].min() > 25               # 62.5 expected, standard deviation 7.8
    assert counts[1:trained.MOST_MASKED + 1].max() < 105
    by_cell = (canvas == BLANK).double().mean(0)
    assert (by_cell - 32.5 / 81).abs().max() < 0.04                  # no cell is masked more often than another
    again = trained.masked_boards(base, 4000, (1, 0))[1]
    assert torch.equal(canvas, again)
    assert not torch.equal(canvas, trained.masked_boards(base, 4000, (1, 1))[1])


def test_the_loss_counts_masked_cells_alone_and_every_board_alike():
    solved = torch.tensor([puzzle.solution for puzzle in puzzles(2, 10)])
    canvas = solved.clone()
    canvas[0, 3] = BLANK
    canvas[1, 10:40] = BLANK
    logits = torch.randn(2, CELLS, 9, generator=torch.Generator().manual_seed(0))
    nats = -logits.log_softmax(-1).gather(2, solved[..., None] - 1)[..., 0]
    expected = (nats[0, 3] + nats[1, 10:40].mean()) / 2
    torch.testing.assert_close(trained.denoising_loss(logits, solved, canvas), expected)


def test_summed_over_the_number_of_masks_the_mean_loss_is_the_bound_of_a_random_order():
    """On three cells with a table of conditionals, enumerated: sum over n of the mean = the mean over all orders."""
    from itertools import combinations, permutations

    dice = np.random.default_rng(0)
    nats = {(cell, frozenset(known)): dice.random() for cell in range(3) for size in range(3)
            for known in combinations([other for other in range(3) if other != cell], size)}
    by_order = np.mean([sum(nats[cell, frozenset(one[:at])] for at, cell in enumerate(one))
                        for one in permutations(range(3))])
    by_count = sum(np.mean([np.mean([nats[cell, frozenset(range(3)) - set(masked)] for cell in masked])
                            for masked in combinations(range(3), count)]) for count in (1, 2, 3))
    assert by_order == pytest.approx(by_count)


def test_a_fit_learns_resumes_and_repeats_the_same_steps(tmp_path, base, monkeypatch):
    asked, seeds = order(tmp_path), []
    made = trained.masked_boards
    monkeypatch.setattr(trained, "masked_boards", lambda *given: seeds.append(given[2]) or made(*given))
    settings = Settings(steps=80, rate=1e-2, optimiser="muon", save_every=0)
    whole = SudokuNet(SMALL)
    trained.fit_canvas(whole, base, asked, settings, tmp_path / "whole")
    assert len(set(seeds)) == len(seeds) == 80, "every step has boards of its own"
    losses = [line["held_out"]["loss"] for line in read_log(tmp_path / "whole" / LOG) if "held_out" in line]
    assert losses[0] == pytest.approx(np.log(9), abs=0.01)
    assert losses[-1] < 2.0

    class Kill(Exception):
        pass

    def killed(done, total, what):
        if "step 40" in what:
            raise Kill

    with pytest.raises(Kill):
        trained.fit_canvas(SudokuNet(SMALL), base, asked, settings, tmp_path / "cut", killed)
    assert (tmp_path / "cut" / STATE).is_file()
    resumed = SudokuNet(SMALL, seed=9)             # its weights come from the file
    trained.fit_canvas(resumed, base, asked, settings, tmp_path / "cut")
    for name, tensor in whole.state_dict().items():
        torch.testing.assert_close(resumed.state_dict()[name], tensor, rtol=0, atol=0)
    steps = [line["step"] for line in read_log(tmp_path / "cut" / LOG) if "loss" in line]
    assert steps == sorted(set(steps))


def test_the_checkpoint_is_what_was_measured_and_its_card_says_so(tmp_path):
    stored = trained.train_canvas(order(tmp_path), {"command": "specdec train canvas-sudoku", "commit": "0"})
    card = json.loads((tmp_path / "canvas-sudoku" / "card.json").read_text())
    assert (tmp_path / "canvas-sudoku" / KEPT_LOG).is_file()
    assert card["made"]["steps"] == 80
    assert card["target"] == {"name": "solved 9 x 9 Sudoku boards", "fingerprint": {}}
    assert card["measured"]["held-out puzzles"].keys() == {"8 blanks", "30 blanks"}
    model = load_sudoku(tmp_path)
    assert open_world(1, 0, (8,), tmp_path).about["sha256"] == stored.card["sha256"]
    again = solved_by_order(model.net, puzzles(3, 8))
    assert {name: share * 3 for name, share in card["measured"]["held-out puzzles"]["8 blanks"].items()
            if name != "puzzles"} == again
    assert all(torch.equal(tensor, stored.state[name]) for name, tensor in model.net.named_parameters())
    assert "solved 9 x 9 Sudoku boards" in card_text(card)


def test_one_cell_at_a_time_takes_the_most_confident_first_and_writes_blanks_alone():
    some = puzzles(2, 12)
    clues = torch.tensor([puzzle.clues for puzzle in some])
    solutions = [puzzle.solution for puzzle in some]
    assert solved_by_order(Knows(solutions), some) == {CONFIDENT: 2, RANDOM: 2, AT_ONCE: 2}
    blank = int((clues[0] == BLANK).nonzero()[0])
    clue = int((clues[0] != BLANK).nonzero()[0])
    assert solved_by_order(Knows(solutions[:1], (clue,)), some[:1])[CONFIDENT] == 1
    assert solved_by_order(Knows(solutions[:1], (blank,)), some[:1]) == {CONFIDENT: 0, RANDOM: 0, AT_ONCE: 0}

    class Watched(Knows):
        seen: list = []

        def __call__(self, canvas):
            self.seen.append(canvas.clone())
            return super().__call__(canvas)

    net = Watched(solutions[:1])
    fill_in_order(net, clues[:1], CONFIDENT)
    filled = [int((before != after).nonzero()[0, 1]) for before, after in zip(net.seen, net.seen[1:], strict=False)]
    assert filled == sorted((clues[0] == BLANK).nonzero()[:, 0].tolist(), reverse=True)[:-1]
    net.seen.clear()
    fill_in_order(net, clues[:1], RANDOM, seed=1)
    assert len(net.seen) == 12


@pytest.mark.parametrize(("words", "said"), [
    (["--minutes", "0"], "--minutes is above 0"),
    (["--data", "."], "leave out --data"),
    (["--target", "x/y", "--rows", "9"], "leave out --target, --rows"),
    (["--longest", "3"], "leave out --longest"),
    (["--device", "cuda"], "trained on the processor"),
    (["--rate", "-1"], "a rate above 0"),
    (["--optimiser", "sgd"], "adamw or muon"),
    (["--batch", "0"], "--batch of 1 to 4096"),
    (["--dtype", "float16"], "float32 or bfloat16"),
    (["--threads", "0"], "threads must be at least 1"),
])
def test_the_command_refuses_what_does_not_belong_to_it(tmp_path, capsys, words, said):
    assert cli.run(["train", "canvas-sudoku", "--out", str(tmp_path / "out"), *words]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("specdec: ")]
    assert len(lines) == 1
    assert said in lines[0]
    assert not (tmp_path / "out").exists()


def test_another_batch_does_not_continue_a_fit(tmp_path):
    trained.train_canvas(order(tmp_path, steps=2), {})
    with pytest.raises(Refusal, match="other boards or another batch"):
        trained.train_canvas(order(tmp_path, steps=2, batch=5), {})
