"""Whether batches pay is said with their repeats, and without them where there are none."""

from dataclasses import replace

from specdec_lib.analysis.batch_gains import paying_sentence
from tests.analysis.test_batches import table


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
