"""Seconds of a forward by batch and width, and the gain that is left of speculation, against numbers by hand."""

import json

import pytest

from specdec_lib.cost import batches
from specdec_lib.cost.batches import (
    BatchCurve,
    batch_speedup,
    best_chain,
    chain_speedup,
    last_batch,
    load_batch_curve,
    stream_speedup,
)
from specdec_lib.scores import Scores
from specdec_lib.types import Refusal
from tests.cost.ticks import Ticks

CURVE = BatchCurve((1, 2, 4), (1, 5), 16, ((10.0, 12.0), (11.0, 18.0), (14.0, 34.0)), "tiny", "cpu", "float32", 1)


def test_the_curve_is_straight_in_both_directions_and_drawn_on_behind():
    assert [CURVE(1, w) for w in (1, 3, 5, 9)] == [10, 11, 12, 14]
    assert [CURVE(b, 5) for b in (1, 1.5, 3, 4, 8)] == [12, 15, 26, 34, 66]
    assert CURVE(3, 3) == (11 + 18 + 14 + 34) / 4
    for place in ((0, 1), (1, 0.5)):
        with pytest.raises(ValueError, match="at least"):
            CURVE(*place)


def test_a_larger_forward_than_the_last_one_takes_at_least_as_long():
    noisy = BatchCurve((1, 4, 8), (1, 3, 9), 16, ((1.0, 1.3, 1.2), (1.2, 1.4, 1.5), (1.1, 1.4, 1.3)))
    assert [noisy(batch, 1) for batch in (8, 16, 128)] == [1.1] * 3
    assert [noisy(8, width) for width in (9, 32, 100)] == [1.3] * 3
    assert noisy(1, 100) == 1.2


def test_the_gain_of_speculation_by_hand():
    assert batch_speedup(3.0, 1, 5, CURVE) == 3 * 10 / 12
    assert batch_speedup(3.0, 4, 5, CURVE) == 3 * 14 / 34
    assert batch_speedup(3.0, 4, 5, CURVE, draft=2.0) == 3 * 14 / (34 + 8)        # drafts one after another
    assert chain_speedup(0.5, 4, 2, CURVE) == pytest.approx(1.9375 * 11 / 18)
    assert chain_speedup(1.0, 4, 2, CURVE, 1.0) == 5 * 11 / (18 + 2)
    assert chain_speedup(0.9, 0, 4, CURVE) == 1


def test_a_stream_that_leaves_places_empty_gains_less():
    assert stream_speedup(3.0, 5, 4, 4, CURVE) == pytest.approx(batch_speedup(3.0, 4, 5, CURVE))
    assert stream_speedup(3.0, 5, 2, 4, CURVE, 0.5) == pytest.approx((2 * 3 / (18 + 2 * 0.5)) / (4 / 14))


def test_the_best_chain_gets_shorter_as_rows_begin_to_cost():
    def seconds(batch, width):
        return max(8.0, batch * width)

    assert best_chain(0.8, 1, seconds) == 7        # eight rows are free
    assert best_chain(0.8, 4, seconds) == 1        # two rows of each are
    assert best_chain(0.8, 8, seconds) == 0
    assert best_chain(0.8, 1, seconds, draft=4.0) < 7


def test_the_last_batch_is_that_before_the_gain_ends():
    assert last_batch(lambda batch: 8 / batch, (1, 2, 4, 8, 16)) == 4
    assert last_batch(lambda batch: 2.0, (1, 2)) == 2
    assert last_batch(lambda batch: 0.5, (1, 2)) is None


class Watched:
    """A sequence that remembers what it was given."""

    def __init__(self):
        self.prefilled, self.asked = (), []

    def prefill(self, tokens):
        self.prefilled = tokens


def test_measuring_scores_so_many_sequences_and_rows_and_takes_the_lower_quartile():
    import torch
    models, sizes = [Watched() for _ in range(3)], []

    def score(asked):
        assert [model for model, _, _ in asked] == models[:len(asked)]
        sizes.append((len(asked), 1 + len(asked[0][2])))
        for model, tokens, draft in asked:
            assert len(tokens) == 6
            assert draft.parents == tuple(range(-1, len(draft) - 1))
            model.asked.append(tokens[-1])
        return [Scores(torch.zeros(1 + len(draft), 4)) for _, _, draft in asked]

    clock = Ticks(0.0, 9.0, 0.0, 9.0, 0.0, 9.0, 0.0, 9.0, 0.0, 3.0, 0.0, 4.0, 0.0, 5.0, 0.0, 6.0)
    curve = batches.measure_batch_curve(models, score, (1, 3), (1, 2), 5, repeats=1, vocab=7, clock=clock,
                                        target="tiny", dtype="float32")
    assert sizes == [(3, 2), (3, 1), (1, 2), (1, 1), (1, 1), (1, 2), (3, 1), (3, 2)]
    assert curve.seconds == ((3.0, 4.0), (5.0, 6.0))                      # the first round is not counted
    assert (curve.batches, curve.widths, curve.context, curve.dtype) == ((1, 3), (1, 2), 5, "float32")
    assert all(len(model.prefilled) == 5 for model in models)
    assert all(one != two for one, two in zip(models[0].asked, models[0].asked[1:], strict=False))
    with pytest.raises(ValueError, match="needs as many sequences"):
        batches.measure_batch_curve(models, score, (1, 4))


def test_a_curve_is_written_and_read_and_a_damaged_one_is_refused(tmp_path):
    CURVE.save(tmp_path / "deep" / "curve.json")
    assert load_batch_curve(tmp_path / "deep" / "curve.json") == CURVE
    kept = json.loads((tmp_path / "deep" / "curve.json").read_text())
    for change in ({"seconds": [[1.0]]}, {"batches": [2, 4]}, {"widths": [1, 1]}, {"seconds": [[1, 2], [1, 2], [1, 0]]},
                   {"batches": None}, {"context": "x"}, {"context": float("inf")}, {"seconds": [[10 ** 400]]}):
        (tmp_path / "bad.json").write_text(json.dumps(kept | change))
        with pytest.raises(Refusal, match="cost curve"):
            load_batch_curve(tmp_path / "bad.json")
    with pytest.raises(Refusal, match="specdec cost --batch"):
        load_batch_curve(tmp_path / "none.json")
