"""`specdec train canvas-sudoku`: a masked diffusion network learns solved boards; stored, measured on held-out puzzles.

**Loss.** Of a solved board, n cells are masked, n uniform from 1 to 64, and the cross-entropy is averaged over the
masked cells of the board. With n uniform, the mean over n cells is the right weight: n cells are predicted by one
forward where any order predicts one of them, so summed over n this is the bound on the likelihood of the whole board in
a random order (Uria et al. 2014, arXiv 1310.1757; Hoogeboom et al. 2021, arXiv 2110.02037), the discrete-count form of
the 1/t-weighted bound (LLaDA, arXiv 2502.09992) without the variance of 1/t. It stops at 64 because 17 clues are the
fewest that any puzzle needs: it is the bound on a board given 17 random cells. The passes of the looped block are
trained alike, their losses averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from math import inf
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from specdec_lib.canvas.sudoku import BLANK, CELLS, board_images, boards, puzzles
from specdec_lib.canvas.sudoku_net import SudokuNet, SudokuShape
from specdec_lib.checkpoints.card import write_card
from specdec_lib.checkpoints.checkpoint_files import Checkpoint, save_checkpoint
from specdec_lib.checkpoints.trainable import CANVAS
from specdec_lib.files import alone_in
from specdec_lib.training import fit
from specdec_lib.training.eval.canvas_solving import CONFIDENT, ORDERS, cell_figures, solved_by_order
from specdec_lib.training.fit import Progress, Settings
from specdec_lib.training.marks import mark_folder
from specdec_lib.training.pipeline import LOOKS, YEAR
from specdec_lib.training.time_budget import TimeBudget
from specdec_lib.types import Refusal

FITTED = 0.9                                       # share of the minutes for the fit; the rest measures the stored net
MOST_MASKED = 64                                   # 81 less 17 clues
PLAN = {"cell": "float16", "head": "float16"}      # the other matrices: int8/64
TOGETHER = 20                                      # puzzles measured in one batch


@dataclass(frozen=True)
class CanvasOrder:
    """The options of `specdec train canvas-sudoku`."""

    out: Path
    minutes: float = 30.0
    optimiser: str = "muon"
    rate: float = 3e-3
    seed: int = 0
    batch: int = 16                                # boards of a step
    bases: int = 2048                              # boards whose symmetric images are trained on
    shape: SudokuShape = SudokuShape()
    puzzles: tuple[tuple[int, int], ...] = ((30, 200), (40, 100), (50, 100), (54, 100))     # blanks, count
    dtype: str = "float32"                         # of the products in training; weights stay float32
    steps: int | None = None                       # instead of the minutes of the fit

    def __post_init__(self):
        if not 0 < self.minutes <= YEAR or abs(self.seed) >= 2 ** 63:
            raise Refusal(f"--minutes is above 0 and at most a year and --seed has at most 63 bits, got {self.minutes} "
                          f"and {self.seed}")
        if self.optimiser not in ("adamw", "muon") or not 0 < self.rate < inf or not 1 <= self.batch <= 4096:
            raise Refusal(f"{CANVAS} is fitted by adamw or muon at a rate above 0 with a --batch of 1 to 4096 boards, "
                          f"got {self.optimiser}, {self.rate} and {self.batch}")
        if self.dtype not in ("float32", "bfloat16"):
            raise Refusal(f"{CANVAS} is trained in float32 or bfloat16, got {self.dtype}")


def train_canvas(order: CanvasOrder, made: Mapping, say: Callable[[str], None] = lambda line: None,
                 progress: Callable[[int, int, str], None] = lambda done, total, what: None) -> Checkpoint:
    """Trains, stores and measures the Sudoku network; `made` is its provenance. Resumes what `order.out` holds."""
    deadline = TimeBudget(order.minutes)
    folder = order.out / "work" / CANVAS
    mark_folder(folder, f"{order.bases} boards, {order.batch} a step, {order.dtype}", "other boards or another batch")
    say(f"making {order.bases} boards")
    base = np.array(list(islice(boards(order.seed, held_out=False), order.bases)))
    net = SudokuNet(order.shape, order.seed)
    settings = Settings(minutes=FITTED * order.minutes, steps=order.steps, rate=order.rate, optimiser=order.optimiser,
                        seed=order.seed, judge_every=min(180.0, 60 * order.minutes / LOOKS))
    say(f"training {CANVAS} for {settings.minutes:.1f} minutes")
    begun = deadline.used
    with alone_in(folder):
        now = fit_canvas(net, base, order, settings, folder, progress)
    deadline.count(now.seconds, begun)
    net.eval()
    about = {"target": "solved 9 x 9 Sudoku boards", "limits": limits(order), "measured": {},
             "made": {**made, "minutes": round(now.seconds / 60, 1), "steps": now.step, "tokens_seen": now.tokens,
                      "data": {"boards": order.bases, "images of them": now.step * order.batch}},
             "settings": {**asdict(settings), "minutes": round(now.seconds / 60, 1), "batch": order.batch,
                          "dtype": order.dtype, "masked cells at most": MOST_MASKED, **asdict(order.shape)}}
    say("measuring")
    state = {name: tensor.detach() for name, tensor in net.named_parameters()}
    stored = save_checkpoint(order.out, CANVAS, state, {"shape": asdict(order.shape)}, about, PLAN, None, {})
    net.load_state_dict(stored.state)
    card = {**stored.card, "measured": {"held-out puzzles": measured_puzzles(net, order, deadline, progress)}}
    write_card(order.out, CANVAS, card)
    fit.keep_log(order.out / CANVAS, folder)
    return Checkpoint(stored.name, stored.state, stored.meta, card)


def fit_canvas(net: SudokuNet, base: np.ndarray, order: CanvasOrder, settings: Settings, folder: Path,
               progress: Callable[[int, int, str], None] = lambda done, total, what: None,
               clock: Callable[[], float] = perf_counter) -> Progress:
    """Trains in place on images of the boards `base`; resumes the fit that `folder` holds, if any.

    Raises Refusal where the folder holds another fit or a damaged one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    optimiser = fit.optimiser_of(net, settings)
    now = fit.resume(folder, net, optimiser, settings)
    if fit.share_done(now, settings) >= 1:
        return now

    def take(now: Progress) -> tuple[int, dict]:
        solved, canvas = masked_boards(base, order.batch, (order.seed, now.step))
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=order.dtype == "bfloat16"):
            passes = net.passes(canvas)
        losses = torch.stack([denoising_loss(logits.float(), solved, canvas) for logits in passes])
        size = fit.descend(losses.mean(), net, optimiser, settings.clip)
        return int((canvas == BLANK).sum()), {"loss": round(float(losses[-1].detach()), 4),
                                              "gradient": round(float(size), 3)}

    with fit.open_log(folder / fit.LOG, now) as log:
        def record(now: Progress, rate: float, shown: dict) -> None:
            if now.step % 20 == 0:
                line = {"step": now.step, "seconds": round(now.seconds, 2), "tokens": now.tokens, "rate": rate} | shown
                fit.log_line(log, line)
                progress(int(1000 * fit.share_done(now, settings)), 1000, f"loss {shown['loss']:.3f}, step {now.step}")

        look = fit.Looks(lambda: held_out_figures(net), log, settings, now, clock)
        return fit.run_steps(net, optimiser, settings, folder, now, take, record, look, clock)


def masked_boards(base: np.ndarray, count: int, seed: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Solved boards [count, 81], and the same with a uniform number of random cells masked in each."""
    dice = np.random.default_rng(seed)
    solved = board_images(base, count, dice)
    masked = dice.integers(1, MOST_MASKED + 1, size=(count, 1))
    hidden = dice.random((count, CELLS)).argsort(1).argsort(1) < masked
    return torch.from_numpy(solved), torch.from_numpy(np.where(hidden, BLANK, solved))


def denoising_loss(logits: Tensor, solved: Tensor, canvas: Tensor) -> Tensor:
    """Cross-entropy of the masked cells, averaged over those of a board and then over boards."""
    hidden = canvas == BLANK
    each = F.cross_entropy(logits.mT, solved - 1, reduction="none")
    return ((each * hidden).sum(1) / hidden.sum(1)).mean()


def held_out_figures(net: SudokuNet) -> dict:
    """Of held-out puzzles with 30 blanks: nats a cell, share of cells right in one forward, share solved one by one."""
    some = puzzles(TOGETHER, 30)
    solved, clues = (torch.tensor(rows) for rows in ([one.solution for one in some], [one.clues for one in some]))
    nats, right = cell_figures(net, solved, clues)
    share = solved_by_order(net, some, (CONFIDENT,))[CONFIDENT] / len(some)
    return {"held_out": {"loss": round(nats, 4), "right": round(right, 4), "solved": share}}


def measured_puzzles(net: SudokuNet, order: CanvasOrder, deadline: TimeBudget,
                     progress: Callable[[int, int, str], None]) -> dict:
    """By number of blanks: puzzles measured, and the share solved in each order. Stops early where the time is up."""
    out = {}
    for left, (blanks, count) in zip(range(len(order.puzzles), 0, -1), order.puzzles, strict=True):
        seen, right = 0, dict.fromkeys(ORDERS, 0)
        test = puzzles(count, blanks)
        for some in deadline.cut((test[at:at + TOGETHER] for at in range(0, count, TOGETHER)), 1 / left):
            found = solved_by_order(net, some)
            seen, right = seen + len(some), {name: right[name] + found[name] for name in ORDERS}
            progress(seen, count, f"puzzles with {blanks} blanks")
        out[f"{blanks} blanks"] = {"puzzles": seen} | {name: right[name] / seen for name in ORDERS}
    return out


def limits(order: CanvasOrder) -> list[str]:
    """The limits on the card."""
    return ["It learned which digits go together, not a search: a wrong digit stays, and the cells after it follow it.",
            "All cells that it saw in training were right; beside a wrong digit its confidence is untrained.",
            f"Trained with at most {MOST_MASKED} masked cells; emptier canvases are outside of what it saw.",
            "Held out are boards whose symmetry class hashes to the other half: no image of a test board was trained "
            "on."]
