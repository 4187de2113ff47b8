"""On what a run was measured: as much as it says, a busy machine always, names of chips without what all share."""

import pytest

from specdec_lib.analysis.bench_report import Report
from specdec_lib.analysis.run_place import chip, measured_on, place_sentence, run_place, sure_word

XEON = {"processor": "Intel(R) Xeon(R) Processor", "gpu": None, "cores": 2}
BUSY = ["sam had no drafted token accepted on any prompt.", "The machine was busy: x."]


def run(count=24, target="tiny", machine=None, warnings=(), device="cpu"):
    return Report({"prompts": {"count": count}, "target": {"name": target, "device": device}, "machine": machine,
                   "settings": {"warnings": list(warnings)}}, ())


@pytest.mark.parametrize(("report", "said"), [
    (run(), "24 prompts"), (run(1, "toy"), "1 prompt (toy)"), (run(machine=XEON), "24 prompts (Intel Xeon)"),
    (run(machine=XEON, warnings=BUSY), "24 prompts (Intel Xeon, busy)"), (run(warnings=BUSY[:1]), "24 prompts")])
def test_prompts_chip_and_load_as_far_as_the_run_says(report, said):
    assert run_place(report) == said
    assert measured_on(report) == f"Measured on {said}"


def test_the_target_and_the_cores_are_named_where_they_matter():
    assert run_place(run(machine=XEON), target=True, cores=True) == "24 prompts (tiny, 2 cores, Intel Xeon)"
    assert run_place(run(target="toy"), target=True, cores=True) == "24 prompts (toy)"


def test_a_busy_machine_makes_no_verdict_sure_and_its_sentence_says_why():
    assert sure_word(run()) == "surely "
    assert sure_word(run(warnings=BUSY)) == ""
    assert place_sentence(run()) == "Measured on 24 prompts (tiny)."
    assert place_sentence(run(warnings=BUSY)) == (
        "Measured on 24 prompts (tiny, busy); on a busy machine intervals are too narrow.")


@pytest.mark.parametrize(("machine", "device", "said"), [
    ({"processor": "Intel(R) Core(TM) i7-8550U CPU @ 1.80GHz"}, "cpu", "Intel Core i7-8550U"),
    ({"processor": "AMD EPYC", "gpu": "NVIDIA H200"}, "cuda", "NVIDIA H200"),
    ({"processor": "AMD EPYC", "gpu": "NVIDIA H200"}, "cpu", "AMD EPYC"), ({}, "cpu", ""), (None, "cuda", "")])
def test_the_chip_is_the_one_that_computed_without_marks_and_frequency(machine, device, said):
    assert chip({"machine": machine, "target": {"device": device}}) == said
