"""Runs of several batches as one table: measured and predicted apart, sentences follow the data, strangers refused."""

import json
import shutil
from dataclasses import replace

import pytest

from specdec_lib.analysis import batches as found
from specdec_lib.analysis import bench_report
from specdec_lib.analysis.batches import BatchRow, BatchTable, keep_table, predicted, read_batches
from specdec_lib.bench import batch_run, run
from specdec_lib.bench.plan import Plan
from specdec_lib.bench.prompts import Prompt
from specdec_lib.cost.batches import BatchCurve
from specdec_lib.toys.toy_bench import untrained_environment
from specdec_lib.types import Refusal

ASKED = [Prompt(place, "qa", "qa", (words,), None) for place, words in enumerate(("3 5 7 3 5", "9", "11 12 11 12"))]
CURVE = BatchCurve((1, 2, 4), (1, 5), 16, ((10.0, 12.0), (11.0, 18.0), (14.0, 34.0)), "tiny", "cpu", "float32", 1)


def row(batch, speedup, method="sam", **measures):
    told = {"tokens_per_second": 100.0 * batch, "tokens_per_forward_and_sequence": 3.0, "sequences_per_forward": batch,
            "rows_per_sequence": 5.0, "drafting_share": 0.0, "seconds": 8.0, "forwards": 4, **measures}
    return BatchRow("float32", batch, method, 5, 5, 5, speedup, told)


def table(*speedups, curves=None, **measures):
    rows = [one for batch, speedup in zip((1, 2, 4), speedups, strict=False)
            for one in (row(batch, 1.0, "ar"), row(batch, speedup, **measures))]
    return BatchTable(tuple(rows), (), {"float32": CURVE} if curves is None else curves)


def test_the_prediction_takes_batch_one_and_the_curve_and_leaves_the_measured_gain_out():
    shown = table(9.0, 9.0, 9.0)
    guesses = [predicted(shown, one) for one in shown.of("float32", "sam")]
    assert guesses == [3 * 10 / 12, 3 * 11 / 18, 3 * 14 / 34]
    drafting = table(9.0, 9.0, 9.0, drafting_share=0.5)                        # 8 s x 1/2 in 4 rounds: 1 s each,
    assert predicted(drafting, drafting.of("float32", "sam")[2]) == 3 * 14 / (34 + 4 * 5)    # half a plain forward
    assert predicted(table(9.0, curves={}), row(1, 9.0)) is None
    assert predicted(shown, row(2, 9.0, "eagle")) is None                      # never measured at batch 1


def test_a_stream_that_did_not_keep_the_batch_full_is_predicted_as_it_was():
    shown = table(9.0, 9.0, 9.0)
    last = shown.of("float32", "sam")[2]
    assert found.predicted_as_filled(shown, last) == pytest.approx(3 * 14 / 34)
    half = last._replace(measures={**last.measures, "sequences_per_forward": 2.0})
    assert found.predicted_as_filled(shown, half) == pytest.approx((2 * 3 / 18) / (4 / 14))
    assert found.predicted_as_filled(shown, half._replace(batch=8)) is None    # no plain decoding at that batch


def test_rows_keep_measured_and_predicted_apart():
    rows = found.gain_rows(table(2.0, 1.8), "float32")
    assert [(one["method"], one["batch"], one["measured speed-up"]) for one in rows] == [
        ("ar", 1, 1.0), ("ar", 2, 1.0), ("sam", 1, 2.0), ("sam", 2, 1.8)]
    assert [one["predicted, batch full"] for one in rows] == [None, None, 3 * 10 / 12, 3 * 11 / 18]


@pytest.mark.parametrize(("speedups", "words", "shrank"), [
    ((2.0, 1.5, 1.2), ("1.20 against 2.00", "it falls"), True),
    ((1.2, 1.5, 2.0), ("2.00 against 1.20", "it rises"), False),
    ((1.5, 1.8, 1.5), ("1.50 against 1.50", "rises and falls"), False)])
def test_the_sentence_is_the_same_claim_whatever_the_data_say_of_it(speedups, words, shrank):
    ((said, holds),) = found.gain_sentences(table(*speedups), "float32")
    assert "smaller at batch 4 than at batch 1" in said
    assert all(word in said for word in words)
    assert holds is shrank


@pytest.mark.parametrize(("first", "last", "shrank"), [((1.9, 2.1), (1.1, 1.3), True), ((1.9, 2.1), (1.5, 1.95), None),
                                                       ((1.0, 1.1), (1.4, 1.6), False)])
def test_repeats_that_overlap_carry_no_claim(first, last, shrank):
    rows = [row(batch, sum(two) / 2)._replace(of_repeats=two) for batch, two in ((1, first), (4, last))]
    shown = BatchTable(tuple(rows), (), {})
    ((said, holds),) = found.gain_sentences(shown, "float32")
    assert f"({last[0]:.2f} to {last[1]:.2f}) against" in said
    assert holds is shrank
    assert found.gain_rows(shown, "float32")[0]["lowest to highest repeat"] == f"{first[0]:.2f} to {first[1]:.2f}"


def test_a_single_batch_and_a_table_without_a_curve_say_so():
    assert found.gain_sentences(table(2.0), "float32") == [("sam was measured at one batch alone", None)]
    assert found.prediction_sentences(table(2.0, 1.5, curves={}), "float32")[0][1] is None


@pytest.mark.parametrize(("measured", "side", "holds"), [(1.8, "2 % above", True), (1.0, "83 % above", False),
                                                         (3.0, "39 % below", False)])
def test_the_largest_miss_of_the_prediction_is_named(measured, side, holds):
    ((said, near),) = found.prediction_sentences(table(9.0, measured), "float32")        # batch 1 itself is left out
    assert f"within 10 % of what was measured; at batch 2 it is {side}" in said
    assert near is holds


@pytest.mark.parametrize(("repeats", "near"), [((1.0, 2.0), None), ((1.0, 1.5), False)])
def test_a_miss_within_the_range_of_the_repeats_decides_nothing(repeats, near):
    rows = [one._replace(of_repeats=repeats) if (one.method, one.batch) == ("sam", 2) else one
            for one in table(2.5, 1.4).rows]                                    # predicted 1.83 at batch 2
    shown = BatchTable(tuple(rows), (), {"float32": CURVE})
    ((said, holds),) = found.prediction_sentences(shown, "float32")
    assert holds is near
    assert said.endswith("31 % above" + ", within the range of the repeats, 1.00 to 2.00" * (near is None))
    assert found.repeat_spans(shown, "float32", "sam") == [None, repeats]


def test_runs_of_plain_decoding_alone_have_no_gain_to_show(tmp_path):
    told = {"rows": [row(1, 1.0, "ar")._asdict()], "runs": [], "curves": {}}
    (tmp_path / "batches.json").write_text(json.dumps(told))
    with pytest.raises(Refusal, match="decode plainly alone"):
        read_batches(tmp_path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs of three prompts at batch 1 and 2, and a curve beside them."""
    world, out = untrained_environment(4), tmp_path_factory.mktemp("batches")
    plan = Plan(("ar", "sam(depth=3)"), prompts="p.jsonl", sha256="0" * 64, target="toy", max_new_tokens=8, threads=1,
                repeats=2)
    run.run_bench(plan, world, ASKED, out / "b1")
    batch_run.run_batches(replace(plan, batch=2), world, ASKED, out / "b2")
    CURVE.save(out / "cost-float32.json")
    return out


def test_a_table_of_runs_is_kept_and_read_again(folder, tmp_path):
    shown = read_batches(folder)
    assert [(one.batch, one.method, one.prompts, one.identical, one.as_single) for one in shown.rows] == [
        (1, "ar", 3, 3, 3), (1, "sam(depth=3)", 3, 3, 3), (2, "ar", 3, 3, 3), (2, "sam(depth=3)", 3, 3, 3)]
    assert shown.curves == {"float32": CURVE}
    assert [len(one.of_repeats) for one in shown.rows] == [2] * 4
    assert all(one.span[0] <= one.speedup <= one.span[1] for one in shown.rows)
    assert found.same_ids(shown, "float32") == (6, 6)
    assert shown.methods("float32") == ["sam(depth=3)"]
    assert [one["batch"] for one in found.provenance_rows(shown)] == [1, 2]
    assert keep_table(folder, tmp_path) == tmp_path / "batches.json"
    assert read_batches(tmp_path) == shown
    assert all(run["command"] and run["created"] for run in shown.runs)
    shutil.copytree(folder / "b2", tmp_path / "alone" / "b2")
    assert {row["as_single"] for row in found.table_of(tmp_path / "alone")["rows"]} == {None}


def test_a_method_that_batch_one_lacks_has_no_ids_to_be_compared_with(folder):
    one, two = ([d for d in bench_report.load_report(folder / name).decodes if d.turn == 0] for name in ("b1", "b2"))
    rows = found.rows_of({"dtype": "float32", "batch": 2}, two, [d for d in one if d.method == "ar"])
    assert found.same_ids(BatchTable(tuple(rows), (), {}), "float32") == (3, 3)


def test_runs_that_differ_in_more_than_the_batch_are_refused(folder, tmp_path):
    runs = [dict(one) for one in read_batches(folder).runs]
    with pytest.raises(Refusal, match="differ in max_new_tokens"):
        found.refuse_others([runs[0], runs[1] | {"max_new_tokens": 9}])
    with pytest.raises(Refusal, match="two runs have the dtype float32 and the batch 1"):
        found.refuse_others([runs[0], runs[0] | {"run": "again"}])
    with pytest.raises(Refusal, match="holds no runs"):
        read_batches(tmp_path)
    for text in ("[]", "{}", '{"rows": [{"x": 1}], "runs": [], "curves": {}}', "{"):
        (tmp_path / "batches.json").write_text(text)
        with pytest.raises(Refusal, match="no table of batches"):
            read_batches(tmp_path)


def test_the_shipped_table_is_of_real_runs_of_one_target_whose_provenance_is_whole():
    shown = read_batches()
    assert {1} < {one.batch for one in shown.rows}
    assert {"ar", "sam"} <= {one.method.partition("(")[0] for one in shown.rows}
    assert all(one["target"] == "smollm2-135m" and one["machine"]["processor"] and one["command"] for one in shown.runs)
    for dtype in shown.dtypes:
        if dtype == "float32":
            same, compared = found.same_ids(shown, dtype)
            assert same == compared > 0
    assert json.loads((found.SHIPPED / found.TABLE).read_text())["runs"]
