"""The last rows of a notebook: where a prediction lies, how even the machine was, and which methods are lossy."""

import json

import pytest

from specdec_lib.analysis.bench_report import Report
from specdec_lib.analysis.result_row import (
    kept_rows,
    kept_sentences,
    machine,
    paired_sentences,
    place,
    quality_sentence,
    result_rows,
)
from specdec_lib.analysis.wording import over
from specdec_lib.types import Refusal
from tests.analysis.test_verification_tradeoff import COPIED, HEAD, PLAIN, RUN, SOFT, decodes, report

ENTRY = {"prompts": 6, "tokens_per_target_forward": 2.0, "expected_speedup": 1.9, "speedup": 1.7,
         "speedup_ci": (1.6, 1.8), "lossless": True}


@pytest.mark.parametrize(("predicted", "interval", "said"), [
    (1.5, (1.4, 1.6), "in the interval"), (1.4, (1.4, 1.6), "in the interval"), (1.7, (1.4, 1.6), "above it"),
    (1.3, (1.4, 1.6), "below it"), (1.398, (1.404, 1.6), "in the interval"), (None, (1.4, 1.6), "no prediction"),
    (1.5, None, "no interval")])
def test_where_a_prediction_lies_is_said_at_the_digits_that_are_shown(predicted, interval, said):
    assert place(predicted, interval) == said


@pytest.mark.parametrize(("settings", "said"), [
    ({"spread_within_decode": 0.124, "warnings": []}, "calm (12%)"), ({}, "calm"),
    ({"spread_within_decode": 0.34, "warnings": ["sam had no drafted token accepted on any prompt.",
                                                 "The machine was busy: the times spread."]}, "busy (34%)")])
def test_a_run_that_warns_of_a_busy_machine_says_so_in_every_row(settings, said):
    report = Report({"methods": {"sam": ENTRY}, "settings": settings}, ())
    assert machine(report) == said == result_rows(report, ["sam"])[0]["machine"]


def test_a_row_for_each_method_that_the_run_holds_and_for_no_other():
    lossy = {**ENTRY, "lossless": False}
    rows = result_rows(Report({"methods": {"sam": ENTRY, "ar": ENTRY, "sam@typical": lossy}}, ()),
                       ["sam", "eagle", "sam", "sam@typical"])
    assert rows[0] == {"method": "sam (match)", "prompts": 6, "tokens per forward": 2.0, "predicted speed": 1.9,
                       "measured speed": 1.7, "95 % interval": "1.60 to 1.80", "the prediction is": "above it",
                       "machine": "calm"}
    assert [row["method"] for row in rows] == ["sam (match)", "sam@typical (lossy)"]


def test_a_method_is_named_by_its_rule_only_beside_itself_under_another_one():
    found = Report({"methods": {"sam": ENTRY, "sam@match": ENTRY, "eagle": ENTRY}}, ())
    assert [row["method"] for row in result_rows(found, ["sam", "eagle"])] == ["sam", "eagle"]
    assert [row["method"] for row in result_rows(found, ["sam@match", "sam"])] == ["sam@match", "sam (match)"]


def test_every_further_method_is_set_against_the_first_by_their_own_ratio():
    warm = report(PLAIN, HEAD, decodes("eagle@match", 2.0), decodes(SOFT, 0.8), temperature=0.7)
    assert paired_sentences(warm, ["eagle", "eagle@match", "sam", SOFT]) == [
        f"At temperature 0.7, {over('eagle@match', 0.8, (0.8, 0.8), 'eagle (rejection)')}.",
        f"At temperature 0.7, {over(f'{SOFT} (lossy)', 2.0, (2.0, 2.0), 'eagle (rejection)')}."]
    assert paired_sentences(RUN, [COPIED, "eagle"])[0].startswith("At temperature 0, eagle is")
    assert paired_sentences(RUN, ["eagle"]) == paired_sentences(RUN, []) == []
    with pytest.raises(Refusal, match="no finished run"):
        kept_sentences("no-such-folder", ["eagle"])


def test_a_lossy_text_is_set_beside_plain_decoding_in_every_measure_that_it_has():
    assert quality_sentence(RUN, SOFT) == (
        f"{SOFT} (lossy) minus plain decoding: target NLL (nats per token) +0.100 (+0.100 to +0.100), less likely;"
        " overlap with ar -1.000 (-1.000 to -1.000), lower; repeated 4-grams +0.000 (+0.000 to +0.000), not told"
        " apart.")
    likelier = report(PLAIN, decodes(SOFT, 0.8, nll=0.1))
    assert "-0.050 (-0.050 to -0.050), likelier; overlap with ar +0.000" in quality_sentence(likelier, SOFT)


def test_a_kept_run_is_read_from_its_summary_and_a_folder_without_one_is_refused(tmp_path):
    entry = {**ENTRY, "expected_speedup": None, "speedup_ci": None}
    (tmp_path / "summary.json").write_text(json.dumps({"methods": {"sam": entry}}))
    assert kept_rows(tmp_path, ["sam"])[0]["the prediction is"] == "no prediction"
    for text in ("", "[]", '{"methods": {"sam": {}}}'):
        (tmp_path / "summary.json").write_text(text)
        with pytest.raises(Refusal, match="no finished run"):
            kept_rows(tmp_path, ["sam"])
    with pytest.raises(Refusal, match="no finished run"):
        kept_rows(tmp_path / "none", ["sam"])
