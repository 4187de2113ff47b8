"""Sentences on measured speed: an interval around 1 gives no verdict, and a missing run is refused."""

import json
import re
from pathlib import Path

import pytest

from specdec_lib.analysis import measured_speed
from specdec_lib.analysis.measured_speed import measured_pair, measured_sentence, measured_where, speed_sentences
from specdec_lib.types import Refusal
from tests.bench.made_up import decodes, report, turn

ROOT = Path(__file__).parents[2]


def kept(folder, warnings=(), **methods):
    entries = {name: {"speedup": speed, "speedup_ci": interval} for name, (speed, interval) in methods.items()}
    (folder / "summary.json").write_text(json.dumps({"methods": entries, "settings": {"warnings": warnings}}))
    return folder


def test_nothing_is_sure_where_the_machine_was_busy(tmp_path):
    for warnings, said in (([], "fast is surely faster"), (["The machine was busy: ..."], "fast is faster")):
        [line] = speed_sentences(kept(tmp_path, warnings, fast=(1.6, [1.3, 2.2])), ["fast"])
        assert said in line


def test_a_method_is_told_from_plain_decoding_only_where_its_whole_interval_is_on_one_side(tmp_path):
    run = kept(tmp_path, fast=(1.6, [1.3, 2.2]), even=(1.2, [0.97, 1.51]), slow=(0.8, [0.7, 0.9]))
    fast, even, slow = speed_sentences(run, ["fast", "even", "slow", "absent", "fast"])
    assert "faster than plain decoding: 1.60 times (1.30 to 2.20)." in fast
    assert "even is not told apart from plain decoding: 1.20 times (0.97 to 1.51)." in even
    assert "slower than plain decoding: 0.80 times (0.70 to 0.90)." in slow


def test_a_folder_without_a_finished_run_is_refused(tmp_path):
    with pytest.raises(Refusal, match="holds no finished run"):
        speed_sentences(tmp_path, ["fast"])
    (tmp_path / "summary.json").write_text('{"methods": {"ar": {}}}')
    for asked in (lambda: measured_where(tmp_path), lambda: measured_sentence(tmp_path, "ar")):
        with pytest.raises(Refusal, match="holds no finished run"):
            asked()


def test_a_sentence_says_on_how_many_prompts_and_on_which_machine_it_was_measured(tmp_path):
    entries = {"ar": {}, "fast": {"speedup": 1.6, "speedup_ci": [1.3, 2.2]}}
    machine = {"gpu": None, "processor": "Intel(R) Xeon(R) Processor"}
    (tmp_path / "summary.json").write_text(json.dumps({
        "methods": entries, "machine": machine, "prompts": {"count": 9}, "target": {"name": "tiny"}}))
    assert measured_where(tmp_path) == "Measured on 9 prompts (Intel Xeon)"
    assert measured_sentence(tmp_path, "fast", "copying") == (
        "Measured on 9 prompts (Intel Xeon), copying is surely faster than plain decoding: "
        "1.60 times (1.30 to 2.20).")
    assert measured_sentence(tmp_path, "absent") == ""


def test_two_methods_of_a_run_are_compared_by_their_own_ratio():
    run = ROOT / "data" / "results" / "lengthened"
    said = measured_pair(run, "respec", "respec+lengthened", "the new one", "the old one")
    [ratio] = re.findall(r"[\d.]+ times \([\d.]+ to [\d.]+\)", said)
    assert said == f"Measured on 36 prompts (Intel Xeon), the new one is not told apart from the old one: {ratio}."
    assert measured_pair(run, "respec", "absent", "the new one", "the old one") == ""


def test_a_run_of_two_methods_alone_compares_them(monkeypatch):
    found = report(decodes("ar", turn(0, 0), turn(0, 0)), decodes("sam", turn(1, 1)))
    monkeypatch.setattr(measured_speed, "summary_of", lambda folder: found)
    monkeypatch.setattr(measured_speed, "read_turns", lambda folder: found.decodes)
    assert measured_pair("here", "ar", "sam", "one", "two").endswith(
        "one is surely faster than two: 2.00 times (2.00 to 2.00).")
