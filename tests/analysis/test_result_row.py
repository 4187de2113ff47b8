"""The last row of a notebook: a prediction agrees with a measurement if it lies within its interval."""

import json

import pytest

from specdec_lib.analysis.bench_report import Report
from specdec_lib.analysis.result_row import agreement, kept_rows, result_rows
from specdec_lib.types import Refusal


@pytest.mark.parametrize(("predicted", "interval", "said"), [
    (1.5, (1.4, 1.6), "agree"), (1.4, (1.4, 1.6), "agree"), (1.7, (1.4, 1.6), "predicted faster"),
    (1.3, (1.4, 1.6), "predicted slower"), (None, (1.4, 1.6), "not comparable: no prediction"),
    (1.5, None, "not comparable: no interval")])
def test_a_prediction_agrees_where_it_lies_within_the_interval(predicted, interval, said):
    assert agreement(predicted, interval) == said


def test_a_row_for_each_method_that_the_run_holds_and_for_no_other():
    entry = {"prompts": 6, "tokens_per_target_forward": 2.0, "expected_speedup": 1.9, "speedup": 1.7,
             "speedup_ci": (1.6, 1.8)}
    rows = result_rows(Report({"methods": {"sam": entry, "ar": entry}}, ()), ["sam", "eagle", "sam"])
    assert rows == [{"method": "sam", "prompts": 6, "tokens per forward": 2.0, "predicted speed": 1.9,
                     "measured speed": 1.7, "95 % interval": "1.60 to 1.80", "they": "predicted faster"}]


def test_a_kept_run_is_read_from_its_summary_and_a_folder_without_one_is_refused(tmp_path):
    entry = {"prompts": 6, "tokens_per_target_forward": 2.0, "expected_speedup": None, "speedup": 1.7,
             "speedup_ci": None}
    (tmp_path / "summary.json").write_text(json.dumps({"methods": {"sam": entry}}))
    assert kept_rows(tmp_path, ["sam"])[0]["they"] == "not comparable: no prediction"
    for text in ("", "[]", '{"methods": {"sam": {}}}'):
        (tmp_path / "summary.json").write_text(text)
        with pytest.raises(Refusal, match="no finished run"):
            kept_rows(tmp_path, ["sam"])
    with pytest.raises(Refusal, match="no finished run"):
        kept_rows(tmp_path / "none", ["sam"])
