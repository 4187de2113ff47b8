"""A sweep in numbers that were put there: the best, the sensitive, the front, and what holds on other prompts."""

import json
from pathlib import Path

import pytest

from specdec_lib.analysis import sweep, sweep_measures, sweep_text
from specdec_lib.analysis.sweep import SweepRun
from specdec_lib.analysis.sweep_held_out import held_out_choices
from specdec_lib.intervals import bootstrap
from specdec_lib.types import Refusal

TAU, ACCEPTED, NLL = "tokens per forward", "acceptance rate", "NLL (nats per token)"
NOT_BEST = sweep_measures.NOT_BEST


def row(spec, question, tokens, forwards, parameters=(), seed=0, **more):
    return {"cell": f"{spec}{seed}", "mode": "counting", "spec": spec, "method": spec.partition("(")[0], "target": "t",
            "device": "cpu", "dtype": "float32", "temperature": 0.0, "max_new_tokens": 8, "seed": seed,
            "prompts": "p.jsonl", "question_id": str(question), "family": "qa", "tokens": tokens, "forwards": forwards,
            "drafted": 4, "accepted": 2, "nll": 1.0 * tokens, "not_best": 0, "score": None, "output": "x",
            **{f"parameter.{name}": value for name, value in dict(parameters).items()}, **more}


def run_of(rows):
    names = {name for one in rows for name in one}
    full = [{name: one.get(name) for name in names} for one in rows]
    return SweepRun({"sweep": {"mode": "counting"}}, tuple(full))


def factorial(prompts=12):
    """theta surely matters, least does not at all: tokens are 20 + 10 theta on every prompt, forwards vary with it."""
    return run_of([row(f"respec(theta={t}, least={x})", q, 20 + 10 * t, 10 + q % 3, {"theta": t, "least": x})
                   for t in (0, 1, 2) for x in (.1, .2) for q in range(prompts)])


def test_a_measure_is_a_ratio_of_totals_with_the_bootstrap_of_the_bench():
    found = factorial()
    label = "respec(theta=1, least=0.1)"
    pairs = [(30, 10 + q % 3) for q in range(12)]
    assert found.value(label, TAU) == 12 * 30 / sum(n for _, n in pairs)
    assert found.interval(label, TAU) == bootstrap([pairs], lambda t: t[:, 0] / t[:, 1])
    assert factorial(4).interval(label, TAU) is None


def test_seeds_of_a_setting_are_pooled_and_what_varies_is_in_its_label():
    found = run_of([row("a", q, 10, 5, seed=seed, target=target) for q in range(6) for seed in (0, 1)
                    for target in ("x", "y")])
    assert list(found.settings) == ["a, target x", "a, target y"]
    assert found.numbers(["a, target x"], TAU).tolist() == [[20, 10]] * 6


def test_only_prompts_that_all_settings_have_are_compared():
    found = run_of([row("a", q, 10, 5) for q in range(6)] + [row("b", q, 10, 4) for q in range(1, 7)])
    assert [question for _, question in found.questions] == ["1", "2", "3", "4", "5"]


def test_the_best_is_the_best_in_the_measures_own_direction():
    found = run_of([row("a", q, 10, 5, nll=5.0) for q in range(6)] + [row("b", q, 10, 4, nll=9.0) for q in range(6)])
    best = sweep.best_setting(found, TAU)
    assert (best.label, best.value, best.second, best.lead) == ("b", 2.5, "a", 1.25)
    assert best.lead_interval == [1.25, 1.25]      # every prompt says the same
    assert best.not_told_apart == ()
    assert sweep.best_setting(found, NLL).label == "a"
    assert sweep.best_setting(found, NLL).lead == pytest.approx(1.8)


def test_a_lead_below_the_factor_between_cells_of_equal_work_tells_nothing_apart():
    found = factorial()
    best = sweep.best_setting(found, TAU)
    others = len(found.settings) - 1
    assert len(best.not_told_apart) < others
    assert len(sweep.best_setting(found, TAU, clock=100.0).not_told_apart) == others
    said = sweep_text.best_sentence(sweep.best_setting(found, TAU, clock=100.0), TAU)
    assert f"is not told apart from {best.second}" in said
    assert "chosen on these prompts" in said


def test_a_lossy_setting_is_marked_and_named_after_the_best_lossless_one_with_what_it_costs():
    lossy = "eagle@consultant(eps=5.0)"
    found = run_of([row(spec, q, tokens, 10, not_best=wrong, nll=2.0 * tokens) for q in range(6)
                    for spec, tokens, wrong in (("ar", 10, 0), ("eagle", 30, 0), (lossy, 40, 10))])
    assert [line["setting"] for line in sweep_text.best_rows(found, TAU)] == [f"{lossy} (lossy)", "eagle", "ar"]
    said = sweep_text.best_sentences(found, TAU)
    assert said.startswith("eagle has the best tokens per forward: 3.00")
    assert f"Lossy settings may write another text: {lossy} has the best tokens per forward: 4.00" in said
    assert said.endswith("It has not best per 100 tokens: 25.00, NLL (nats per token): 2.00.")
    only = run_of([one for one in found.rows if one["spec"] == lossy])
    assert sweep_text.best_sentences(only, TAU).startswith("Every setting is lossy. ")
    strict = run_of([one for one in found.rows if one["spec"] != lossy])
    assert sweep_text.best_sentences(strict, TAU) == sweep_text.best_sentence(sweep.best_setting(strict, TAU), TAU)


def test_settings_that_write_the_same_are_not_told_apart():
    best = sweep.best_setting(factorial(), TAU)
    assert best.label == "respec(theta=2, least=0.1)"
    assert best.not_told_apart == ("respec(theta=2, least=0.2)",)
    one_sided = run_of([row("a", q, 10, 10) for q in range(12)]
                       + [row("b", q, 10, 10 + 2 * (q < 7) - 2 * (q > 9)) for q in range(12)])
    best = sweep.best_setting(one_sided, TAU)
    assert best.lead_interval[0] < 1 < best.lead_interval[1]
    assert best.not_told_apart == ("b",)


def test_a_parameter_that_matters_is_told_from_one_that_does_not():
    theta, least = sweep.sensitivities(factorial(), "respec", TAU)
    assert (theta.parameter, theta.best, theta.worst) == ("theta", 2, 0)
    assert theta.effect == pytest.approx(2.0)
    assert theta.interval == pytest.approx([2.0, 2.0])
    assert list(theta.values) == [0, 1, 2]
    assert (least.parameter, least.effect, least.interval) == ("least", 1.0, [1.0, 1.0])


def test_a_measure_of_0_has_no_factor_and_is_told_apart_by_its_difference():
    rows = [row(f"respec(theta={t})", q, 100, 10, {"theta": t}, not_best=15 * t) for t in (0, 1, 2) for q in range(12)]
    found, wrong = run_of(rows), "not best per 100 tokens"
    best = sweep.best_setting(found, wrong)
    assert (best.label, best.value, best.lead, best.not_told_apart) == ("respec(theta=0)", 0, None, ())
    assert "theta=0) is surely better than respec(theta=1), without a factor" in sweep_text.best_sentence(best, wrong)
    [theta] = sweep.sensitivities(found, "respec", wrong)
    assert (theta.best, theta.worst, theta.effect, theta.values) == (0, 2, None, {0: 0, 1: 15, 2: 30})
    assert sweep_text.sensitivity_sentence([theta], wrong) == "theta has no factor, since one of 0 and 2 is 0."
    same = sweep.best_setting(run_of([one | {"not_best": 0} for one in rows]), wrong)
    assert (same.lead, len(same.not_told_apart)) == (1, 2)
    once = run_of([row(spec, q, 10, 10, not_best=int(spec == "b" and q == 0)) for spec in "ab" for q in range(12)])
    assert sweep.best_setting(once, wrong).not_told_apart == ("b",)


def test_like_is_compared_with_like_where_the_grid_has_holes():
    rows = [one for one in factorial().rows if one["spec"] != "respec(theta=2, least=0.2)"]
    theta, least = sweep.sensitivities(run_of(rows), "respec", TAU)
    assert (theta.parameter, theta.effect) == ("theta", pytest.approx(2.0))
    assert (least.parameter, least.effect) == ("least", 1.0)        # without theta 2, which least 0.1 alone has


def test_a_plane_holds_what_was_run_and_nothing_where_nothing_was():
    rows = [one for one in factorial().rows if one["spec"] != "respec(theta=2, least=0.2)"]
    xs, ys, values = sweep.parameter_plane(run_of(rows), "respec", "theta", "least", TAU)
    assert (xs, ys) == ([0, 1, 2], [.1, .2])
    assert values[0] == pytest.approx([20 / 11, 30 / 11, 40 / 11])
    assert values[1][:2] == pytest.approx([20 / 11, 30 / 11])
    assert values[1][2] is None


def test_the_plane_shown_is_that_of_the_two_largest_effects():
    names, xs, _, values = sweep.largest_plane(factorial(), "respec", TAU)
    assert (names, xs) == (("theta", "least"), [0, 1, 2])
    assert values[0] == pytest.approx(values[1])
    assert sweep.largest_plane(run_of([row("a", q, 10, 5) for q in range(6)]), "a", TAU) is None


def test_the_plane_of_another_measure_keeps_the_parameters_of_the_first():
    found = run_of([row(f"respec(theta={t}, least={x})", q, 20 + 10 * t, 10, {"theta": t, "least": x}, drafted=40 * x)
                    for t in (0, 1) for x in (1, 2, 4) for q in range(6)])
    assert sweep.largest_plane(found, "respec", sweep_measures.NODES)[0] == ("least", "theta")
    names, _, _, values = sweep.largest_plane(found, "respec", TAU, sweep_measures.NODES)
    assert (names, values) == (("theta", "least"), [[4, 4], [8, 8], [16, 16]])
    assert sweep.largest_plane(found, "respec", TAU, sweep_measures.SPEED) is None


def test_a_plane_within_the_noise_of_the_clock_or_constant_says_so():
    def title(values, **more):
        return sweep_text.plane_title(("theta", "least"), values, sweep_measures.SPEED, **more)

    assert title([[2.0, 2.1], [None, 2.05]], clock=1.13) == (
        "the speed: best 2.10, but the plane spans a factor of 1.05, within the 1.13 of equal work")
    assert title([[2.0, 2.1]], clock=1.13, more_is_better=False).startswith("the speed: best 2.00")
    assert title([[1.0, 2.0]], clock=1.13) is None
    assert title([[0.0, 0.0]]) == (
        "times as fast as plain decoding is 0.00 everywhere: theta and least do not change it")


def test_a_parameter_that_a_setting_does_not_name_has_the_default_that_ran():
    found = run_of([row(f"sam(threshold={n})", 0, 10, 5, {"threshold": n}) for n in (3, 5)] + [row("sam", 0, 10, 5)])
    assert sweep_text.completed(found, "sam", found.settings) == {"threshold": [3, 5, 1]}
    other = run_of([row(f"mine(x={n})", 0, 10, 5, {"x": n}) for n in (3, 5)] + [row("mine", 0, 10, 5)])
    assert sweep_text.completed(other, "mine", other.settings) == {"x": [3, 5, None]}


def test_the_front_is_what_none_beats_in_both_measures():
    found = run_of([row(spec, q, tokens, 10, nll=nll * tokens) for q in range(6) for spec, tokens, nll in
                    (("fast", 30, 2.0), ("middle", 20, 1.5), ("slow", 10, 1.0), ("beaten", 19, 1.6))])
    assert sweep.pareto_front(found, TAU, NLL) == ["fast", "middle", "slow"]
    said = sweep_text.front_sentence(found, ["fast", "middle", "slow"], TAU, NLL)
    assert said == (f"3 of 4 settings are beaten by no other in both measures ({TAU}: higher is better; {NLL}: lower is"
                    " better).")


def test_a_choice_that_is_right_everywhere_is_right_on_held_out_prompts():
    found = held_out_choices(factorial(), TAU, draws=50)
    assert (found.best_again, found.loss) == (1.0, 0.0)
    assert found.by_chance == pytest.approx(2 / 6)                  # two settings are best everywhere
    assert sum(found.chosen.values()) == found.draws == 50
    most = run_of([row(f"s(k={k})", q, 10 + ((q < 8) == k), 10) for k in (0, 1) for q in range(10)])
    assert held_out_choices(most, TAU, draws=200).best_again == 1.0       # s(k=1) is best on any half, not on any third


def test_a_choice_of_noise_is_seldom_right_on_held_out_prompts():
    rows = [row(f"s(k={k})", q, 10, 8 if q % 6 == k else 10) for k in range(6) for q in range(12)]
    found = held_out_choices(run_of(rows), TAU, draws=200)
    assert found.best_again < .5                   # what is good on one half has had its good prompts there
    assert found.loss > 0
    assert held_out_choices(run_of(rows), TAU, draws=200) == found


def test_a_choice_whose_best_measure_is_0_gives_up_no_share_of_it():
    rows = [row(spec, q, 10, 5, not_best=lost) for spec, lost in (("strict", 0), ("loose", 1)) for q in range(12)]
    found = held_out_choices(run_of(rows), NOT_BEST, draws=50)
    assert found is not None
    assert (found.best_again, found.loss) == (1.0, None)
    said = sweep_text.held_out_sentence(found, NOT_BEST)
    assert f"and what it gives up is no share of the best {NOT_BEST}, which is 0." in said


def test_the_answer_counts_parameters_by_method_and_names_the_best_setting():
    found = factorial()
    assert sweep_text.parameters_sentence(found, TAU) == (
        f"Parameters that surely change {TAU}: 1 of 2 of respec (theta).")
    assert "the factor 9.00 between cells of equal work: none of 2 of respec." in sweep_text.parameters_sentence(
        found, TAU, 9.0)
    best = sweep.best_setting(found, TAU)
    said = sweep_text.chosen_sentence(found, best, TAU)
    assert said.startswith("Best on all 12 prompts: respec(theta=2, least=0.1), ")
    assert said.endswith("; 1 of 5 others are not told apart from it.")
    assert sweep_text.chosen_sentence(found, None, TAU) == f"No setting has {TAU}."
    alone = run_of([row("a", q, 10, 5) for q in range(12)])
    assert sweep_text.parameters_sentence(alone, TAU) == "No parameter has several values here."


def test_too_few_prompts_or_settings_have_nothing_to_hold_out():
    assert held_out_choices(factorial(9), TAU) is None
    assert held_out_choices(run_of([row("a", q, 10, 5) for q in range(12)]), TAU) is None
    assert "needs ten prompts" in sweep_text.held_out_sentence(None, TAU)


def test_times_are_a_measure_only_where_they_were_taken():
    assert "times as fast as plain decoding" not in factorial().measures
    timed = run_of([row("a", q, 20, 10, seconds=2.0, plain_seconds=3.0, plain_tokens=10) for q in range(6)])
    assert timed.value("a", "times as fast as plain decoding") == 3.0
    assert "reference score" not in timed.measures
    scored = run_of([row("a", q, 20, 10, score=.5 if q else None) for q in range(6)])
    assert scored.value("a", "reference score") == .5


def test_sentences_follow_the_numbers():
    found = factorial()
    said = sweep_text.sensitivity_sentence(sweep.sensitivities(found, "respec", TAU), TAU)
    assert said.startswith("1 of 2 parameters surely changes tokens per forward. ")
    effects = sweep.sensitivities(found, "respec", TAU)
    said = sweep_text.sensitivity_sentence(effects, TAU, clock=effects[0].effect + .01)
    assert said.startswith("none of 2 parameters surely changes tokens per forward by more than equal work differs "
                           f"(factor {effects[0].effect + .01:.2f}). ")
    assert said.startswith(sweep_text.counted(effects, TAU, effects[0].effect + .01))
    assert "The intervals of 1 more lie above 1, and their effects below the factor" in said
    said = sweep_text.best_sentence(sweep.best_setting(found, TAU), TAU)
    assert "respec(theta=2, least=0.1)" in said
    assert "not told apart from: 1." in said
    assert "nothing here is a speed" in sweep_text.headline(found)
    assert sweep_text.best_sentence(None, TAU).startswith("No setting")
    assert sweep_text.sensitivity_sentence([], TAU).startswith("No parameter")


def test_a_folder_without_a_sweep_is_refused_and_the_shipped_one_is_read(tmp_path):
    with pytest.raises(Refusal, match="holds no finished sweep"):
        sweep.load_sweep(tmp_path)
    (tmp_path / "summary.json").write_text(json.dumps({"sweep": {"cells": [1]}}))
    with pytest.raises(Refusal, match="holds no finished sweep"):
        sweep.load_sweep(tmp_path)
    shipped = sweep.load_sweep(Path(__file__).parents[2] / "data" / "results" / "sweep")
    assert len(shipped.settings) == len(shipped.summary["sweep"]["cells"])
    assert len(shipped.questions) >= 10


def test_a_timed_sweep_is_compared_by_speed_and_a_counted_one_by_tokens_per_forward():
    timed = [row("a", q, 10, 5, seconds=0.5, plain_seconds=1.0, plain_tokens=10) for q in range(6)]
    assert run_of(timed).first_measure == "times as fast as plain decoding"
    assert factorial().first_measure == TAU


def test_values_are_listed_as_a_user_writes_them():
    assert sweep_text.listed([1.0, 0.15, 3, "corrected"]) == "1, 0.15, 3, corrected"
