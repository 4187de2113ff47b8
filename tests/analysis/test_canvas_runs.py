"""A canvas run in frames, in rules side by side, and in sentences whose direction comes from the numbers."""

from dataclasses import replace

import pytest

from specdec_lib.analysis import canvas_runs
from specdec_lib.bench.canvas_results import CanvasDecode, CanvasRun
from specdec_lib.bench.canvas_summary import method_entries
from specdec_lib.canvas.outcome import Corrections
from specdec_lib.canvas.types import Canvas, CanvasRound, CanvasSession, CanvasTask
from specdec_lib.types import Refusal

CANVAS = Canvas((7, 9, 9, 9), 9, (0, 1, 2, 3))
ROUNDS = (CanvasRound((1, 2), (1, 2), (.5, .6), rows=3, drafted=2), CanvasRound((3,), (3,), (.7,)),
          CanvasRound((1, 2), (1, 4), (.8, .9), hidden=(1, 2, 3)))
SESSION = CanvasSession(CANVAS.fill((1, 2, 3), (1, 4, 3)), CANVAS, ROUNDS)


def run(**solved) -> CanvasRun:
    """A run of tasks of which each method solved the given ones of eight."""
    decodes = tuple(CanvasDecode(str(task), spec.replace("_", "(forwards=") + ")", "all", 3, 4, 4, 0, .1,
                                 task in right, rounds=ROUNDS if task == 0 else ())
                    for spec, right in solved.items() for task in range(8))
    row_cost = {"1": 1.0, "4": 2.0}
    return CanvasRun({"methods": method_entries(decodes), "row_cost": row_cost}, decodes,
                     {"0": CanvasTask("0", CANVAS)})


def test_a_frame_says_what_the_last_of_its_rounds_did_to_each_position():
    assert canvas_runs.frame(SESSION, 0) == (("7", "", "", ""), (None,) * 4, ("given", "", "", ""))
    assert canvas_runs.frame(SESSION, 1).roles == ("given", "new", "new", "")
    frame = canvas_runs.frame(SESSION, 3, lambda token: f"<{token}>")
    assert frame == (("<7>", "<1>", "<4>", "<3>"), (None, .8, .9, .7), ("given", "kept", "revised", "hidden"))


def test_acceptance_counts_drafting_rounds_alone():
    assert canvas_runs.accepted_at_least(run(parallel_4=()), "parallel(forwards=4)") == [1.0, 1.0]
    later = replace(ROUNDS[1], drafted=1)
    decode = replace(run(parallel_4=()).decodes[0], rounds=(*ROUNDS, later))
    both = CanvasRun({}, (decode,), {})
    assert canvas_runs.accepted_at_least(both, decode.method) == [1.0, .5]
    assert canvas_runs.accepted_at_least(CanvasRun({}, (), {}), "ssd") == []


def test_methods_are_compared_at_the_forwards_that_both_have():
    found = run(parallel_4=(0, 1), tolerator_4=range(8), tolerator_8=range(8), parallel_16=range(8), tolerator_16=(0,))
    lines = canvas_runs.by_forwards(found)
    assert {kind: sorted(points) for kind, points in lines.items()} == {"parallel": [4, 16], "tolerator": [4, 8, 16]}
    few, many = canvas_runs.matched_gains(found, "tolerator")
    assert (few.forwards, few.base, few.other, few.difference, few.verdict) == (4, .25, 1.0, .75, "more solved")
    assert (many.difference, many.verdict) == (-.875, "fewer solved")
    assert "tolerator solves 1.00 against 0.25, a difference of +0.750" in canvas_runs.gain_sentence("tolerator", few)
    assert canvas_runs.gain_sentence("tolerator", many).endswith("fewer solved")
    unknown = {**found.summary["methods"], "parallel(forwards=4)": {"solved": None}}
    found = replace(found, summary={**found.summary, "methods": unknown})
    assert canvas_runs.matched_gains(found, "tolerator") == [many]


def test_budgets_are_those_of_one_kind_where_it_stands_beside_filling():
    found = run(parallel_4=(0,), tolerator_4=(0,), tolerator_8=(0,), parallel_16=(0,))
    plain = {one.replace("parallel(forwards=16)", "stepwise"): found.summary["methods"][one] for one in found.methods}
    found = replace(found, summary={**found.summary, "methods": plain})
    assert canvas_runs.budgets_beside_filling(found, "tolerator") == [4, 8]
    with pytest.raises(Refusal, match=r"no vote\(forwards=F\) beside parallel"):
        canvas_runs.budgets_beside_filling(found, "vote")


def test_a_kind_is_the_spec_without_its_budget():
    assert canvas_runs.kind_of("vote(forwards=8, runs=2)") == canvas_runs.kind_of("vote(runs=2)") == "vote(runs=2)"
    assert canvas_runs.kind_of("tolerator(forwards=8)") == "tolerator"


def test_corrections_are_told_with_their_net():
    decodes = tuple(CanvasDecode(str(task), "tolerator(forwards=4)", "all", 3, 4, 4, 0, .1, True,
                                 corrections=Corrections(to_right=task, to_wrong=2)) for task in range(3))
    found = CanvasRun({"methods": method_entries(decodes)}, decodes, {})
    assert canvas_runs.correction_rows(found, "tolerator") == {
        "4 forwards": {"wrong to right": 3, "right to wrong": 6, "wrong to wrong": 0, "net": -3}}


def test_corrections_stand_in_the_order_of_their_budgets_whatever_the_runs():
    decodes = tuple(CanvasDecode("0", f"tolerator(forwards={n})", "all", 3, n, n, 0, .1, True,
                                 corrections=Corrections(to_right=n)) for n in (32, 4, 8))
    rows = canvas_runs.correction_rows(CanvasRun({"methods": method_entries(decodes)}, decodes, {}), "tolerator")
    assert list(rows) == ["4 forwards", "8 forwards", "32 forwards"]
    assert "rises, from 4 to 32" in canvas_runs.net_sentence(rows)


def test_net_corrections_have_their_ends_and_are_no_gain_below_zero():
    rows = {f"{n} forwards": {"net": net} for n, net in ((4, -47), (8, -6), (16, 0))}
    assert canvas_runs.net_sentence(rows) == (
        "With more forwards the net number of corrections rises, from -47 to 0: at no number of forwards are more "
        "tokens set right than spoiled")
    assert canvas_runs.net_sentence(rows | {"32 forwards": {"net": 2}}).endswith(
        "from -47 to 2: more tokens are set right than spoiled at 32 forwards")


@pytest.mark.parametrize(("same", "at_shape", "said"), [
    (True, None, "8 of 8 canvases are identical to stepwise decoding's"),
    (False, True, "0 of 8 canvases are identical to stepwise decoding's; of the other 8, 8 are identical when"),
    (False, False, "of the other 8, 0 are identical")])
def test_identity_is_told_with_what_rounding_explains(same, at_shape, said):
    plain = [CanvasDecode(str(task), "stepwise", "all", 3, 4, 4, 0, .4) for task in range(8)]
    own = [replace(one, method="ssd(rows=4)", forwards=2, seconds=.1, identical=same, at_shape=at_shape)
           for one in plain]
    found = CanvasRun({"methods": method_entries([*plain, *own]), "row_cost": {"4": 2.0}}, (*plain, *own), {})
    assert said in canvas_runs.identity_sentence(found)
    told = canvas_runs.pays(found, "ssd(rows=4)")
    assert told["predicted speed"] == pytest.approx(1.5 / 2)
    assert told["measured speed"] == pytest.approx(4)
    assert told["T(full batch) / T(1 row)"] == 2.0
    assert told["verdict"] == "faster"
    assert canvas_runs.speed_sentence(found, "ssd(rows=4)").startswith("ssd(rows=4) is surely faster than stepwise")


@pytest.mark.parametrize(("interval", "word"), [
    ((1.01, 1.09), "too close to 1 for this run"), ((.96, .99), "too close to 1 for this run"), ((1.06, 1.2), "faster"),
    ((.7, .94), "slower"), ((.9, 1.2), "not told apart"), (None, "no interval: fewer than five prompts")])
def test_a_speed_near_1_is_no_verdict_of_a_run_that_ran_its_methods_one_by_one(interval, word):
    assert canvas_runs.speed_verdict(interval) == word
    found = CanvasRun({"methods": {"ssd": {"times_as_fast": 1.04, "times_as_fast_ci": interval}}}, (), {})
    said = canvas_runs.speed_sentence(found, "ssd")
    assert "1.04 times" in said
    assert ("surely" in said) == (word in ("faster", "slower"))
    assert said.endswith("for this run") == word.startswith("too close")


@pytest.mark.parametrize(("method", "rows"), [("ssd", "4"), ("ssd(rows=2)", "2"), ("stepwise", "1")])
def test_a_full_batch_has_the_rows_of_the_method_or_its_default(method, rows):
    decodes = tuple(CanvasDecode("0", each, "all", 3, 4, 4, 0, .1) for each in {"stepwise": 0, method: 0})
    found = CanvasRun({"methods": method_entries(decodes), "row_cost": {"1": 1.0, "2": 1.5, "4": 2.0}}, decodes, {})
    assert canvas_runs.pays(found, method)["T(full batch) / T(1 row)"] == found.summary["row_cost"][rows]


def test_the_task_with_most_corrections_is_a_solved_one_if_there_is_any():
    first = run(tolerator_4={5})
    mended = {3: Corrections(9, 0), 5: Corrections(2, 1), 6: Corrections(4, 0)}
    own = CanvasRun(first.summary, tuple(replace(one, corrections=mended.get(int(one.task), Corrections()))
                                         for one in first.decodes), first.tasks)
    assert canvas_runs.most_corrected(own, "tolerator(forwards=4)") == "5"
    assert canvas_runs.most_corrected(own, "tolerator(forwards=4)", {"3", "6"}) == "3"
    assert canvas_runs.most_corrected(first, "tolerator(forwards=4)") == "0"
    with pytest.raises(Refusal, match="no decode by vote"):
        canvas_runs.most_corrected(own, "vote(forwards=4)")


def test_the_quality_of_text_is_the_target_s_and_a_run_without_it_is_refused():
    made = run(parallel_4=(0,), tolerator_8=())
    told = tuple(replace(one, quality={"target_nll": 2.0 + int(one.task), "distinct_2": .5}, text=f"text {one.task}")
                 for one in made.decodes)
    texts = CanvasRun({**made.summary, "methods": method_entries(told)}, told, made.tasks)
    rows = canvas_runs.quality_rows(texts)
    assert list(rows) == ["parallel(forwards=4) (lossy)", "tolerator(forwards=8) (lossy)"]
    assert rows["parallel(forwards=4) (lossy)"]["nats per token"] == pytest.approx(5.5)
    assert rows["parallel(forwards=4) (lossy)"]["distinct pairs"] == pytest.approx(.5)
    assert rows["tolerator(forwards=8) (lossy)"]["forwards"] == 4
    assert canvas_runs.examples(texts, "3") == {method: {"answer": "text 3"} for method in texts.methods}
    with pytest.raises(Refusal, match="specdec canvas --world text"):
        canvas_runs.quality_rows(made)


def orders(*nats) -> CanvasRun:
    """A run of texts in both orders, on which a random one costs the target so many nats more, task by task."""
    made = [CanvasDecode(str(task), method, "all", 3, 3, 3, 0, .1, quality={"target_nll": 5 + task + more})
            for task, one in enumerate(nats) for method, more in (("stepwise", 0), ("stepwise(order='random')", one))]
    return CanvasRun({}, tuple(made), {})


@pytest.mark.parametrize(("nats", "said"), [
    ((-.5, -.4, -.6, -.5, -.5), "fewer"), ((.5, .4, .6, .5, .5), "more"), ((-.5, .5, -.4, .4, 0), "not told apart")])
def test_what_a_random_order_changes_is_paired_by_task_and_its_direction_is_the_interval_s(nats, said):
    found = canvas_runs.order_change(orders(*nats), "target_nll")
    assert (found.confident, found.random) == pytest.approx((7, 7 + sum(nats) / 5))
    assert found.sentence("nats").startswith(f"A random order against the most confident first: {found.random:.2f} "
                                             f"against 7.00 nats, a difference of {sum(nats) / 5:+.3f}")
    assert found.sentence("nats").endswith(f": {said}")


def test_orders_are_compared_on_tasks_that_both_have():
    assert canvas_runs.order_change(orders(), "target_nll") is None
    assert canvas_runs.order_change(orders(1, 2), "distinct_2") is None
    found = orders(1, 2, 3)
    assert canvas_runs.order_change(replace(found, decodes=found.decodes[:-1]), "target_nll")[:2] == (5.5, 7)


@pytest.mark.parametrize(("nats", "word"), [((.5, .4, .6, .5, .5), "told apart"),
                                            ((-.5, 1.5, -.4, .6, .1), "not told apart"),
                                            ((1, 2), "no interval: fewer than five prompts")])
def test_the_best_and_the_worst_nats_are_told_apart_by_their_pairs_alone(nats, word):
    made = orders(*nats).decodes
    found = CanvasRun({"methods": method_entries(made)}, made, {})
    said, plain, more = canvas_runs.nats_sentence(found), 5 + (len(nats) - 1) / 2, sum(nats) / len(nats)
    assert said.startswith(f"Its answers cost the target {plain:.2f} nats per token with stepwise and "
                           f"{plain + more:.2f} with stepwise(order='random'), a difference of {more:+.3f}")
    assert said.endswith(f": {word}")


def test_repeated_pairs_are_those_that_stood_before():
    assert canvas_runs.repeated_share((1, 2, 1, 2, 1)) == .5
    assert canvas_runs.repeated_share((1, 2, 3)) == 0
    assert canvas_runs.repeated_share((1,)) is None
