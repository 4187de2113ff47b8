"""Predictions of stacks beside a made-up run: every number by hand, and sentences that follow the numbers."""

from dataclasses import replace

import pytest

from specdec_lib import catalog
from specdec_lib.analysis import hierarchy_prediction as stacks
from specdec_lib.cost.curves import CostCurve
from specdec_lib.cost.hierarchy import LevelTerms
from specdec_lib.cost.levels import LevelMeasurements
from specdec_lib.specs import split_specs
from specdec_lib.types import Refusal
from tests.bench.made_up import decodes, report, turn

ONE, TWO = "hierarchical(stack='ngram',blocks=(2,))", "hierarchical(stack='ngram+draft-model',blocks=(1,2))"
COPY, POLICY = "hierarchical(stack='prompt-lookup+draft-model',blocks=(1,2))", "hierarchical@svip"


def flat(seconds: float) -> CostCurve:
    return CostCurve((1, 9), (8,), ((seconds, seconds),))


LEVELS = LevelMeasurements(("ngram", "draft-model", "target"), (flat(.001), flat(.01), flat(.1)),
                           ((1, .8, .5), (.8, 1, .75), (.5, .75, 1)), 100)


TERMS = replace(LEVELS, terms=(LevelTerms(.0004, .0, .0002, .0001), LevelTerms(.001, .002, .003, .0004),
                               LevelTerms(.005, .006)))


def made(one_target: float = .1, two_target: float = .1):
    return report(decodes("ar", turn(0, 0, target=.1), turn(0, 0, target=.1)),
                  decodes(ONE, turn(2, 1, what=.004, target=one_target), turn(2, 0, what=.004, target=one_target)),
                  decodes(TWO, turn(2, 2, what=.02, target=two_target), turn(3, 2, what=.02, target=two_target)),
                  decodes(COPY, turn(2, 2)), decodes(POLICY, turn(2, 2)), decodes("sam (warm)", turn(2, 2)))


def test_a_stack_is_predicted_from_its_levels_and_measured_from_its_rounds():
    plain, one, two = stacks.stack_comparisons(made(), LEVELS)
    assert plain.drafters == ()
    assert (plain.simple_ms, plain.renewal_ms) == pytest.approx((100, 100))
    assert plain.measured_ms == pytest.approx(100)
    assert (one.simple_ms, one.renewal_ms) == pytest.approx((102 / 1.75, 102 / 1.75))
    assert one.predicted_tokens == pytest.approx(1.75)
    assert one.measured_tokens == pytest.approx(1.5)
    assert one.measured_ms == pytest.approx(1000 * .208 / 3)
    below = (.001 + .01) / 1.8
    assert two.simple_ms == pytest.approx(1000 * (2 * below + .1) / (1 + .75 + .75 ** 2))
    # a block of two: one round of two tokens (.8), or one of one token (.2) and a second of one (.2) or two (.8)
    mean = .8 * 2 + .2 * (.2 * 2 + .8 * 3)
    rounds = .8 + .2 * 2
    tokens = 1 + .75 + .75 ** 2 + .2 * .8 * .75 ** 3
    assert mean / rounds == pytest.approx(1.8)
    assert two.predicted_tokens == pytest.approx(tokens)
    assert two.renewal_ms == pytest.approx(1000 * (rounds * .011 + .1) / tokens)
    assert two.measured_ms == pytest.approx(1000 * .24 / 6)
    assert two.gap == pytest.approx(two.renewal_ms / 40 - 1)


def test_predictions_and_measurements_stand_in_columns_of_their_own_the_fastest_first():
    rows = stacks.comparison_rows(stacks.stack_comparisons(made(), LEVELS))
    assert [row["stack"] for row in rows] == ["ngram + draft-model", "ngram", "plain decoding"]
    for name in rows[0]:
        assert name in ("stack", "blocks", "predicted over measured") or ("predicted" in name) != ("measured" in name)
    assert [row["ms per token, measured"] for row in rows] == sorted(row["ms per token, measured"] for row in rows)


def test_the_sentences_follow_the_numbers():
    found = stacks.stack_comparisons(made(), LEVELS)
    said = stacks.prediction_sentence(found)
    close = sum(abs(one.gap) <= .1 for one in found)
    assert said.startswith(f"{close} of 3 predictions")
    assert "It is the fastest measured as well" in said
    other = stacks.stack_comparisons(made(two_target=.5), LEVELS)
    assert "ngram + draft-model with blocks of 1, 2 is predicted fastest" in stacks.prediction_sentence(other)
    assert ("takes 150% longer a token than the fastest, ngram with blocks of 2"         # 1.04 s / 6 over .208 s / 3
            in stacks.prediction_sentence(other))


def test_terms_are_parts_of_what_is_predicted_and_of_nothing_that_was_measured():
    bare, whole = (stacks.stack_comparisons(made(), levels) for levels in (LEVELS, TERMS))
    assert [one.measured_ms for one in whole] == [one.measured_ms for one in bare]
    assert [one.predicted_tokens for one in whole] == [one.predicted_tokens for one in bare]
    for one, before in zip(whole, bare, strict=True):
        assert before.parts == pytest.approx({"forwards": before.renewal_ms} | dict.fromkeys(LevelTerms._fields, 0))
        assert one.parts["forwards"] == pytest.approx(before.renewal_ms)
        assert sum(one.parts.values()) == pytest.approx(one.renewal_ms)
        assert one.forwards_gap == pytest.approx(before.gap)
    assert whole[0].parts["step"] == pytest.approx(5), "plain decoding: the target's own"
    assert whole[1].parts == pytest.approx({"forwards": 102 / 1.75, "step": .8 / 1.75, "verification": 6 / 1.75,
                                            "start": .2 / 1.75, "prompt": .1})


def test_the_tables_of_terms_and_parts_have_a_row_for_each_level_and_each_stack():
    rows = stacks.term_rows(TERMS)
    assert [row["level"] for row in rows] == ["ngram", "draft-model", "target"]
    assert list(rows[1].values())[1:] == pytest.approx([10, 1, 2, 3, .4])
    found = stacks.stack_comparisons(made(), TERMS)
    for row, one in zip(stacks.part_rows(found), sorted(found, key=lambda one: one.measured_ms), strict=True):
        *parts, predicted, measured = list(row.values())[2:]
        assert sum(parts) == pytest.approx(predicted)
        assert (predicted, measured) == (one.renewal_ms, one.measured_ms)


def test_the_sentence_counts_what_the_terms_bring():
    found = stacks.stack_comparisons(made(), LEVELS)
    far = [one._replace(measured_ms=one.renewal_ms, parts={"forwards": .8 * one.renewal_ms}) for one in found]
    said = stacks.prediction_sentence(far)
    assert said.startswith("3 of 3 predictions lie within 10% of what was measured, all between +0.0% and +0.0%")
    assert "forwards alone would bring 0 that close" in said


def test_the_number_of_drafters_that_is_best_is_read_off_the_run():
    assert "has 2 drafters" in stacks.depth_sentence(made(), stacks.stack_comparisons(made(), LEVELS))
    slow = made(two_target=.5)
    said = stacks.depth_sentence(slow, stacks.stack_comparisons(slow, LEVELS))
    assert "has one drafter" in said
    assert said.endswith(": surely faster.")
    slow.summary["settings"]["warnings"] = ["The machine was busy."]
    assert stacks.depth_sentence(slow, stacks.stack_comparisons(slow, LEVELS)).endswith("2: faster.")
    none = made(.9, .9)
    assert "has no drafter" in stacks.depth_sentence(none, stacks.stack_comparisons(none, LEVELS))
    even = report(*(decodes(name, turn(1, 1), turn(1, 1)) for name in ("ar", ONE, TWO)))
    assert "(1.00 to 1.00) as fast as" in (said := stacks.depth_sentence(even, stacks.stack_comparisons(even, LEVELS)))
    assert said.endswith(": not told apart.")


def test_the_predicted_choice_is_said_with_what_the_other_size_would_give():
    names = ("small", "middle", "target")
    apart = ((1, .5, .8), (.5, 1, .5), (.8, .5, 1))
    said = stacks.choice_sentence(names, (.01, .5, 1.0), apart, 6)
    assert "one drafter would be best: small (T = 6)" in said
    assert "; small (T = " in said
    assert "under middle (T = " in said.split(";")[1]
    near = ((1, .95, .2), (.95, 1, .95), (.2, .95, 1))
    assert "two drafters would be best: small" in stacks.choice_sentence(names, (.01, .2, 1.0), near, 6)
    none = ((1, .1, .1), (.1, 1, .1), (.1, .1, 1))
    assert "no drafter would be best: plain decoding, predicted 1.00 times" in stacks.choice_sentence(
        names, (.5, .8, 1.0), none, 6)


def test_the_title_says_how_often_a_stack_pays_and_by_how_much():
    assert stacks.paying_title([.9, 1.044, 1.01]) == (
        "A stack of both pays at 2 of 3 costs of the middle model, by 4.4% at most")
    assert stacks.paying_title([.9, 1.0]) == "A stack of both pays at none of 2 costs of the middle model"


def test_measured_costs_are_said_in_tokens_of_plain_decoding_and_put_into_the_programme():
    said = stacks.lowest_sentence(LEVELS, longest=6)
    assert "a token of ngram costs 0.01 of a token of plain decoding and one of draft-model 0.10" in said
    assert "the lower is 0.10 times as dear as the upper" in said
    assert said.endswith(stacks.choice_sentence(LEVELS.names, LEVELS.costs, LEVELS.alpha, 6))
    assert "the lower is 0.13 times" in stacks.lowest_sentence(TERMS, longest=6)        # 1.4 ms of 11
    assert "lack early-exit or ngram" in stacks.lowest_sentence(LEVELS, ("early-exit", "ngram"))


def test_the_run_that_is_asked_for_has_stacks_of_one_two_and_three_drafters_that_can_be_named():
    specs = split_specs(stacks.METHODS)
    named = [stacks.named_stack(spec) for spec in specs]
    assert specs[0] == "ar"
    assert all(catalog.method_spec(spec).name in ("ar", "hierarchical") for spec in specs)
    assert len(set(named)) == len(specs) >= 9
    assert {len(drafters) for drafters, _ in named} == {0, 1, 2, 3}
    assert all(len(drafters) == len(blocks) for drafters, blocks in named)


def test_methods_that_name_no_stack_are_left_out():
    assert stacks.named_stack("hierarchical") is None
    assert stacks.named_stack("eagle(depth=2)") is None
    assert stacks.named_stack(ONE + "@svip") is None
    assert stacks.named_stack(TWO) == (("ngram", "draft-model"), (1, 2))


def test_a_missing_run_is_none_and_one_without_levels_is_refused(tmp_path, monkeypatch):
    assert stacks.read_stack_run(tmp_path / "none") is None
    monkeypatch.setattr(stacks, "load_report", lambda folder: made())
    with pytest.raises(Refusal, match="measured levels"):
        stacks.read_stack_run(tmp_path)
    LEVELS.save(tmp_path / "levels.json")
    assert stacks.read_stack_run(tmp_path)[1] == LEVELS
    monkeypatch.setattr(stacks, "load_report", lambda folder: report(decodes("ar", turn(0, 0))))
    with pytest.raises(Refusal, match="no stack"):
        stacks.read_stack_run(tmp_path)


def test_a_machine_that_is_slower_during_the_run_moves_no_multiple_of_plain_decoding():
    found = stacks.stack_comparisons(made(), LEVELS)
    said = stacks.relative_sentence(found)
    assert "is predicted 0.0% above" in said
    gaps = sorted(one.gap for one in found if one.drafters)
    assert f"all between {gaps[0]:+.1%} and {gaps[-1]:+.1%}; by forwards alone" in said
    slower = stacks.relative_sentence([one._replace(measured_ms=2 * one.measured_ms) for one in found])
    assert "is predicted 50.0% below" in slower
    assert slower.partition("As multiples")[2] == said.partition("As multiples")[2]
    assert "no plain decoding" in stacks.relative_sentence([one for one in found if one.drafters])
