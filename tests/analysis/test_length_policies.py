"""A run of policies, made up by hand: who drafts, which fixed length is best, and what may be said of the others."""

import numpy as np
import pytest

from specdec_lib import catalog
from specdec_lib.analysis import length_policies
from specdec_lib.analysis.length_policies import PolicyResult, policy_result
from specdec_lib.bench.plan import Plan
from specdec_lib.bench.run_folder import RunFolder
from specdec_lib.specs import split_specs
from specdec_lib.types import Refusal
from tests.bench.made_up import decodes, report, turn

PLAIN = decodes("ar", *[turn(0, 0)] * 6)
ONE = decodes("eagle(depth=1)", *[turn(1, 1, what=.25)] * 3)                # 6 tokens in 3.75 s
TWO = decodes("eagle(depth=2)", *[turn(2, 2, what=.5)] * 2)                 # in 3 s: the best fixed length
SURE = decodes("eagle@svip", turn(2, 2, what=.25), turn(2, 2, what=.25))    # in 2.5 s
EVEN = decodes("eagle@margin", *[turn(2, 2, what=.5)] * 2, slow=(.9, 1.1, .9, 1.1, 1.0))
WORSE = decodes("eagle@tapout", *[turn(4, 1, what=1.0)] * 3)                # in 6 s, 9 of 12 drafts in vain
WARM = decodes("eagle@tapout (warm)", *[turn(2, 2, what=.3)] * 2)           # in 2.6 s
OTHER = decodes("draft-model(depth=4)", *[turn(4, 1, what=1.0)] * 3)


@pytest.fixture(scope="module")
def run():
    return report(PLAIN, SURE, TWO, ONE, EVEN, WORSE, WARM, OTHER, decodes("sam", *[turn(3, 2)] * 2))


@pytest.mark.parametrize(("spec", "found"), [
    ("eagle(depth=3)", ("eagle", "fixed 3", 3)), ("eagle", ("eagle", "fixed 4", 4)),
    ("early-exit(layer=10,depth=2)", ("early-exit(layer=10)", "fixed 2", 2)),
    ("draft-model@fixed(depth=5)", ("draft-model", "fixed 5", 5)),
    ("draft-model@fixed(depth=5,rate=0.5)", ("draft-model", "fixed(depth=5,rate=0.5)", None)),
    ("eagle@svip(h=0.4)", ("eagle", "svip(h=0.4)", None)),
    ("eagle@tapout (warm)", ("eagle", "tapout (warm)", None)),
    ("eagle@tapout(bandit='thompson') (warm, shuffled)", ("eagle", "tapout(bandit='thompson') (warm, shuffled)", None)),
    ("eagle@svip@match", ("eagle", "svip@match", None)), ("sam", ("sam", "its own", None)),
    ("eagle2", ("eagle2", "its own", None)), ("no-longer-here", ("no-longer-here", "its own", None))])
def test_a_spec_is_a_drafter_and_a_policy(spec, found):
    assert policy_result(spec) == PolicyResult(spec, *found)


def test_every_spec_of_the_command_is_read_and_can_be_spelled():
    for spec in split_specs(length_policies.methods_to_run(("eagle", "draft-model"))):
        assert catalog.method_spec(spec).name in catalog.methods()
        assert (spec == "ar") == (policy_result(spec).policy == "its own")


def test_drafters_are_those_of_which_a_fixed_length_was_measured_fixed_lengths_first(run):
    found = length_policies.policies_by_drafter(run)
    assert {name: [one.policy for one in lines] for name, lines in found.items()} == {
        "eagle": ["fixed 1", "fixed 2", "svip", "margin", "tapout", "tapout (warm)"], "draft-model": ["fixed 4"]}


def test_the_best_fixed_length_is_the_fastest_one_in_hindsight(run):
    assert length_policies.best_fixed(run, length_policies.policies_by_drafter(run)["eagle"]).length == 2


def test_a_policy_is_told_apart_from_it_by_the_paired_interval_alone(run):
    found = length_policies.policy_table(run, length_policies.policies_by_drafter(run)["eagle"])
    assert {name: row["so it is"] for name, row in found.items()} == {
        "fixed 1": "slower", "fixed 2": "the best fixed", "svip": "faster", "margin": "not told apart",
        "tapout": "slower", "tapout (warm)": "faster"}
    assert found["svip"]["over the best fixed"] == pytest.approx(3 / 2.5)
    assert found["svip"]["speed-up"] == pytest.approx(6 / 2.5)


def test_wasted_drafts_are_counted(run):
    found = length_policies.policy_table(run, length_policies.policies_by_drafter(run)["eagle"])["tapout"]
    assert found["wasted drafts"] == pytest.approx(9 / 12)
    assert found["drafted a round"] == 4
    assert found["drafter's share"] == pytest.approx(.5)
    assert length_policies.wasted_tokens(run, "ar") is None
    assert length_policies.wasted_tokens(run, "eagle@svip") == 0


def test_a_best_fixed_length_at_the_edge_of_those_measured_is_said_so(run):
    longer = decodes("eagle(depth=3)", *[turn(3, 1, what=1.0)] * 3)
    said, = length_policies.edge_sentences(report(PLAIN, ONE, TWO, WORSE))
    assert said.startswith("The best fixed length of eagle, 2, is the longest one measured.")
    assert said.endswith("Drafts reach 4 tokens.")
    assert length_policies.edge_sentences(report(PLAIN, ONE, TWO, longer)) == []


def test_a_rule_is_shown_below_the_best_fixed_length_of_its_drafter(run):
    found = [row["method"] for row in length_policies.rule_rows(run, ["svip"])]
    assert found == ["eagle(depth=2)", "eagle@svip", "draft-model(depth=4)"]
    asked = [row["method"] for row in length_policies.rule_rows(run, ["svip", "fixed 1"])]
    assert asked == ["eagle(depth=1)", "eagle(depth=2)", "eagle@svip", "draft-model(depth=4)"]


def test_without_a_rule_all_fixed_lengths_are_shown(run):
    found = [row["method"] for row in length_policies.rule_rows(run, ())]
    assert found == ["eagle(depth=1)", "eagle(depth=2)", "draft-model(depth=4)"]


def test_each_ratio_is_to_the_best_fixed_length_of_its_own_side(run):
    lines = length_policies.policies_by_drafter(run)["eagle"]
    found = length_policies.predicted_ratios(run, lines, {"fixed 1": 2.0, "fixed 2": 1.0, "svip": 2.4, "tapout": 2.0})
    assert found == {"svip": {"predicted": 1.2, "measured": pytest.approx(1.2), "95 %": "1.20 to 1.20",
                              "the prediction is": "in the interval"},
                     "tapout": {"predicted": 1.0, "measured": pytest.approx(.5), "95 %": "0.50 to 0.50",
                                "the prediction is": "above it"}}


def test_the_verdicts_follow_the_intervals(run):
    assert length_policies.verdicts(run, ["svip", "tapout", "adaedl"]) == [
        "With eagle, svip is surely faster than fixed 2: 1.20 times (1.20 to 1.20).",
        "With eagle, tapout is surely slower than fixed 2: 0.50 times (0.50 to 0.50).",
        "The run has no adaedl beside a fixed length."]
    even, = length_policies.verdicts(run, ["margin"])
    assert even.startswith("With eagle, margin is not told apart from fixed 2: ")


def test_a_policy_is_compared_with_another_policy_of_its_drafter(run):
    assert length_policies.verdicts(run, ["svip"], "tapout") == [
        "With eagle, svip is surely faster than tapout: 2.40 times (2.40 to 2.40)."]
    assert length_policies.verdicts(run, ["svip"], "adaedl") == ["The run has no svip beside adaedl."]


def test_nothing_is_sure_on_a_busy_machine():
    busy = report(PLAIN, TWO, SURE)
    busy.summary["settings"]["warnings"] = ["The machine was busy: speeds are uncertain."]
    said, = length_policies.verdicts(busy, ["svip"])
    assert said == "With eagle, svip is faster than fixed 2: 1.20 times (1.20 to 1.20)."


def test_fixed_lengths_are_told_apart_from_the_fastest_one_or_not():
    near = decodes("eagle(depth=3)", *[turn(2, 2, what=.5)] * 2, slow=(.9, 1.1, 1.0, 1.2, 1.0))
    eagle, other = length_policies.fixed_sentences(report(PLAIN, ONE, TWO, near, SURE, OTHER))
    assert eagle.startswith("With eagle, 2 is the fastest of the fixed lengths 1, 2, 3. "
                            "Slower: 1 (0.80, 0.80 to 0.80). Not told apart: 3 (0.96, ")
    assert "svip" not in eagle
    assert other == "With draft-model, 4 is the fastest of the fixed lengths 4."


def test_the_fastest_length_of_a_drafter_is_named_with_those_not_told_apart_from_it():
    near = decodes("eagle(depth=3)", *[turn(2, 2, what=.5)] * 2, slow=(.9, 1.1, 1.0, 1.2, 1.0))
    both, three = report(PLAIN, ONE, TWO, SURE, OTHER), report(PLAIN, ONE, TWO, near)
    assert length_policies.length_sentence(three, "eagle") == (
        "drafts of 2 tokens are the fastest of fixed lengths 1 to 3, not told apart from 3")
    assert length_policies.length_sentence(both, "eagle").endswith("fixed lengths 1 to 2, faster than all others")
    assert length_policies.length_sentence(both, "draft-model").endswith("the fastest of fixed lengths 4 alone")
    assert length_policies.length_sentence(both, "absent") == ""


def test_the_fastest_length_of_each_drafter_is_named_with_those_that_may_be_as_fast():
    near = decodes("eagle(depth=3)", *[turn(2, 2, what=.5)] * 2, slow=(.9, 1.1, 1.0, 1.2, 1.0))
    assert length_policies.fastest_lengths(report(PLAIN, ONE, TWO, near, SURE, OTHER)) == (
        "2 with eagle (not told apart: 3) and 4 with draft-model")


def test_a_length_as_fast_as_the_fastest_is_not_called_slower_since_that_one_was_chosen():
    dice = np.random.default_rng(0)
    equal = [decodes(f"eagle(depth={n})", turn(1, 1), prompts=12, slow=dice.normal(1, .1, 12)) for n in range(1, 9)]
    at = report(decodes("ar", *[turn(0, 0)] * 2, prompts=12, slow=(1.0,) * 12), *equal)
    lines = length_policies.policies_by_drafter(at)["eagle"]
    best = length_policies.best_fixed(at, lines)
    assert "slower" in [length_policies.policy_ratio(at, best, one).verdict for one in lines]      # on its own
    assert len(length_policies.close_lengths(at, lines)) == 7
    said = length_policies.fixed_sentences(at)[0]
    assert "Slower" not in said
    assert said.endswith("An interval is of its length alone; all are judged at once, since the fastest was chosen "
                         "here.")


def test_a_prediction_lies_beside_the_interval_of_the_first_drafter(run):
    lies = {value: length_policies.prediction_sentences(run, "svip", value, 1) for value in (1.3, 0.9, 1.2)}
    assert lies[1.3] == ["Predicted for svip was 1.300 times fixed 1. The measured interval with eagle, 1.200 to 1.200 "
                         "over fixed 2, lies below this."]
    assert lies[0.9][0].endswith("over fixed 2, lies above this.")
    assert length_policies.prediction_sentences(run, "margin", 1.0, 2)[0].endswith(
        "holds both this and 1, so the run cannot decide.")
    wide = report(PLAIN, TWO, decodes("eagle@svip", *[turn(2, 2, what=.25)] * 2, slow=(.9, 1.0, .95, 1.0, 1.0)))
    assert length_policies.prediction_sentences(wide, "svip", 1.23, 2)[0].endswith("over fixed 2, holds this.")
    assert length_policies.prediction_sentences(run, "adaedl", 1.0, 2) == []


def test_a_predicted_order_is_held_against_pairs_that_the_run_tells_apart(run):
    lines = length_policies.policies_by_drafter(run)["eagle"]
    # measured: svip before fixed 2 before fixed 1, surely; margin is not told apart from fixed 2
    assert length_policies.order_agreement(run, lines, {"svip": 1.3, "fixed 2": 1.2, "fixed 1": 1.1}) == (3, 3)
    assert length_policies.order_agreement(run, lines, {"svip": 1.3, "fixed 2": 1.0, "fixed 1": 1.1}) == (2, 3)
    assert length_policies.order_agreement(run, lines, {"svip": 1.1, "fixed 1": 1.1, "tapout": 1.1}) == (0, 3)
    assert length_policies.order_agreement(run, lines, {"margin": 1.3, "fixed 2": 1.0, "unheard of": 2.0}) == (0, 0)


def test_a_run_with_a_fixed_length_is_read_and_one_without_is_refused(tmp_path):
    for name, groups in {"without": (PLAIN, SURE), "with": (PLAIN, SURE, TWO)}.items():
        made = report(*groups)
        RunFolder(tmp_path / name, Plan(("ar",))).finish(list(made.decodes), made.summary)
    with pytest.raises(Refusal, match="no fixed length"):
        length_policies.read_policies(str(tmp_path / "without"))
    found, whence = length_policies.read_policies(str(tmp_path / "with"))
    assert whence == f"The run in {tmp_path / 'with'}, measured."
    assert list(found.entries) == ["ar", "eagle@svip", "eagle(depth=2)"]


def test_a_run_says_where_and_when_it_was_measured():
    run = report(PLAIN, TWO)
    run.summary.update(machine={"processor": "some cores", "gpu": None}, created="2026-11-27T13:03:57+00:00")
    assert length_policies.whence(run, "../data/results/policies") == (
        "The run in data/results/policies, measured on some cores on 2026-11-27.")
    run.summary["machine"]["gpu"] = "a card"
    assert "measured on some cores on" in length_policies.whence(run, "decoded on the processor of a machine with both")
    run.summary["target"]["device"] = "cuda"
    assert length_policies.whence(run, "mine") == "The run in mine, measured on a card on 2026-11-27."
