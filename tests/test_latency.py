"""What is kept of the time that controls take."""

import json

import pytest

from tests.latency import keep, summary

TAKEN = {"02_b": {"k": 30.04, "alpha": 10.0}, "01_a": {"k": 412.26}}


def test_the_median_and_the_worst_are_over_all_controls():
    found = summary(TAKEN)
    assert (found["median_ms"], found["worst_ms"], found["worst"]) == (30.0, 412.3, "01_a: k")
    assert (found["controls_moved"], found["notebooks"]) == (3, 2)
    assert list(found["controls"]) == ["01_a", "02_b"]
    assert found["controls"]["02_b"] == {"k": 30.0, "alpha": 10.0}


def test_a_run_that_moved_nothing_has_no_summary():
    with pytest.raises(ValueError, match="no control"):
        summary({"01_a": {}})


def test_a_run_of_one_kind_of_page_keeps_what_was_measured_of_the_other(tmp_path):
    path = tmp_path / "browser" / "controls.json"
    keep(path, "exported", TAKEN, {"commit": "a"})
    keep(path, "jupyterlab", {"01_a": {"k": 90.0}}, {"commit": "b"})
    keep(path, "exported", {"01_a": {"k": 5.0}}, {"commit": "c"})
    held = json.loads(path.read_text())
    assert {kind: (one["worst_ms"], one["provenance"]["commit"]) for kind, one in held.items()} == {
        "exported": (5.0, "c"), "jupyterlab": (90.0, "b")}
