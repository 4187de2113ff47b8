"""Verdicts on rules of verification: what is surely faster, what it cost, and what is not judged."""

from dataclasses import replace

from specdec_lib.analysis import verification_text, verification_tradeoff
from specdec_lib.bench.plan import Plan
from specdec_lib.bench.run_folder import RunFolder
from tests.analysis.test_verification_tradeoff import HARD, HEAD, PLAIN, RUN, SOFT, decodes, report

POINTS = verification_tradeoff.rule_points(RUN)
ALL = verification_text.judged_measures(RUN)
NAME = "eagle, relaxed (margin 0.1)"               # of SOFT in a table


def test_a_rule_is_faster_only_by_the_interval_over_the_lossless_one_of_its_drafter():
    # though others beat plain decoding
    assert [one.spec for one in verification_text.surely_faster_points(POINTS)] == [SOFT]
    assert all(one.speed.sign(1.0) > 0 for one in POINTS if one.spec.startswith("sam"))


def test_each_rule_has_a_sentence_with_its_fastest_setting_and_everything_it_surely_lost():
    said = verification_text.verdicts(POINTS, ALL)
    assert said == [
        "eagle, relaxed (margin 0.1): 2.00 times (2.00 to 2.00) as fast as eagle (faster); surely worse than plain"
        " decoding in: target NLL (nats per token) +0.100 (+0.100 to +0.100), overlap with ar -1.000 (-1.000 to"
        " -1.000); 50.0 of 100 tokens are not the target's best.",
        "With eagle, relaxed (margin 0.1) is the fastest of those worse in the fewest measures: 2.00 times (2.00 to"
        " 2.00) as fast as its lossless rule, surely worse in target NLL (nats per token), overlap with ar. Also"
        " faster, and worse in as few: no other rule.",
        "sam+token-recycling, relaxed: 1.00 times (1.00 to 1.00) as fast as sam+token-recycling (not told apart);"
        " surely worse than plain decoding in: target NLL (nats per token) +0.025 (+0.025 to +0.025); 0.0 of 100 tokens"
        " are not the target's best.",
        "With sam+token-recycling no rule is faster than its lossless one by its interval."]


def test_without_a_lossless_rule_nothing_is_said_of_being_faster_than_it():
    alone = verification_tradeoff.rule_points(report(PLAIN, decodes(SOFT, 0.8, nll=0.2)))
    assert verification_text.verdicts(alone, ALL) == [
        "eagle, relaxed (margin 0.1): the run has no lossless rule of this drafter to compare it with."]


def test_what_buys_most_for_least_is_the_fastest_of_those_that_lose_the_least():
    same = verification_tradeoff.rule_points(report(PLAIN, HEAD, decodes(SOFT, 0.8, nll=0.2)))
    assert verification_text.conclusion_text(same, ALL).endswith(
        "as fast as its lossless rule, surely worse in none of the 3 judged.")
    dear = verification_tradeoff.rule_points(report(PLAIN, HEAD, decodes(HARD, 1.0, nll=0.2),
                                                    decodes(SOFT, 0.8, nll=0.4)))
    assert "margin 0.9" in verification_text.conclusion_text(dear, ALL)    # slower, and it loses nothing
    better = verification_tradeoff.rule_points(report(PLAIN, HEAD, decodes(SOFT, 0.8, nll=0.1)))
    assert verification_text.losses(better[1], ALL) == []                  # a likelier text is no loss, and no merit
    assert verification_text.losses(better[1], ALL, -1) == ["target_nll"]
    assert "surely worse than plain decoding in: nothing; surely better in: target NLL (nats per token) -0.050" \
        in verification_text.verdicts(better, ALL)[0]


def test_the_rules_that_gain_speed_are_named_with_what_they_lose():
    assert verification_text.gains_sentence(POINTS, ALL, 0.0) == (
        "At temperature 0 with eagle every rule faster than the lossless one loses quality: relaxed 2.00 times (2.00"
        " to 2.00), worse in 2 of 3 measures.")
    harmless = verification_tradeoff.rule_points(report(PLAIN, HEAD, decodes(SOFT, 0.8, nll=0.2)))
    assert "no faster rule is shown to lose quality: relaxed 2.00 times (2.00 to 2.00), worse in 0 of 3" in \
        verification_text.gains_sentence(harmless, ALL, 0.7)
    both = verification_tradeoff.rule_points(report(PLAIN, HEAD, decodes(SOFT, 0.8, nll=0.2),
                                                    decodes("eagle@typical", 1.2, nll=0.4)))
    assert "not every faster rule is shown to lose quality: relaxed 2.00" in \
        verification_text.gains_sentence(both, ALL, 0.0)
    slow = verification_tradeoff.rule_points(report(PLAIN, HEAD, decodes(SOFT, 9.0)))
    assert verification_text.gains_sentence(slow, ALL, 0.7) == (
        "At temperature 0.7 with eagle no rule is faster than the lossless one by its interval.")
    alone = verification_tradeoff.rule_points(report(PLAIN, decodes(SOFT, 0.8)))
    assert verification_text.gains_sentence(alone, ALL, 0.0).endswith("no lossless rule to compare with.")


def test_a_measure_without_values_is_not_counted():
    assert all(one.change["reference_score"].value is None for one in POINTS)
    assert (len(ALL), verification_text.measured_gates(POINTS, ALL)) == (4, 3)
    blank = [one._replace(change={**one.change, "repeated_4grams": verification_tradeoff.Estimate(None)})
             for one in POINTS]
    assert verification_text.gains_sentence(blank, ALL, 0.0).endswith("worse in 2 of 2 measures.")


def test_a_kept_run_says_what_a_lossy_rule_gains_and_loses(tmp_path):
    RunFolder(tmp_path, Plan(("ar",))).finish(list(RUN.decodes), RUN.summary)
    assert verification_text.lossy_speed_sentence([tmp_path], "eagle", SOFT) == (
        "Measured speed of relaxed (margin 0.1) over the lossless rule, with eagle on 5 prompts: 2.00 times (2.00 to "
        "2.00) at temperature 0 (faster), its text worse in 2 of 3 measures.")


def test_rules_that_lose_in_as_few_measures_are_named_beside_the_fastest_each_with_its_fastest_setting():
    rivals = [decodes("eagle@typical", 1.2, nll=0.2), decodes("eagle@typical(eps=0.02)", 1.1, nll=0.2),
              decodes("eagle@consultant", 1.0, nll=0.4)]
    points = verification_tradeoff.rule_points(report(PLAIN, HEAD, decodes(SOFT, 0.8, nll=0.2), *rivals))
    assert [one.label for one in verification_text.with_fewest_losses(points, ALL)] == [
        "relaxed (margin 0.1)", "typical (eps 0.02)"]
    assert verification_text.rivals_text(points, ALL) == (
        "Also faster, and worse in as few: typical (eps 0.02) 1.45 times (1.45 to 1.45).")
    slow = verification_tradeoff.rule_points(report(PLAIN, HEAD, decodes(SOFT, 9.0)))
    assert verification_text.rivals_text(slow, ALL) == ""


def test_a_strict_setting_that_is_surely_faster_goes_before_a_loose_one_that_only_looks_so():
    wild = [replace(one, outcome=replace(one.outcome, seconds=one.outcome.seconds * factor))
            for factor, one in zip((9, 9, .01, .01, .01), decodes(SOFT, 1.6), strict=True)]
    at = verification_tradeoff.rule_points(report(PLAIN, HEAD, wild, decodes(HARD, 1.5)))
    assert "margin 0.9" in verification_text.verdicts(at, ALL)[0]
    assert verification_text.surely_faster_points(at)[0].spec == HARD


def test_above_temperature_zero_the_overlap_is_shown_and_not_judged():
    warm = report(PLAIN, HEAD, decodes(SOFT, 0.8, nll=0.2, token=8), temperature=0.7)
    assert "ar_overlap" in ALL
    assert "ar_overlap" not in verification_text.judged_measures(warm)
    assert len(verification_text.judged_measures(warm)) == 3
    points = verification_tradeoff.rule_points(warm)
    assert "overlap" not in verification_text.verdicts(points, verification_text.judged_measures(warm))[0]
    assert "temperature 0.7" in verification_text.comparison_text(warm)
    assert "the rule causes every difference" in verification_text.comparison_text(RUN)
    row = verification_text.change_table(points)["relaxed (margin 0.1)"]
    assert row["overlap with ar, minus plain decoding's"].startswith("-1.000")


def test_without_a_lossless_rule_to_hold_it_against_a_sentence_says_so():
    alone = verification_tradeoff.rule_points(report(PLAIN, decodes(SOFT, 0.8)))
    assert "no lossless rule of this drafter" in verification_text.verdicts(alone, ALL)[0]


def test_the_tables_have_a_line_for_every_method_with_intervals():
    line = verification_text.speed_table(POINTS)[NAME] | verification_text.change_table(POINTS)[NAME]
    assert line["over its lossless rule"] == "2.00 times (2.00 to 2.00)"
    assert line["not the best, of 100"] == 50
    assert line["target NLL (nats per token), minus plain decoding's"] == "+0.100 (+0.100 to +0.100)"
    for made in (verification_text.speed_table(POINTS), verification_text.change_table(POINTS)):
        assert list(made) == [f"{one.drafter}, {one.label}" for one in POINTS]


def test_rows_are_named_like_the_points_of_the_figure_and_by_their_spec_where_two_would_share_a_name():
    own, bare = "eagle@relaxed(sources=('eagle',))", "eagle@relaxed"
    points = verification_tradeoff.rule_points(report(PLAIN, HEAD, decodes(own, 0.8), decodes(bare, 0.9)))
    assert verification_text.row_names(points) == {"eagle": "rejection", own: own, bare: bare}
    assert len(verification_text.speed_table(points)) == 3


def test_the_farthest_text_is_the_one_that_repeats_itself_most_and_else_the_least_alike():
    other = [one if one.question_id else decodes(SOFT, 1.0, token=9)[0] for one in decodes(SOFT, 1.0)]
    plain, own = verification_text.most_repetitive_pair(report(PLAIN, other), SOFT)
    assert (plain.method, plain.question_id, own.outcome.tokens) == ("ar", 0, (9,) * 4)
    longer = replace(other[3], outcome=replace(other[3].outcome, tokens=(7,) * 9))
    assert verification_text.most_repetitive_pair(report(PLAIN, [*other[:3], longer, other[4]]), SOFT)[1] == longer
    both = [replace(one[3], outcome=longer.outcome) for one in (PLAIN, other)]         # repeats itself undrafted, too
    found = verification_text.most_repetitive_pair(report([*PLAIN[:3], both[0], PLAIN[4]],
                                                          [*other[:3], both[1], other[4]]), SOFT)
    assert found[1].question_id == 0


def test_the_fastest_rule_comes_first_whatever_its_other_settings():
    slower_too = [decodes(SOFT, 0.8, nll=0.2), decodes(HARD, 1.4, nll=0.2), decodes("eagle@typical", 1.1, nll=0.2)]
    points = verification_tradeoff.rule_points(report(PLAIN, HEAD, *slower_too))
    assert [one.spec for one in verification_text.with_fewest_losses(points, ALL)] == [SOFT, "eagle@typical"]
