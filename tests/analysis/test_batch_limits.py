"""Where a roofline ends the gain of chains, on a decoder whose numbers can be worked out."""

from specdec_lib.analysis.batch_limits import chain_gains, limit_rows, limit_text, pays_up_to
from specdec_lib.cost.roofline import Chip
from specdec_lib.models.llama.config import LlamaConfig

SHAPE = LlamaConfig(layers=2, hidden=8, heads=4, kv_heads=2, head_dim=2, mlp=16, vocab=10, context=64)
BATCHES = (1, 2, 4, 8, 16)


def eight_rows_are_free(batch, width):
    return max(8.0, batch * width)


def test_gains_and_limits_follow_from_the_rows_that_are_free():
    assert chain_gains(eight_rows_are_free, 0.5, (1, 3, 1), (1, 4, 8)) == {
        "k = 1": [1.5, 1.5, 0.75], "k = 3": [1.875, 1.875 / 2, 1.875 / 4]}
    assert [pays_up_to(eight_rows_are_free, 0.5, k, BATCHES) for k in (1, 3, 16)] == [4, 2, None]


def test_a_row_for_each_device_and_context_and_long_contexts_pay_longer():
    chips = (Chip("slow", 1.0, 16.0), Chip("fast", 1.0, 64.0))
    rows = list(limit_rows(SHAPE, chips, (0, 400), 0.7, (3,), (4, 8, 16, 32, 64)))
    assert [(row["device"], row["context"]) for row in rows] == [
        ("slow", 0), ("slow", 400), ("fast", 0), ("fast", 400)]
    assert [rows[place]["k = 3"] for place in (0, 2)] == ["8", "32"]      # 16 and 64 rows are free
    assert rows[3]["k = 3"] == "64 or more"


def test_batches_that_do_not_fit_are_not_said_to_pay():
    def cells(memory, context=400):
        (one,) = limit_rows(SHAPE, [Chip("x", 1.0, 64.0, memory)], (context,), 0.7, (3,), (4, 8, 16, 32, 64))
        return one["fits into memory"], one["k = 3"]

    held = 2 * 400 * 16                                                  # bytes of a sequence of 400 tokens
    assert cells(10_000 + 20 * held) == ("16", "16, all that fit")
    assert cells(10_000 + 70 * held) == ("64", "64 or more")
    assert cells(10_000 + 70 * held, context=0) == ("64", "32")
    assert cells(100) == ("none", "–")


def test_the_words_for_a_limit():
    assert limit_text(None, BATCHES, "x").endswith("at no batch from 1 on")
    assert limit_text(16, BATCHES, "x").endswith("at all batches that fit")
    assert limit_text(None, (), "x") == "x: no batch fits into the memory"
    assert limit_text(4, BATCHES, "x").endswith("up to batch 4")
