"""Whether batches pay is said with their repeats, and without them where there are none."""

from dataclasses import replace

from specdec_lib.analysis.batch_gains import paying_sentence, size_rows, sized_pairs, sized_sentences
from specdec_lib.analysis.batches import BatchTable, predicted
from tests.analysis.test_batches import CURVE, row, table


def test_what_pays_is_said_of_the_smallest_and_the_largest_batch():
    shown = table(1.5, 1.2, 0.9)
    assert paying_sentence(shown, "float32") == (
        "Speed over plain decoding of the same batch, float32: 1.50 to 1.50 times at batch 1, 0.90 to 0.90 times at "
        "batch 4, without repeats that say how sure that is.")
    rows = tuple(one._replace(of_repeats=(one.speedup - 0.1, one.speedup + 0.2)) for one in shown.rows)
    told = paying_sentence(replace(shown, rows=rows), "float32")
    assert told.endswith("; faster in every repeat: all 1 at batch 1, none of 1 at batch 4.")
    machine = {"gpu": "Card", "processor": "Chip"}
    for device, where in (("cuda", "Card"), ("cpu", "Chip")):
        runs = [{"dtype": dtype, "machine": other, "target": "tiny", "device": device}
                for dtype, other in (("float32", machine), ("bfloat16", {"processor": "another"}))]
        assert f"same batch on {where}, float32: " in paying_sentence(replace(shown, runs=tuple(runs)), "float32")
    assert paying_sentence(shown, "bfloat16") == "No speed-up was measured in bfloat16."


def test_drafts_sized_for_their_batch_are_set_against_fixed_ones_repeat_by_repeat():
    rows = [row(1, 2.0, "sam", rows_per_sequence=6.0), row(4, 1.2, "sam", rows_per_sequence=2.0),
            row(1, 1.9, "sam(depth=4)"), row(4, 0.9, "sam(depth=4)"), row(4, 1.0, "eagle"),
            row(4, 1.0, "eagle(depth=4)")]          # that one drafts the same in each batch
    shown = BatchTable(tuple(rows), (), {"float32": CURVE})
    assert size_rows(shown, "float32")[:2] == [{"method": "sam", "batch 1": 6.0, "batch 4": 2.0},
                                               {"method": "sam(depth=4)", "batch 1": 5.0, "batch 4": 5.0}]
    assert [*sized_pairs(shown, "float32")] == [("sam", "sam(depth=4)")]
    assert sized_sentences(shown, "float32") == [
        ("sam at batch 4 is faster than sam(depth=4): 1.33 times", None)]
    for others, holds in (((0.8, 1.0), True), ((0.8, 1.3), None), ((1.3, 1.4), False)):
        last = rows[3]._replace(of_repeats=others, speedup=sum(others) / 2)
        told = BatchTable((rows[0], rows[1]._replace(of_repeats=(1.2, 1.2)), rows[2], last), (), {})
        ((said, known),) = sized_sentences(told, "float32")
        assert known is holds
        assert f"({1.2 / others[1]:.2f} to {1.2 / others[0]:.2f} in 2 repeats)" in said
    assert predicted(shown, rows[1]) is None       # its drafts are of another size than at batch 1
    assert predicted(shown, rows[3]) is not None
