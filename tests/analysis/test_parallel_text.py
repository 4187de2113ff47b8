"""Sentences on runs that draft while the target verifies: every number by hand, every direction from the numbers."""

import pytest

from specdec_lib.analysis import parallel_runs as runs
from specdec_lib.analysis import parallel_text as text
from specdec_lib.cost.contention import ContentionRun, SecondsPair
from tests.analysis.test_parallel_runs import FORWARD, REST, RIGHT, logged_rows, piped_rows, run_of
from tests.bench.made_up import turn


def test_the_sentence_on_a_method_takes_a_round_apart_in_plain_rounds():
    said = text.why(run_of(logged_rows()), "pearl")
    assert ("as long as 1.05 rounds of plain decoding: 1.00 for the target's forward, 0.00 waiting for the drafter and"
            " 0.05 for message and verdict.") in said
    some, found = logged_rows(), run_of(logged_rows())
    emitted = sum(row.emitted for row in some) / len(some)
    assert said.startswith(f"pearl emits {emitted:.2f} tokens a round.")
    assert f"That is {runs.simulated_speed(found, 'pearl'):.2f} times plain decoding (simulated)." in said
    assert f"In {sum(row.drafted == 1 for row in some) / len(some):.0%} of its rounds nothing was pending" in said
    lost = sum(row.discarded for row in some) / sum(row.ahead for row in some)
    assert said.endswith(f"and {lost:.0%} of the drafter's work is rolled back.")
    waits = text.why(run_of(logged_rows(length=40)), "pearl")         # 40 steps take four forwards
    assert "3.00 waiting for the drafter and" in waits


def test_the_parts_of_a_round_are_in_rounds_of_plain_decoding():
    parts = text.round_parts(run_of(logged_rows()), "pearl")
    assert parts == {text.FORWARD: pytest.approx(1), text.WAITING: pytest.approx(0),
                     text.VERDICTS: pytest.approx(REST / FORWARD)}


def test_the_sentence_on_a_pipeline_names_its_upper_layers_and_how_often_it_was_empty():
    mine = piped_rows(RIGHT)
    said = text.why(run_of(logged_rows(), mine, more=("ppsd",)), "ppsd")
    assert "0.60 for the layers above the exit" in said               # .06 of a plain forward of .1
    empty = sum(not row.accepted for row in mine[:-1]) / len(mine)
    assert f"In {empty:.0%} of its rounds nothing was under way, so the second stage waits for a token" in said


def test_the_cores_beside_a_drafter_are_those_of_the_machine_less_one():
    found = run_of(logged_rows(1.5))
    assert text.cores_sentence(found) == ("The target ran on cpu; the run does not say how many cores it had beside the"
                                          " drafter.")
    found.summary["settings"]["workers"] = "process"
    for cores, said in ((2, "1 of 2 cores"), (8, "7 of 8 cores"), (1, "1 of 1 cores")):
        found.summary["machine"] = {"cores": cores}
        assert said in text.cores_sentence(found)
    found.summary["target"]["device"] = "cuda"
    assert "ran on cuda" in text.cores_sentence(found)


@pytest.mark.parametrize(("first", "later", "said"), [(.05, .0, "larger"), (.0, .05, "smaller"),
                                                      (.0, .0, "neither larger nor smaller")])
def test_first_rounds_are_compared_with_later_ones(first, later, said):
    rows = [row._replace(wall=row.wall + (later if place else first)) for place, row in enumerate(logged_rows(1.0))]
    found = text.overlap_sentence(run_of(rows), "pearl")
    assert f"first rounds of the decodes is {said} than that over all later ones: {1000 * (REST + first):.1f}" in found
    assert f"against {1000 * (REST + later):.1f}." in found
    assert "measured in turn, so nothing overlaps" in text.overlap_sentence(run_of(logged_rows()), "pearl")


def test_forwards_beside_a_drafter_are_counted_in_plain_rounds_by_their_rows():
    wide = [row._replace(target=row.target * (1 + (row.drafted > 1))) for row in logged_rows(1.5)]
    found = run_of(wide, logged_rows(2.0), piped_rows(RIGHT), more=("double(guide=False)", "ppsd"))
    rows = text.forward_rows(found, ["pearl", "double(guide=False)", "ppsd"])
    assert list(rows) == ["pearl", "double(guide=False)"]             # no forward of a pipeline is the whole target's
    share = sum(row.drafted > 1 for row in wide) / len(wide)
    assert list(rows["pearl"].values()) == pytest.approx([1 + 9 * share, 1.5, 1.5 * (1 + share)])
    assert rows["double(guide=False)"]["a forward of one row"] == pytest.approx(2.0)
    said = text.slower_forwards(found, ["pearl", "double(guide=False)", "ppsd"])
    assert "a forward of one row takes 1.50 to 2.00 rounds of plain decoding" in said
    assert f"the mean forward takes 2.00 to {rows['pearl']['a mean forward']:.2f}." in said
    assert text.slower_forwards(found, ["ppsd"]).startswith("No forward of the whole target")


def test_a_method_measured_in_turn_and_in_parallel_says_what_the_overlap_gained():
    turned, beside, copies = "pearl(depth=4,workers='inline')", "pearl(depth=4)", "pearl(drafter='suffix-automaton')"
    found = run_of(logged_rows(), logged_rows(), logged_rows(1.5), logged_rows(3.0), more=(turned, beside, copies))
    took = [sum(row.seconds for row in rows) for rows in (logged_rows(), logged_rows(1.5))]
    [said] = text.both_ways(found)
    assert f"pearl(depth=4) is surely faster than {turned}: {took[0] / took[1]:.2f} times" in said
    assert "kappa = 1.50" in said
    assert f"would have {runs.simulated_speed(found, turned):.2f} times plain decoding's speed (simulated)." in said
    assert text.both_ways(run_of(logged_rows(), logged_rows(1.5), more=(copies,))) == [
        "No method was measured both in turn and in parallel."]


def test_methods_are_called_faster_in_a_simulation_by_the_interval():
    found, slow = run_of(logged_rows(1.0)), run_of(logged_rows(9.0))
    assert text.simulated_sentence(slow, ["pearl"]).endswith("none of 1.")
    assert text.simulated_sentence(found, ["pearl"]).endswith("all 1.")


def test_two_methods_are_compared_by_prompt():
    found = run_of(logged_rows(), [turn(2, 2, target=FORWARD)] * 5, [turn(2, 0, target=2 * FORWARD)] * 5,
                   more=("sam", "copy"))
    assert text.pair_sentence(found, "sam", "copy") == "sam is surely faster than copy: 6.00 times (6.00 to 6.00)."
    assert text.pair_sentence(found, "copy", "sam").startswith("copy is surely slower than sam: 0.17")
    assert text.pair_sentence(found, "copy", "ar").startswith("copy is surely slower than plain decoding: 0.50")


def test_contention_alone_is_read_with_its_date_where_it_was_measured(tmp_path):
    assert text.CONTENTION in text.contention_sentence(str(tmp_path / "none.json"))
    run = ContentionRun((SecondsPair(.01, .013), SecondsPair(.03, .039)), (SecondsPair(.1, .1),) * 2,
                        {"provenance": {"created": "2030-01-02T03", "machine": {"processor": "made up"}}})
    run.save(tmp_path / "run.json")
    said = text.contention_sentence(str(tmp_path / "run.json"))
    assert said.startswith(run.told())
    assert "kappa = 1.30" in said
    assert "(2030-01-02, made up), in whose pairs a forward alone took 10.0 to 30.0 ms." in said
    bare = ContentionRun((SecondsPair(1.0, 1.3),) * 2, (SecondsPair(.1, .1),) * 2)
    bare.save(tmp_path / "bare.json")
    assert "(no date, no processor)" in text.contention_sentence(str(tmp_path / "bare.json"))


def test_a_measured_sentence_names_the_kind_of_its_time_and_on_what_it_was_measured():
    found = run_of(logged_rows(1.0), [turn(2, 2, target=FORWARD)] * 5, more=("sam",))
    found.summary["machine"] = {"cores": 2, "processor": "AMD EPYC"}
    place = f"{found.summary['prompts']['count']} prompts (2 cores, AMD EPYC)"
    assert text.measured_sentence(found, "sam") == (
        f"Measured in turn on {place}, {text.pair_sentence(found, 'sam', 'ar')}")
    assert text.measured_sentence(found, "pearl", "sam").startswith(f"Measured in parallel on {place}, pearl is ")
    found.summary["settings"]["warnings"] = ["The machine was busy."]
    assert "surely" not in text.measured_sentence(found, "sam")


def test_a_simulation_that_is_too_fast_says_so_for_the_methods_inside_of_the_gate():
    off = {"ar": 1.01, "a": .97, "b": .9, "c": 1.02, "outside": 1.5}
    checks = {spec: runs.TimeCheck("in turn", 1.0, ratio) for spec, ratio in off.items()}
    assert text.gate_sentence(checks) == (
        "Simulated, of the drafting methods inside of the gate: 2 of 3 in less time than measured, by 3.0% to 10.0%;"
        " 1 of 3 in more time than measured, by 2.0%. Plain decoding takes 1.0% more simulated than measured.")
    assert text.gate_sentence({one: checks[one] for one in ("ar", "outside")}) == (
        "No drafting method is inside of the gate.")


def test_the_fastest_of_a_kind_is_named_with_its_interval():
    slow = [turn(2, 1, target=3 * FORWARD)] * 5
    found = run_of(logged_rows(1.0), [turn(2, 2, target=FORWARD)] * 5, slow, more=("sam", "draft-model"))
    assert text.fastest_sentence(found, "in turn", where=False) == (
        "Measured in turn, sam, the fastest of 2, is surely faster than plain decoding: 3.00 times (3.00 to 3.00).")
    count = found.summary["prompts"]["count"]
    assert f"Measured in parallel on {count} prompts, pearl is surely" in text.fastest_sentence(found, "in parallel")
    assert text.fastest_sentence(run_of(logged_rows(1.0)), "in turn") == ""
