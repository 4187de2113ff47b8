"""The ablation of ReSpec on runs made up by hand: which step is which, what is compared, and what is reported."""

from dataclasses import replace
from pathlib import Path

import pytest

from specdec_lib.analysis import compare, paper_settings, respec_ablation
from specdec_lib.bench.plan import Plan
from specdec_lib.bench.results import Decode, Outcome
from specdec_lib.bench.run_folder import RunFolder
from specdec_lib.measure import Row
from specdec_lib.specs import split_specs
from specdec_lib.types import Refusal
from tests.bench.made_up import report


def row(source, accepted, target, what=0.0):
    drafted = 4 * bool(source)
    return Row(source, drafted, accepted, accepted, 1 + accepted, drafted, drafted + 1, 0.0, what, target, 0.0, 0.1,
               (7,) * (1 + accepted), (source,) * accepted + ("",), (2.0,) * (1 + accepted))


def decodes(method, *rounds, family="qa", start=0):
    def one(question):
        tokens = tuple(token for r in rounds for token in r.tokens)
        return Decode(question, family, method, 0, 0, False, 10, Outcome(
            tokens, 1.0, sum(r.seconds for r in rounds), len(tokens), len(rounds), rounds), "a", ("a",) * len(tokens))
    return [one(question) for question in range(start, start + 5)]


PLAIN = decodes("ar", *[row("", 0, 1.0)] * 4)
HEAD = decodes("eagle2", *[row("eagle2", 1, 1.0, 1.0)] * 2)                        # 4 tokens in 4 s
BOTH = decodes("sam+eagle2", row("suffix-automaton", 2, 1.0), row("eagle2", 0, 0.5, 0.5))  # 4 tokens in 2 s
ALL = decodes("respec", row("feedback-retrieval", 3, 1.0))                         # 4 tokens in 1 s
BESIDE = ("sam+eagle2@relaxed", "sam+eagle2+trigger(theta=1.5,match=1)")           # of METHODS, no steps
SLOW = decodes("respec-relaxed", row("feedback-retrieval", 3, 8.0))


def test_every_spec_of_the_ablation_is_one_of_its_steps_in_order():
    specs = [spec for spec in split_specs(respec_ablation.METHODS) if spec not in BESIDE]
    assert [respec_ablation.ablation_step(spec) for spec in specs] == list(respec_ablation.ORDER)
    found = respec_ablation.ablation_steps(reversed(specs))
    assert list(found.items()) == list(zip(respec_ablation.ORDER, specs, strict=True))


def test_the_papers_setting_is_no_step_of_the_ablation():
    spec = paper_settings.paper_spec("respec")
    assert respec_ablation.ablation_step(spec) == "respec(paper)"
    assert respec_ablation.ablation_steps([spec]) == {}


def test_a_spec_with_another_policy_is_no_step_and_one_with_parameters_is():
    assert respec_ablation.ablation_step("respec@fixed") == "respec@fixed"
    for other in ("sam (warm)", "eagle(depth=3)@svip(h=0.3)"):
        assert respec_ablation.ablation_step(other) == other
    assert respec_ablation.ablation_step("respec(theta=1.0)") == respec_ablation.CANDIDATES
    for spec in ("respec", "respec(depth=3)"):
        assert respec_ablation.ablation_step(spec) == respec_ablation.COUNTS
    assert respec_ablation.ablation_step("respec(counts=0.0)") == respec_ablation.THRESHOLD
    assert respec_ablation.ablation_step("sam+eagle2+trigger(theta=3)") == respec_ablation.TRIGGER
    assert respec_ablation.ablation_steps(["sam+eagle2+trigger(theta=1.5,match=1)"]) == {}
    found = respec_ablation.ablation_steps(["respec", "respec(theta=1.0)", "respec(theta=2.0)", "sam+token-recycling"])
    assert found == {respec_ablation.CANDIDATES: "respec(theta=1.0)", respec_ablation.COUNTS: "respec"}
    found = respec_ablation.ablation_steps(["respec-relaxed(margin=0.9)", "respec-relaxed"])
    assert found == {respec_ablation.RELAXATION: "respec-relaxed"}, "the ablation's own method before others"


def test_each_step_is_compared_with_the_one_before_and_missing_ones_are_skipped():
    at = report(PLAIN, ALL, HEAD, BOTH)
    assert [(one.base, one.other, one.ratio) for one in respec_ablation.step_gains(at)] == [
        ("ar", "eagle2", 1.0), ("eagle2", "sam+eagle2", 2.0), ("sam+eagle2", "+ counts", 2.0)]
    assert [one.verdict for one in respec_ablation.step_gains(at)] == ["not told apart", "faster", "faster"]
    assert respec_ablation.step_gains(report(PLAIN, ALL, SLOW))[1].verdict == "slower"


def test_a_method_is_judged_against_the_faster_rival_of_each_family():
    there = [*decodes("ar", *[row("", 0, 1.0)] * 4, family="rag", start=5),
             *decodes("eagle2", row("eagle2", 3, 0.1), family="rag", start=5),
             *decodes("sam+eagle2", *[row("", 0, 1.0)] * 4, family="rag", start=5),
             *decodes("respec", row("eagle2", 3, 0.2), family="rag", start=5)]
    found = respec_ablation.against_rivals(report(PLAIN, HEAD, BOTH, ALL, there), "respec", ["eagle2", "sam+eagle2"])
    assert list(found) == ["all prompts", "qa", "rag"]
    assert (found["qa"].base, found["qa"].ratio) == ("sam+eagle2", 2.0)
    assert (found["rag"].base, found["rag"].ratio, found["rag"].verdict) == ("eagle2", 0.5, "slower")
    assert compare.comparison_table(found)["rag"]["95 % interval"] == "0.50 to 0.50"


def test_fewer_than_five_prompts_are_a_point():
    few = respec_ablation.versus(report(PLAIN[:4], ALL[:4]), "ar", "respec")
    assert few.verdict == "no interval: fewer than five prompts"


def test_a_claim_and_what_was_measured_stand_in_columns_of_their_own():
    lines = respec_ablation.claims_table(report(PLAIN, HEAD, BOTH, SLOW))
    assert [line["respec-relaxed over"] for line in lines] == ["eagle2", "sam+eagle2"]
    assert [line["claimed (another target, other hardware)"] for line in lines] == [
        "more than 1.33 times", "more than 1.25 times"]
    assert (lines[0]["measured here"], lines[0]["so it is"]) == ("0.50 times (0.50 to 0.50)", "slower")
    assert lines[0]["this interval"] == "lies below 1.33"
    assert respec_ablation.claims_table(report(PLAIN, ALL)) == []
    [few] = respec_ablation.claims_table(report(PLAIN[:4], HEAD[:4], SLOW[:4]))
    assert few["this interval"] == "does not exist beside 1.33"


def test_the_parts_of_a_method_share_its_rounds_and_its_time():
    own = compare.source_shares(report(PLAIN, BOTH), "sam+eagle2")
    assert own["suffix-automaton"] == compare.SourceShare(0.5, 4, 2, 3, 1000, 0.5)
    assert own["suffix-automaton"].rate == 0.003
    assert own["eagle2"].tokens == 1
    assert sum(one.share for one in own.values()) == 1
    assert set(compare.source_shares(report(PLAIN), "ar")) == {"nobody"}
    rare = decodes("sam+eagle2", row("eagle2", 0, 1.0), *[row("suffix-automaton", 2, 1.0)] * 2)
    assert list(compare.source_shares(report(PLAIN, rare), "sam+eagle2")) == ["suffix-automaton", "eagle2"]
    spent = compare.ms_per_token(report(PLAIN, BOTH), "sam+eagle2")
    assert spent == {"when": 0, "what": 125, "target": 375, "how": 0}


def test_a_level_of_the_head_costs_what_its_rounds_drafted_with():
    assert respec_ablation.eagle2_step_seconds(report(PLAIN, HEAD)) == 0.25
    assert respec_ablation.eagle2_step_seconds(report(PLAIN, ALL)) == 0.0


def test_a_reason_names_tokens_and_time_of_both_sides():
    step = respec_ablation.step_gains(report(PLAIN, HEAD))[0]
    assert respec_ablation.step_sentence(report(PLAIN, HEAD), step) == (
        "eagle2 is 1.00 times (1.00 to 1.00) as fast as ar: not told apart. A round emits 2.00 tokens in 2000.0 ms,"
        " against 1.00 in 1000.0 ms.")


def test_quality_shows_four_measures_with_intervals_and_the_prompts_that_stayed_the_same():
    line = respec_ablation.quality_by_step(report(PLAIN, ALL), ["respec"])["+ counts"]
    assert line["overlap with ar"] == "1.000 (1.00 to 1.00)"
    assert line["same ids"] == "5 of 5"
    assert line["reference score"] == "–"
    assert len(line) == 5


def test_a_change_of_quality_is_judged_prompt_by_prompt():
    other = decodes("respec-relaxed", *[row("", 0, 1.0)._replace(tokens=(9,), nll=0.4)] * 4)
    said = respec_ablation.quality_changes_text(report(PLAIN, other), "ar", "respec-relaxed")
    assert said == [
        "target NLL (nats per token): + relaxation minus ar is +0.300 (+0.300 to +0.300), surely more",
        "overlap with ar: + relaxation minus ar is -1.000 (-1.000 to -1.000), surely less",
        "repeated 4-grams: + relaxation minus ar is +0.000 (+0.000 to +0.000), not told apart"]
    few = respec_ablation.quality_changes_text(report(PLAIN[:4], other[:4]), "ar", "respec-relaxed")
    assert "no interval" in few[0]


def test_a_change_is_found_though_the_intervals_of_both_methods_overlap():
    plain, other = (decodes(name, *[row("", 0, 1.0)] * 4) for name in ("ar", "respec-relaxed"))
    def moved(some, more):
        rounds = [tuple(r._replace(nll=place + more) for r in one.outcome.rows) for place, one in enumerate(some)]
        return [replace(one, outcome=replace(one.outcome, rows=own))
                for one, own in zip(some, rounds, strict=True)]
    found = report(moved(plain, 0.0), moved(other, 0.5))
    low, high = (found.entries[name]["quality_ci"]["target_nll"] for name in ("ar", "respec-relaxed"))
    assert low[1] > high[0]
    assert respec_ablation.quality_changes_text(found, "ar", "respec-relaxed")[0].endswith("surely more")


def test_every_step_names_all_that_it_changes():
    theirs, mine = "respec(theta=1.5,least=0.3,counts=0.0)", "respec(least=0.3,counts=0.0)"
    assert respec_ablation.change_text(theirs, mine) == "theta: 1.5 to 5.0"
    assert respec_ablation.change_text(mine, "respec") == "least: 0.3 to 0.6, counts: 0.0 to the default"
    said = respec_ablation.change_text("sam+eagle2", "sam+eagle2+trigger(theta=1.5)")
    assert said == "copy the longest match at low entropy, else EAGLE-2 (theta=1.5)"
    parts = respec_ablation.step_parts(report(PLAIN, HEAD, BOTH))
    assert [(one["step"], one["over"]) for one in parts] == [("eagle2", "ar"), ("sam+eagle2", "eagle2")]


def test_the_verdict_names_every_step_once():
    assert respec_ablation.verdict_text(report(PLAIN, HEAD, BOTH)) == (
        "faster: sam+eagle2; slower: none; not told apart: eagle2")


def test_a_kept_run_is_read_and_without_one_words_are_checked_before_anything_is_measured(tmp_path):
    RunFolder(tmp_path, Plan(("ar",))).finish(PLAIN, report(PLAIN).summary)
    assert compare.read_or_measure(str(tmp_path)).decodes == tuple(PLAIN)
    with pytest.raises(Refusal, match="no method named 'no-such'"):
        compare.read_or_measure("", str(tmp_path / "new"), methods="ar,no-such")


def test_the_conclusion_names_the_parts_that_gain_and_cost_and_sets_relaxed_respec_beside_its_claims():
    trigger = decodes("sam+eagle2+trigger", row("feedback-retrieval", 3, 1.0))           # twice as fast as BOTH
    parts, rivals, where = respec_ablation.conclusion_sentences(report(PLAIN, HEAD, BOTH, trigger, ALL, SLOW))
    assert parts == ("Not every part of ReSpec that this run holds pays compared with the step before: the entropy "
                     "trigger, 2.00 times (2.00 to 2.00), gains; relaxed verification, 0.12 times (0.12 to 0.12), "
                     "costs speed.")
    assert rivals == ("Relaxed ReSpec, lossy, is 0.50 times (0.50 to 0.50) as fast as EAGLE-2 and 0.25 times (0.25 to "
                      "0.25) as fast as SAM-Decoding; the paper claims more than 1.33 and 1.25.")
    assert where == "Measured on 5 prompts (tiny)."


def test_parts_that_are_not_told_apart_are_not_said_to_cost_and_few_prompts_have_no_verdict():
    def said(*found):
        return compare.parts_sentence("X", {f"part {i}": compare.Comparison("", "", *one) for i, one
                                            in enumerate(found)}, "Y", 2)

    unsure, slow, fast = (1.0, (.9, 1.1)), (.5, (.4, .6)), (2.0, (1.5, 2.5))
    assert said(unsure, slow).startswith(
        "No part of X is shown to pay compared with Y: part 1, 0.50 times (0.40 to 0.60), costs speed; part 0")
    assert said(unsure, fast).endswith("gains; part 0, 1.00 times (0.90 to 1.10), is not told apart.")
    assert said(fast, unsure).startswith("Not every part of X is shown to pay")
    assert said(slow, slow).startswith("No part of X pays compared with Y:")
    assert said((2.0, None)) == ("No part of X that this run holds is shown to pay compared with Y: part 0, 2.00 "
                                 "times, no interval: fewer than five prompts.")


def test_without_parts_rivals_or_relaxation_the_conclusion_says_less():
    parts, rivals, _ = respec_ablation.conclusion_sentences(report(PLAIN, ALL))
    assert (parts, rivals) == ("This run cannot say whether a part of ReSpec pays: it holds none beside the step "
                               "before.", "")
    lone = decodes("respec(theta=0.5)", row("feedback-retrieval", 3, 1.0))     # its own step before is not in the run
    assert respec_ablation.conclusion_sentences(report(PLAIN, lone, ALL))[0] == parts
    assert respec_ablation.conclusion_sentences(report(PLAIN, BOTH, ALL))[1] == (
        "Strict ReSpec is 2.00 times (2.00 to 2.00) as fast as SAM-Decoding; the paper claims more than 1.25 with "
        "relaxation.")


def test_the_relaxed_rule_is_judged_without_respec_and_respec_beside_it():
    fair = decodes("sam+eagle2@relaxed", row("suffix-automaton", 3, 1.0))                # twice as fast as BOTH
    assert respec_ablation.relaxation_text(report(PLAIN, BOTH, fair, SLOW)) == (
        "sam+eagle2@relaxed is 2.00 times (2.00 to 2.00) as fast as sam+eagle2: faster. "
        "respec-relaxed is 0.12 times (0.12 to 0.12) as fast as sam+eagle2@relaxed: slower.")
    assert respec_ablation.relaxation_text(report(PLAIN, BOTH, SLOW)).startswith("Not in this run: sam+eagle2@relaxed")


def test_the_families_in_which_a_step_is_told_apart_are_counted():
    other = [decodes("ar", *[row("", 0, 1.0)] * 4, family="rag", start=5),
             decodes("sam+eagle2", *[row("", 0, 1.5)] * 4, family="rag", start=5)]
    assert respec_ablation.family_title(report(PLAIN, BOTH, *other)) == (
        "Of 2 pairs of a step and a family, 1 are faster than the step before and 1 slower")


def test_the_kept_runs_of_other_processors_have_strict_respec_beside_its_rival_and_itself_without_counts():
    found = respec_ablation.other_processors(Path(__file__).parents[2] / "data" / "results")
    told = {name: (one.base, round(one.ratio, 2), one.verdict) for name, one in found.items()}
    assert told == {                               # as in data/results/serial-methods.md
        "AVX2 alone, over its rival": ("sam+eagle2", .99, "not told apart"),
        "AVX2 alone, over itself without counts": ("+ our threshold", .96, "slower"),
        "AMX, over its rival": ("sam+eagle2", .94, "slower"),
        "AMX, over itself without counts": ("+ our threshold", .98, "not told apart")}
