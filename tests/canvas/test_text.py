"""Text canvases: the same distributions as the drafters they are made of, whatever stands beside them in the batch."""

import pytest
import torch

from specdec_lib.canvas.catalog import make_canvas_method
from specdec_lib.canvas.loop import finished
from specdec_lib.canvas.text import TextCanvasModel, area_sight, pretrained_canvas_model, text_canvas
from specdec_lib.canvas.types import Canvas
from specdec_lib.heads.diffusion import FULL, diffusion_weights
from specdec_lib.heads.dream_llada import load_pretrained
from specdec_lib.types import Refusal
from tests.heads.test_diffusion import STATE, TEXT, head
from tests.heads.test_draft_lm import TARGET
from tests.heads.test_dream_llada import KNOWN, by_hand, made
from tests.heads.test_dream_llada import MASK as THEIR_MASK
from tests.heads.test_dream_llada import TEXT as THEIR_TEXT

BLOCK = 4
IDS = STATE["ids"].tolist()


def model() -> TextCanvasModel:
    weights = diffusion_weights(STATE, TARGET.weights)
    return TextCanvasModel(weights, len(weights.embedding) - 1, end=(IDS[0],))


def drafted(text, known) -> torch.Tensor:
    """The drafter's log-probabilities [4, ids] of the four tokens after a text, some of them known."""
    return head().once(text, BLOCK, known)


@pytest.mark.parametrize("known", [{}, {1: 11}, {0: 5, 2: 7}, {0: 5, 1: 9, 2: 7}])
def test_an_open_block_has_the_distributions_of_the_drafter_behind_the_same_text(known):
    there = model()
    for done in ((), (9, 3, 3, 15)):               # the first block, and the second one behind a finished one
        canvas = text_canvas(TEXT, 8, there.mask, BLOCK).fill(range(len(TEXT), len(TEXT) + len(done)), done)
        start = len(TEXT) + len(done)
        row = there((canvas.fill([start + slot for slot in known], list(known.values())),))[0]
        found = row.logp[len(done):len(done) + BLOCK]
        assert float((found - drafted((*TEXT, *done), known)).abs().max()) < 1e-9
        assert row.best[len(done)] == IDS[int(found[0].argmax())]


def test_a_token_at_the_end_of_an_open_block_is_seen_and_a_mask_there_is_not():
    there = model()
    canvas = text_canvas(TEXT, BLOCK, there.mask, BLOCK)
    last = len(canvas) - 1
    plain, one, other = there((canvas, canvas.fill([last], [5]), canvas.fill([last], [7])))
    assert float((one.logp[1] - other.logp[1]).abs().max()) > 1e-4
    assert float((plain.logp - drafted(TEXT, {})).abs().max()) < 1e-9


def test_what_a_position_sees_by_hand():
    canvas = Canvas((1, 8, 2, 9, 8, 8), 8, (0, 1, 2, 3, 4, 5), 2)      # blocks: open, finished, open
    assert area_sight(canvas).int().tolist() == [
        [1, 0, 0, 0, 0, 0],                        # position 1 is a mask at the end of its block
        [1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1]]
    assert area_sight(canvas.fill([1], [3]).erase([0])).int().tolist()[0] == [1, 1, 0, 0, 0, 0]


def test_rows_of_a_batch_do_not_change_each_other_and_prompts_may_differ():
    there = model()
    one, two = text_canvas(TEXT, 8, there.mask, BLOCK), text_canvas(TEXT[::-1], 8, there.mask, BLOCK)
    both = there((one, two, one.fill([len(TEXT)], [5])))
    for canvas, row in zip((one, two), both, strict=False):
        alone = model()((canvas,))[0]
        assert float((alone.logp - row.logp).abs().max()) < 1e-11
        assert alone.best == row.best
    assert float((both[0].logp - both[1].logp).abs().max()) > 1e-3


def test_prompts_are_read_once_and_a_few_of_them_are_kept():
    there = model()
    canvas = text_canvas(TEXT, 4, there.mask, BLOCK)
    first = there((canvas,))[0].logp
    (rows,) = there.kept.values()
    assert torch.equal(there((canvas,))[0].logp, first)
    assert there.kept[TEXT] is rows
    for token in range(6):
        there((text_canvas((*TEXT, token), 4, there.mask, BLOCK),))
    assert len(there.kept) == 4


def test_ssd_writes_the_stepwise_text_in_fewer_batched_forwards_or_as_many():
    there = model()
    canvas = text_canvas(TEXT, 12, there.mask, BLOCK)
    stepwise, ssd = (finished(canvas, there, make_canvas_method(spec, there)) for spec in ("stepwise", "ssd(rows=4)"))
    assert ssd.canvas.tokens == stepwise.canvas.tokens
    assert stepwise.canvas.full
    assert ssd.forwards <= stepwise.forwards == 12


@pytest.mark.parametrize("family", ["Dream", "LLaDA"])
def test_pretrained_models_forecast_what_a_plain_forward_gives_with_their_own_shift(tmp_path, family):
    folder = made(family, tmp_path)
    there = pretrained_canvas_model(load_pretrained(folder.folder, KNOWN, torch.float64), (3,))
    canvas = text_canvas(THEIR_TEXT, 5, there.mask, 0).fill([len(THEIR_TEXT) + 2], [6])
    start = len(THEIR_TEXT) - (family == "Dream")
    want = by_hand(folder, canvas.tokens)[start:start + 5, sorted(KNOWN)].log_softmax(-1)
    row = there((canvas,))[0]
    assert float((row.logp - want).abs().max()) < 1e-5
    assert (there.mask, there.attention, there.end) == (THEIR_MASK, FULL, (3,))
    assert set(row.best) <= KNOWN
    done = finished(canvas, there, make_canvas_method("parallel(k=2)", there))
    assert done.canvas.full
    assert done.forwards == 2


def test_an_area_that_does_not_end_the_canvas_is_refused():
    there = model()
    for canvas in (Canvas((there.mask, 1), there.mask, (0,)), Canvas((1, there.mask, 2), there.mask, (1,))):
        with pytest.raises(Refusal, match="prompt followed by the area"):
            there((canvas,))
    with pytest.raises(Refusal, match="with a shift"):
        TextCanvasModel(there.weights, there.mask, shifted=False)
