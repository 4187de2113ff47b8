"""A roofline counts what is read and multiplied; against numbers by hand on a decoder of a few weights."""

from dataclasses import replace

import pytest

from specdec_lib.cost.batches import chain_speedup, last_batch
from specdec_lib.cost.roofline import CHIPS, Chip, Roofline
from specdec_lib.models.llama.config import LlamaConfig

SHAPE = LlamaConfig(layers=2, hidden=8, heads=4, kv_heads=2, head_dim=2, mlp=16, vocab=10, context=64)
WEIGHTS = 2 * 8 * ((2 * 4 + 2 * 2) * 2 + 3 * 16) + 10 * 8       # both layers' matrices and the head
HELD = 2 * (2 * 2 * 2)                                          # keys and values of a token, both layers


def test_weights_are_read_once_and_keys_once_a_sequence_and_all_rows_multiply_them():
    line = Roofline(SHAPE, Chip("x", 100.0, 1e9), context=5, number=4)
    assert line.work(1, 1).read == WEIGHTS + 5 * HELD
    assert line.work(3, 4).read == WEIGHTS + 3 * 5 * HELD
    assert line.work(3, 4).products == 12 * (WEIGHTS + 2 * 5 * HELD)            # two query heads share a key head
    assert line.reading(3, 4) == 4 * (WEIGHTS + 15 * HELD) / 100 == line(3, 4)
    assert line.computing(3, 4) == 2 * 12 * (WEIGHTS + 10 * HELD) / 1e9


def test_the_slower_of_the_two_decides_and_gains_end_where_rows_begin_to_cost():
    line = Roofline(SHAPE, Chip("x", 1.0, 10.0), context=0, number=2)           # ten rows for a reading
    assert line(1, 1) == line(10, 1) == line(2, 5) == 2 * WEIGHTS
    assert line(20, 1) == 4 * WEIGHTS
    assert chain_speedup(0.5, 1, 5, line) == 1.5
    assert chain_speedup(0.5, 1, 10, line) == 0.75
    assert last_batch(lambda batch: chain_speedup(0.5, 1, batch, line), range(1, 20)) == 7    # 1.5 x 10 / 2 B > 1


def test_long_contexts_keep_the_gain_at_batches_where_short_ones_lose_it():
    short, long = (Roofline(SHAPE, Chip("x", 1.0, 40.0), context) for context in (0, 400))
    assert chain_speedup(0.7, 3, 40, short) < 1 < chain_speedup(0.7, 3, 40, long)


def test_a_batch_fits_while_weights_embedding_and_all_keys_and_values_do():
    room = 2 * (WEIGHTS + 80 + 3 * 5 * HELD)                        # three sequences of five tokens, two bytes a number
    assert [Roofline(SHAPE, Chip("x", 1.0, 1.0, room), context=5).holds(batch) for batch in (1, 3, 4)] == [
        True, True, False]
    assert Roofline(SHAPE, Chip("x", 1.0, 1.0), context=5).holds(10 ** 9)
    tied = replace(SHAPE, tied=True)
    assert Roofline(tied, Chip("x", 1.0, 1.0, room - 160), context=5).holds(3)


def test_rates_and_rows_are_above_zero():
    with pytest.raises(ValueError, match="above zero"):
        Chip("x", 0.0, 1.0)
    with pytest.raises(ValueError, match="memory above zero"):
        Chip("x", 1.0, 1.0, 0.0)
    with pytest.raises(ValueError, match="at least"):
        Roofline(SHAPE, CHIPS[0])(0, 1)
    assert all(chip.flops > 50 * chip.bandwidth for chip in CHIPS)              # one row is bound by memory
