"""Rules of verification on runs made up by hand: who is compared with whom, in which order, and by which intervals."""

import pytest

from specdec_lib import catalog
from specdec_lib.analysis import bench_report, verification_tradeoff
from specdec_lib.analysis.verification_tradeoff import Estimate
from specdec_lib.bench import summary
from specdec_lib.bench.plan import Plan
from specdec_lib.bench.results import Decode, Outcome
from specdec_lib.bench.run_folder import RunFolder
from specdec_lib.measure import Row
from specdec_lib.specs import split_specs
from specdec_lib.types import Refusal

HARD, SOFT = (f"eagle@relaxed(sources=('eagle',),margin={margin})" for margin in (0.9, 0.1))
COPIED = "sam+token-recycling@relaxed"


def decodes(method, seconds, kept=1, nll=0.1, token=7, exchanged=0, score=None):
    """Five prompts of four tokens; the prompts differ in length of time, the methods by a factor."""
    def one(question):
        row = Row("d", kept, kept, kept, 1 + kept, kept, 1 + kept, 0.0, 0.0, seconds * (1 + question), 0.0, nll,
                  (token,) * (1 + kept), ("d",) * kept + ("",), (2.0,) * (1 + kept), exchanged)
        rows = (row,) * (4 // (1 + kept))
        tokens = tuple(token for row in rows for token in row.tokens)
        return Decode(question, "qa", method, 0, 0, False, 10, Outcome(
            tokens, 1.0, sum(row.seconds for row in rows), len(tokens), len(rows), rows), "a", ("a",) * 4, score)
    return [one(question) for question in range(5)]


def report(*groups, temperature=0.0):
    flat = tuple(one for group in groups for one in group)
    lossless = {one.method: catalog.card_of(one.method).lossless for one in flat if "(warm" not in one.method}
    about = {"target": {"name": "tiny", "device": "cpu", "dtype": "float32"}, "prompts": {"count": 5},
             "settings": {"cost_curve": None, "temperature": temperature},
             "methods": summary.method_summaries(flat, lossless, None), "peers": {}}
    return bench_report.Report(about, flat)


PLAIN = decodes("ar", 1.0, 0)
HEAD = decodes("eagle", 1.6)
RUN = report(PLAIN, HEAD, decodes("eagle@match", 2.0), decodes(SOFT, 0.8, nll=0.4, token=8, exchanged=1),
             decodes(HARD, 1.6), decodes("sam+token-recycling", 1.0), decodes(COPIED, 1.0, nll=0.25))
POINTS = {one.spec: one for one in verification_tradeoff.rule_points(RUN)}


def test_a_method_is_told_as_drafter_and_rule_its_own_or_the_one_behind_an_at():
    assert verification_tradeoff.parse_rule_spec("eagle") == ("eagle", "rejection", {})
    assert verification_tradeoff.parse_rule_spec("sam+token-recycling") == ("sam+token-recycling", "match", {})
    assert verification_tradeoff.parse_rule_spec("eagle(depth=6)@svip(h=0.3)@relaxed(margin=0.1)") == (
        "eagle(depth=6)@svip(h=0.3)", "relaxed", {"margin": 0.1})
    assert verification_tradeoff.parse_rule_spec("eagle@match@svip")[:2] == ("eagle@svip", "match")
    assert verification_tradeoff.parse_rule_spec("respec-relaxed(margin=0.1)") == ("respec", "relaxed", {"margin": 0.1})
    assert verification_tradeoff.parse_rule_spec("respec-relaxed(rule='typical')")[1] == "relaxed, typical"


def test_every_measured_spec_names_a_drafter_and_a_rule_that_exist():
    for temperature in (0.0, 0.7):
        specs = split_specs(verification_tradeoff.methods_to_run(temperature))[1:]
        found = [verification_tradeoff.parse_rule_spec(spec) for spec in specs]
        assert {drafter for drafter, *_ in found} <= {"eagle", "sam+token-recycling"}
        assert {"rejection", "match", "relaxed", "typical", "top-beta", "consultant"} == {rule for _, rule, _ in found}


def test_a_rule_is_held_against_the_lossless_one_of_its_drafter_and_that_against_itself():
    assert [POINTS[spec].base for spec in ("eagle", "eagle@match", SOFT, COPIED)] == [
        "eagle", "eagle", "eagle", "sam+token-recycling"]
    assert POINTS[SOFT].over.value == pytest.approx(2.0)
    assert POINTS["eagle"].over.value == 1
    assert POINTS[SOFT].over.interval == pytest.approx([2.0, 2.0])         # paired: prompts differ fivefold
    assert POINTS["eagle@match"].over.value == pytest.approx(0.8)
    assert POINTS["eagle@match"].lossless


def test_without_a_lossless_rule_of_its_drafter_a_rule_is_held_against_plain_decoding_alone():
    alone = {one.spec: one for one in verification_tradeoff.rule_points(report(PLAIN, decodes(SOFT, 0.8)))}[SOFT]
    assert alone.base == ""
    assert alone.over == Estimate(None)
    assert alone.loss == {}
    assert alone.speed.value > 1
    under = verification_tradeoff.rule_points(report(PLAIN, decodes("eagle@match", 1.0), decodes(SOFT, 0.8)))[1]
    assert under.base == "eagle@match"


def test_a_point_has_the_four_measures_and_their_paired_differences():
    one = POINTS[SOFT]
    assert one.tokens == 2
    assert one.not_best == 50
    assert POINTS["eagle"].not_best == 0
    assert one.quality["target_nll"] == Estimate(pytest.approx(.2), pytest.approx([.2, .2]))
    assert one.change["target_nll"].value == pytest.approx(.1)
    assert one.change["ar_overlap"].value == -1
    assert one.loss["target_nll"].value == pytest.approx(.2 - .05)
    assert one.change["reference_score"] == Estimate(None)


def test_the_settings_of_a_rule_run_from_strict_to_loose_whatever_the_order_of_the_run():
    found = verification_tradeoff.rule_curves(POINTS.values(), "eagle")
    assert {rule: [one.spec for one in own] for rule, own in found.items()} == {
        "rejection": ["eagle"], "match": ["eagle@match"], "relaxed": [HARD, SOFT]}
    assert verification_tradeoff.drafters_with_lossy_rule(POINTS.values()) == ["eagle", "sam+token-recycling"]
    assert POINTS[SOFT].label == "relaxed (margin 0.1)"
    assert POINTS[COPIED].label == "relaxed"


@pytest.mark.parametrize(("rule", "specs"), [
    ("relaxed", ["relaxed(margin=0.9)", "relaxed", "relaxed(rank=5)", "relaxed(margin=0.1)"]),
    ("typical", ["typical(eps=0.3)", "typical", "typical(eps=0.01)", "typical(eps=0.01,delta=0.1)"]),
    ("relaxed, typical", [f"relaxed(rule='typical'{more})" for more in (
        ",eps=0.3", "", ",eps=0.01", ",eps=0.01,delta=0.1")]),
    ("top-beta", ["top-beta(tolerance=0.3)", "top-beta", "top-beta(beta=5)", "top-beta(tolerance=3.0)"]),
    ("consultant", ["consultant(eps=0.5)", "consultant(eps=1.0)", "consultant"])])
def test_each_rule_has_its_own_sense_of_loose_and_knows_its_defaults(rule, specs):
    specs = [f"eagle@{spec}" for spec in specs]
    some = verification_tradeoff.rule_points(report(PLAIN, *(decodes(spec, 1.0) for spec in reversed(specs))))
    assert [one.spec for one in verification_tradeoff.rule_curves(some, "eagle")[rule]] == specs


def test_warm_streams_are_no_points():
    assert len(verification_tradeoff.rule_points(report(PLAIN, HEAD, decodes("eagle (warm)", 1.0)))) == 1


def test_an_interval_says_above_below_or_neither_and_noise_of_arithmetic_is_neither():
    assert [Estimate(0, span).sign(1) for span in ((1.1, 2), (.5, .9), (.9, 1.1), None)] == [1, -1, 0, 0]
    assert Estimate(1e-8, (1e-9, 1e-7)).sign() == 0


def test_a_finished_run_is_read_with_the_name_of_its_folder(tmp_path):
    RunFolder(tmp_path / "kept", Plan(("ar",))).finish(list(RUN.decodes), RUN.summary)
    found, whence = verification_tradeoff.read_rules(str(tmp_path / "kept"))
    assert found.entries == RUN.entries
    assert whence == "A finished run, from kept."


def test_the_command_names_the_temperature_unless_it_is_zero():
    assert "--temperature" not in verification_tradeoff.command_to_run("results/x")
    assert "--temperature 0.7 " in verification_tradeoff.command_to_run("results/x", 0.7)


def test_a_run_without_a_lossy_rule_is_refused_with_the_command_that_makes_one(tmp_path):
    strict = report(PLAIN, HEAD)
    RunFolder(tmp_path, Plan(("ar",))).finish(list(strict.decodes), strict.summary)
    with pytest.raises(Refusal, match="has no lossy rule: measure one with `specdec bench"):
        verification_tradeoff.read_rules(str(tmp_path))
