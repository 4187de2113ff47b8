"""Runs side by side: what is paired, what is averaged, and what must not be, on committed runs and altered copies."""

import copy
from dataclasses import replace
from pathlib import Path

import pytest

from specdec_lib import measure
from specdec_lib.analysis.bench_report import Report, load_report
from specdec_lib.analysis.run_comparison import ComparedRun, compare_runs, csv_rows, load_runs
from specdec_lib.types import Refusal

RESULTS = Path(__file__).parents[2] / "data" / "results"


@pytest.fixture(scope="module")
def run():
    return ComparedRun("one", load_report(RESULTS / "report"))


def altered(run: ComparedRun, name: str = "two", slower: float = 1.0, slow=(), **parts) -> ComparedRun:
    """A copy: these methods `slower` times as slow, and parts of the summary updated."""
    summary = copy.deepcopy(run.report.summary)
    for part, values in parts.items():
        summary[part].update(values)
    decodes = tuple(replace(one, outcome=replace(one.outcome, seconds=one.outcome.seconds * slower))
                    if one.method in (slow or run.methods) else one for one in run.report.decodes)
    return ComparedRun(name, Report(summary, decodes))


def entry(found, run: str, method: str):
    return next(row for row in (*found.rows, *found.averaged) if (row.run, row.method) == (run, method))


def test_a_run_alone_has_the_numbers_of_its_summary(run):
    found = compare_runs((run, altered(run)))
    for method, told in run.report.entries.items():
        row = entry(found, "one", method)
        assert row.speedup == pytest.approx(told["speedup"], 1e-6)
        assert row.interval == pytest.approx(told["speedup_ci"], 1e-6)
        assert row.tokens_per_second == pytest.approx(told["tokens_per_second"], 1e-6)
        assert row.tokens_per_forward == pytest.approx(told["tokens_per_target_forward"], 1e-6)


def test_a_copy_that_takes_twice_the_time_is_half_as_fast_on_every_prompt_and_the_average_has_both_times(run):
    found = compare_runs((run, altered(run, slower=2.0, slow=("sam",))))
    assert found.sentences == ()
    assert entry(found, "two", "sam").against_first == pytest.approx(0.5)
    assert entry(found, "two", "sam").against_interval == pytest.approx([0.5, 0.5])
    assert entry(found, "two", "ar").against_first == pytest.approx(1)
    whole, first = entry(found, "all 2", "sam"), entry(found, "one", "sam")
    assert whole.speedup == pytest.approx(first.speedup * 2 / 3)              # 1 + 1 seconds over 1 + 2
    assert whole.interval == pytest.approx([bound * 2 / 3 for bound in first.interval])
    assert entry(found, "all 2", "ar").speedup == pytest.approx(1)


def test_a_peer_without_rounds_has_tokens_per_forward_in_the_average_too(run):
    decodes = tuple(replace(one, outcome=replace(one.outcome, rows=())) if one.method == "sam" else one
                    for one in run.report.decodes)
    found = compare_runs([ComparedRun(name, Report(run.report.summary, decodes)) for name in ("one", "two")])
    assert entry(found, "all 2", "sam").tokens_per_forward == entry(found, "one", "sam").tokens_per_forward > 1


def test_two_committed_runs_are_paired_on_the_prompts_that_they_share_and_not_averaged():
    one, two = load_runs([RESULTS / "report", RESULTS / "relaxed"])
    found = compare_runs((one, two))
    assert found.averaged == ()
    [said] = found.sentences
    assert "Nothing is averaged over these runs, since relaxed differs from report" in said
    assert "other prompts of the same file" in said
    assert "draft-lm" in said
    row, shared = entry(found, "relaxed", "ar"), {one.question_id for one in one.of("ar")}
    costs = [[sum((measure.Cost(*d.cost).seconds for d in run.of("ar") if d.question_id == q), 0.0)
              / sum(d.cost.tokens for d in run.of("ar") if d.question_id == q) for q in sorted(shared)]
             for run in (one, two)]
    assert len(shared & {d.question_id for d in two.of("ar")}) == len(shared) == 12
    assert min(a / b for a, b in zip(*costs, strict=True)) < row.against_first < max(
        a / b for a, b in zip(*costs, strict=True))
    assert row.against_interval[0] < row.against_first < row.against_interval[1]
    assert entry(found, "relaxed", "respec-relaxed").against_first is None


@pytest.mark.parametrize(("part", "values", "said"), [
    ("prompts", {"sha256": "0" * 64}, "other prompts"), ("target", {"name": "mine"}, "name is smollm2-135m there"),
    ("target", {"dtype": "float32"}, "dtype is bfloat16 there and float32 here"),
    ("settings", {"max_new_tokens": 64}, "max_new_tokens is 96 there and 64 here"),
    ("settings", {"temperature": 0.7}, "temperature is 0.0 there and 0.7 here"),
    ("settings", {"top_k": 5}, "top_k is none there and 5 here"),
    ("settings", {"top_p": 0.9}, "top_p is none there and 0.9 here"),
    ("settings", {"system": "Be brief."}, "system is none there and Be brief. here"),
    ("settings", {"template_switches": ["a=1"]}, "template_switches is none there and ['a=1'] here")])
def test_other_prompts_targets_and_settings_are_neither_paired_nor_averaged(run, part, values, said):
    found = compare_runs((run, altered(run, **{part: values})))
    assert all(row.against_first is None for row in found.rows)
    assert found.averaged == ()
    assert found.sentences[0].startswith("two is not set against one: ")
    assert all(said in sentence for sentence in found.sentences)
    assert len(found.sentences) == 2


@pytest.mark.parametrize(("part", "values"), [("settings", {"commit": "a" * 40}), ("machine", {"processor": "other"}),
                                              ("settings", {"checkpoints": {"draft-lm": "b" * 64}}),
                                              ("target", {"threads": 7})])
def test_another_machine_commit_or_drafter_is_paired_and_not_averaged(run, part, values):
    found = compare_runs((run, altered(run, slower=2.0, **{part: values})))
    assert entry(found, "two", "sam").against_first == pytest.approx(0.5)
    assert found.averaged == ()
    [said] = found.sentences
    assert f"{next(iter(values))} is " in said


def test_prompts_of_other_lengths_in_tokens_are_not_paired(run):
    longer = tuple(replace(one, prompt_tokens=one.prompt_tokens + 1) for one in run.report.decodes)
    found = compare_runs((run, ComparedRun("two", Report(run.report.summary, longer))))
    assert "prompts of other lengths in tokens" in found.sentences[0]


def test_simulated_values_are_never_set_against_measured_ones_nor_averaged_nor_in_their_columns(run):
    methods = copy.deepcopy(run.report.summary["methods"])
    methods["sam"]["time"] = "simulated"
    found = compare_runs((run, altered(run, methods=methods)))
    assert entry(found, "two", "sam").against_first is None
    assert "sam" not in [row.method for row in found.averaged]
    assert "ar" in [row.method for row in found.averaged]
    assert "its time is simulated in two and in turn in one" in found.sentences[0]
    rows = {(row["run"], row["method"]): row for row in csv_rows(found)}
    assert rows["two", "sam"]["measured_speedup"] is None
    assert rows["two", "sam"]["other_speedup"] == pytest.approx(run.report.entries["sam"]["speedup"], 1e-6)
    assert rows["one", "sam"]["measured_speedup"] == rows["two", "sam"]["other_speedup"]
    ends = [rows["one", "sam"][f"measured_speedup_{end}"] for end in ("low", "high")]
    assert ends == entry(found, "one", "sam").interval
    assert rows["one", "sam"]["other_speedup"] is None


def test_the_machine_of_a_row_is_the_chip_that_decoded_and_its_warnings_are_counted(run):
    for device, chip in (("cpu", "cores"), ("cuda", "card")):
        told = altered(run, machine={"gpu": "card", "processor": "cores"}, target={"device": device},
                       settings={"warnings": ["one", "two"]})
        row = next(row for row in csv_rows(compare_runs((run, told))) if row["run"] == "two")
        assert (row["machine"], row["warnings"]) == (chip, "2")


def test_times_in_turn_and_in_parallel_are_not_set_against_each_other(run):
    def parallel(one):
        rows = tuple(row._replace(wall=row.busy) for row in one.outcome.rows)
        return replace(one, outcome=replace(one.outcome, rows=rows)) if one.method == "draft-model" else one
    two = ComparedRun("two", Report(run.report.summary, tuple(map(parallel, run.report.decodes))))
    found = compare_runs((run, two))
    assert entry(found, "two", "draft-model").against_first is None
    assert "in parallel in two and in turn in one" in found.sentences[0]


def test_kept_runs_without_rounds_are_compared_by_their_decodes(run, tmp_path):
    assert not (RESULTS / "tapout" / "rounds.parquet").exists()
    found = compare_runs(load_runs([RESULTS / "policies", RESULTS / "tapout"]))
    for method, told in load_report(RESULTS / "tapout", rounds=False).entries.items():
        row = entry(found, "tapout", method)
        assert row.time == told.get("time", "in turn")
        assert row.speedup == pytest.approx(told["speedup"], 1e-4)
        assert row.tokens_per_forward == pytest.approx(told["tokens_per_target_forward"], 1e-4)
    with pytest.raises(Refusal, match=r"^the finished run in .*, its rounds\.parquet is missing"):
        load_report(RESULTS / "tapout")


def test_a_method_without_rounds_has_the_time_of_which_its_run_tells(run):
    told = altered(run, methods={"sam": {"time": "in parallel"}})
    bare = tuple(replace(one, outcome=replace(one.outcome, rows=())) for one in run.report.decodes)
    assert ComparedRun("bare", Report(told.report.summary, bare)).time("sam") == "in parallel"
    assert told.time("sam") == "in turn", "rounds know better"


def test_fewer_than_two_runs_are_refused():
    with pytest.raises(Refusal, match="at least two different runs"):
        load_runs([RESULTS / "report"])
    with pytest.raises(Refusal, match="at least two different runs"):
        load_runs([RESULTS / "report", RESULTS / "report" / ".." / "report"])
