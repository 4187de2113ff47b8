"""Exit by draft length: the price of a round by hand and by counting rows, and a measured map from a made-up run."""

from pathlib import Path

import pytest

from specdec_lib.analysis import bench_report, early_exit_grid
from specdec_lib.analysis.early_exit_grid import (
    ExitCosts,
    ExitGrid,
    cell_specs,
    measured_grid,
    predicted_grid,
    round_cost,
    tokens_per_round,
)
from specdec_lib.bench import summary
from specdec_lib.bench.plan import Plan
from specdec_lib.bench.results import Decode, Outcome
from specdec_lib.bench.run_folder import RunFolder
from specdec_lib.checkpoints import card
from specdec_lib.cost import curves
from specdec_lib.cost.flops import MatrixUse, layer_matrices, total_work
from specdec_lib.measure import Row
from specdec_lib.models.llama.config import LlamaConfig
from specdec_lib.specs import split_specs
from specdec_lib.types import Refusal

SHIPPED = Path(__file__).parents[2] / "data"
CURVE = curves.CostCurve((1, 2, 3), (8,), ((1.0, 1.1, 1.4),))


def test_a_round_pays_below_the_exit_for_each_step_and_once_more_above_it_for_all_rows():
    # two steps of .2 + .05; the last token goes through .2 alone, the .8 above it are as wide as three rows: 1.4
    assert round_cost(2, .2, .05, 1.4) == pytest.approx(.5 + .2 + .8 * 1.4)
    assert round_cost(0, .2, .05, 1.0) == 1.0, "nothing drafted is a plain forward"


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_where_every_row_costs_the_same_no_layer_is_paid_twice(depth):
    assert round_cost(depth, .3, 0.0, depth + 1) == pytest.approx(depth + 1), "k + 1 rows through all layers, once"


def test_where_rows_come_free_an_exit_is_paid_once_for_each_drafted_token():
    assert round_cost(4, .3, .1, 1.0) == pytest.approx(1 + 4 * .4)


def test_tokens_are_one_and_the_chances_of_reaching_each_depth():
    assert tokens_per_round((.5, .4, .5), 3) == pytest.approx(1 + .5 + .2 + .1)
    assert tokens_per_round((.5, .4), 0) == 1
    assert tokens_per_round((.5, None, .5), 3) == 1.5, "what was never seen keeps nothing"


def test_the_predicted_map_is_tokens_over_costs_in_every_cell():
    exits = {10: ExitCosts(.4, .1, (.8, .5)), 5: ExitCosts(.2, .05, (.5, .4))}
    found = predicted_grid(exits, CURVE, (1, 2))
    assert (found.layers, found.depths) == ((5, 10), (1, 2))
    assert found.speeds[0] == pytest.approx((1.5 / (.25 + .2 + .8 * 1.1), 1.7 / (.5 + .2 + .8 * 1.4)))
    assert found.speeds[1] == pytest.approx((1.8 / (.5 + .4 + .6 * 1.1), 2.2 / (1.0 + .4 + .6 * 1.4)))
    assert found.best == (10, 1, found.speeds[1][0])


def test_the_best_cell_of_a_tie_is_the_lower_exit_and_then_the_shorter_draft():
    assert ExitGrid((5, 10), (1, 2), ((None, 1.2), (1.2, 1.2))).best == (5, 2, 1.2)
    assert ExitGrid((5,), (1, 2), ((1.2, 1.2),)).best == (5, 1, 1.2)
    with pytest.raises(Refusal, match="no cell"):
        assert ExitGrid((5,), (1,), ((None,),)).best


@pytest.mark.parametrize("wrong", [(1.2, 0, ()), (.5, -1, ()), (.5, 0, (1.5,))], ids=str)
def test_an_impossible_exit_is_refused(wrong):
    with pytest.raises(Refusal, match="an exit lies"):
        ExitCosts(*wrong)
    assert ExitCosts(.5, 0, (0.0, None)).rates == (0.0, None)
    with pytest.raises(Refusal, match="zero tokens"):
        round_cost(-1, .5, 0, 1)


@pytest.mark.parametrize("layer", early_exit_grid.LAYERS)
def test_the_price_is_within_a_tenth_of_what_the_shipped_card_measured(layer):
    kept = card.read_card(SHIPPED / "checkpoints", "early-exit")["break_even"]
    curve = curves.load_curve(SHIPPED / "cost" / "smollm2-135m-cpu2-bf16.json")
    shape = LlamaConfig(layers=30, hidden=576, heads=9, kv_heads=3, head_dim=64, mlp=1536, vocab=49152, context=8192)
    plain = total_work([*layer_matrices(shape, 30, 1, 1, kept["context"]), MatrixUse(shape.vocab * shape.hidden, 1, 1)])
    below = total_work(layer_matrices(shape, layer, 1, 1, kept["context"])).over(plain).read
    k, of = kept["depth"], kept[f"exit {layer}"]
    step = of["expected"]["by weights read"]["draft"] / k
    priced = round_cost(k, below, step - below, curve(k + 1) / curve(1))
    assert priced == pytest.approx(of["measured"]["draft"] + of["measured"]["verify"], rel=.1)


def decodes(method, accepted, seconds, drafted):
    rows = tuple(Row("d" * bool(drafted), drafted, kept, min(kept + 1, drafted), 1 + kept, drafted, drafted + 1, 0.0,
                     0.0, seconds, 0.0, .1, (7,) * (1 + kept), ("d",) * kept + ("",), (2.0,) * (1 + kept))
                 for kept in accepted)
    said = tuple(token for row in rows for token in row.tokens)
    done = Outcome(said, 1.0, sum(row.seconds for row in rows), len(said), len(rows), rows)
    return [Decode(question, "qa", method, 0, 0, False, 10, done, "a", ("a",) * len(said)) for question in range(5)]


def report(*groups):
    flat = tuple(one for group in groups for one in group)
    about = {"target": {"name": "tiny", "device": "cpu", "dtype": "float32"}, "prompts": {"count": 5},
             "settings": {"cost_curve": None, "temperature": 0.0}, "peers": {},
             "methods": summary.method_summaries(flat, dict.fromkeys((one.method for one in flat), True), None)}
    return bench_report.Report(about, flat)


def spec(layer, depth):
    return f"early-exit(layer={layer},depth={depth})"


PLAIN = decodes("ar", [0] * 6, 1.0, 0)
RUN = report(PLAIN, decodes(spec(10, 1), [1, 1, 1], 1.6, 1), decodes(spec(5, 1), [1, 1, 1], 1.25, 1),
             decodes(spec(5, 2), [2, 1, 0], 1.5, 2), decodes("early-exit", [1, 1, 1], .1, 3))


def test_a_run_is_read_cell_by_cell_and_what_it_lacks_is_a_hole():
    found = measured_grid(RUN)
    assert (found.layers, found.depths) == ((5, 10), (1, 2))
    assert found.best == (5, 1, pytest.approx(1.6))
    assert found.speeds[0] == pytest.approx((1.6, 6 / 4.5))
    assert found.speeds[1] == (pytest.approx(1.25), None)
    assert found.spans[0][0] == pytest.approx([1.6, 1.6])
    assert found.spans[1][1] is None


def test_only_specs_that_say_layer_and_depth_and_nothing_else_are_cells():
    assert cell_specs(["ar", "early-exit", spec(5, 3), spec(5, 3) + "@svip", "early-exit(depth=2)",
                       "eagle(depth=1)", "sam (warm)"]) == {
        (5, 3): spec(5, 3)}
    with pytest.raises(Refusal, match="layer=5,depth=1"):
        measured_grid(report(PLAIN))


def test_acceptance_by_depth_comes_from_the_longest_drafts_of_an_exit():
    assert early_exit_grid.acceptance_by_depth(RUN) == {5: pytest.approx([2 / 3, 1 / 2]), 10: [1.0]}


def test_the_best_cell_is_held_against_the_next_by_their_own_ratio():
    said = early_exit_grid.grid_sentence(RUN)
    assert said.startswith(f"Measured, {spec(5, 1)} is 1.60 times (1.60 to 1.60) as fast as plain decoding")
    assert f"1.20 times (1.20 to 1.20) as fast as {spec(5, 2)}, the next: so faster." in said
    alone = early_exit_grid.grid_sentence(report(PLAIN[:4], decodes(spec(5, 1), [1, 1, 1], 1.25, 1)[:4]))
    assert alone == f"Measured, {spec(5, 1)} is 1.60 times as fast as plain decoding."
    tie = report(PLAIN, *(decodes(spec(layer, 1), [1, 1, 1], 1.25, 1) for layer in (5, 10)))
    assert early_exit_grid.grid_sentence(tie).endswith("not told apart.")


def test_a_folder_with_a_run_is_read_and_a_missing_one_names_the_command(tmp_path):
    RunFolder(tmp_path / "run", Plan(("ar", spec(5, 1)))).finish(list(RUN.decodes), RUN.summary)
    found, said = early_exit_grid.read_grid_run(tmp_path / "run")
    assert measured_grid(found).best[:2] == (5, 1)
    assert said == early_exit_grid.grid_sentence(RUN)
    none, said = early_exit_grid.read_grid_run(tmp_path / "nowhere")
    assert none is None
    assert "nowhere" in said
    assert early_exit_grid.COMMAND in said


def test_what_exits_predict_is_said_apart_from_what_a_run_measured():
    first = ("On the card's held-out prompts the target accepts of first drafted tokens 34% after layer 5, "
             "0% after layer 10.")
    assert early_exit_grid.exit_findings({5: (0.34, 0.4), 10: (None,)}, None) == [first]
    mixed = report(PLAIN, decodes(spec(5, 1), [1, 1, 1], 1.6, 1), decodes(spec(10, 1), [1, 1, 1], 3.0, 1))
    for run, faster, slower in ((RUN, "all 3", "none of 3"), (mixed, "1 of 2", "1 of 2")):
        layer, depth, speed = measured_grid(run).best
        told = f"{speed:.2f} times ({speed:.2f} to {speed:.2f})"
        assert early_exit_grid.exit_findings({5: (0.34,), 10: (0.0,)}, run) == [
            first, f"Measured, {faster} settings of exit and draft length are faster than plain decoding by their 95 % "
                   f"interval, {slower} slower.",
            f"The fastest, {depth} token from layer {layer}, is {told} as fast as plain decoding."]


def test_the_command_sweeps_every_shipped_exit_at_every_depth():
    specs = split_specs(early_exit_grid.METHODS)
    assert specs[0] == "ar"
    assert list(cell_specs(specs)) == [(layer, k) for layer in (5, 10, 15) for k in (1, 2, 3, 4, 5)]
