"""Costs and acceptances of the levels of a stack, on tables whose overlaps are known by hand."""

import json

import pytest

from specdec_lib.cost import hierarchy, levels
from specdec_lib.cost.curves import CostCurve
from specdec_lib.cost.hierarchy import LevelTerms
from specdec_lib.cost.levels import GivenText, LevelMeasurements, load_levels, mean_overlaps, measured_levels
from specdec_lib.models.llama.decoder import Transformer
from specdec_lib.models.table import Table
from specdec_lib.sampling import Sampling
from specdec_lib.scores import Categorical
from specdec_lib.types import Draft, Refusal
from tests.worlds import SHAPE, WARM

P = Table({(): (.5, .3, .2), (0,): (.1, .3, .6)})
Q = Table({(): (.2, .3, .5), (0,): (.6, .3, .1)})
TEXTS = [GivenText((1,), (0, 1, 2)), GivenText((2, 0), (2,))]


def test_the_overlap_is_the_mean_over_every_position_of_every_answer():
    # after 1, 1 and 2 the rows are those of (), twice those of (0,): .2 + .3 + .2 and .1 + .3 + .1
    alpha, positions = mean_overlaps((Q, P), TEXTS, WARM)
    assert positions == 4
    assert alpha[0][1] == alpha[1][0] == pytest.approx((.7 + .5 + .7 + .5) / 4)
    assert alpha[0][0] == alpha[1][1] == pytest.approx(1)


def test_greedy_overlap_is_how_often_both_choose_the_same_token():
    same = Table({(): (.4, .3, .3)})
    alpha, _ = mean_overlaps((same, P), TEXTS)
    assert alpha[0][1] == pytest.approx(.5), "P chooses 0 after 1 and 2, and 2 after 0"


def test_a_warmer_temperature_brings_the_models_together():
    cool, hot = (mean_overlaps((Q, P), TEXTS, Sampling(heat))[0][0][1] for heat in (.5, 3.0))
    assert cool < hot


def test_long_answers_are_read_in_several_forwards_with_the_rows_of_one():
    lm = Transformer.random(SHAPE, seed=2)
    answer = tuple(i * i % 3 for i in range(2 * levels.WIDE + 3))
    found = levels.answer_distributions(lm, GivenText((0, 2), answer), WARM)
    assert len(found) == len(answer)
    for place in (0, 1, levels.WIDE - 1, levels.WIDE, levels.WIDE + 1, len(answer) - 1):
        alone = lm.fresh()((0, 2) + answer[:place], Draft()).distribution(0, WARM)
        assert found[place].probs.tolist() == pytest.approx(alone.probs.tolist(), abs=1e-5)


def test_overlap_of_a_point_mass_and_of_restricted_vocabularies():
    import torch

    point = Categorical.point_mass(2)
    wide = Categorical(torch.tensor([0, 1, 2]), torch.tensor([.2, .3, .5]))
    small = Categorical(torch.tensor([2, 0]), torch.tensor([.9, .1]))
    assert levels.overlap(point, wide) == levels.overlap(wide, point) == pytest.approx(.5)
    assert levels.overlap(wide, small) == levels.overlap(small, wide) == pytest.approx(.6)
    assert levels.overlap(point, Categorical.point_mass(1)) == 0


def times(seconds: float, *terms: float) -> tuple[CostCurve, LevelTerms]:
    """A forward that takes so long a row, and terms."""
    return CostCurve((1, 4), (8,), ((seconds, 4 * seconds),)), LevelTerms(*terms)


def measured(*terms: float) -> LevelMeasurements:
    return measured_levels({"q": Q, "p": P}, {"q": times(1, *terms), "p": times(4, *terms)}, TEXTS, WARM)


def test_drafters_stand_in_the_order_of_what_a_step_takes_and_the_target_last():
    costs = {"dear": times(1, 7), "cheap": times(2), "target": times(3)}
    made = measured_levels({"dear": Q, "cheap": P, "target": P}, costs, TEXTS, WARM)
    assert made.names == ("cheap", "dear", "target")
    assert [cost.alone for cost in made.costs] == [2, 8, 3]
    assert made.alpha[0][2] == pytest.approx(1)
    assert made.temperature == WARM.temperature > 0


def test_measurements_predict_with_both_formulas_and_choose_by_the_programme(tmp_path):
    made = measured()
    alpha = made.alpha[0][1]
    assert made.simple(("q",), (2,)) == pytest.approx((2 * 1 + 12) / (1 + alpha + alpha ** 2))
    turn = made.renewal(("q",), (2,))
    assert turn.time / turn.tokens == pytest.approx(made.simple(("q",), (2,)))
    assert turn.tokens == pytest.approx(1 + alpha + alpha ** 2)
    assert made.best() == hierarchy.best_stack(made.curves, made.alpha)
    made.save(tmp_path / "levels.json")
    assert load_levels(tmp_path / "levels.json") == made


def test_terms_are_charged_kept_and_add_up(tmp_path):
    made = measured(.1, .2, .3, .04)
    mean = 1 + made.alpha[0][1] + made.alpha[0][1] ** 2
    assert made.simple(("q",), (2,)) == pytest.approx((.3 + 2 * 1.1 + 12.2) / mean + .04)
    parts = made.parts(("q",), (2,))
    assert parts == pytest.approx({"forwards": 14 / mean, "step": .2 / mean, "verification": .2 / mean,
                                   "start": .3 / mean, "prompt": .04})
    assert sum(parts.values()) == pytest.approx(made.simple(("q",), (2,)))
    assert made.best() == hierarchy.best_stack(made.costs, made.alpha) != hierarchy.best_stack(made.curves, made.alpha)
    made.save(tmp_path / "levels.json")
    assert load_levels(tmp_path / "levels.json") == made


def test_forwards_that_were_measured_without_terms_are_refused_with_the_command_that_measures_them(tmp_path):
    measured().save(tmp_path / "levels.json")
    old = json.loads((tmp_path / "levels.json").read_text())
    del old["terms"]
    (tmp_path / "levels.json").write_text(json.dumps(old))
    with pytest.raises(Refusal, match="forwards alone") as refused:
        load_levels(tmp_path / "levels.json")
    assert f"m('{tmp_path.as_posix()}')" in str(refused.value)


def test_what_is_no_measurement_is_refused(tmp_path):
    made = measured()
    with pytest.raises(Refusal, match="eagle was not measured"):
        made.simple(("eagle",), (2,))
    with pytest.raises(Refusal, match="p was not measured"):
        made.places(["p"])
    with pytest.raises(Refusal, match="one name"):
        LevelMeasurements(("a", "b"), made.curves, ((1.0,),), 3)
    with pytest.raises(Refusal, match="probabilities"):
        LevelMeasurements(made.names, made.curves, ((1.0, 1.2), (.2, 1.0)), 3)
    for terms in ((LevelTerms(),), (LevelTerms(), LevelTerms(-.1))):
        with pytest.raises(Refusal, match="zero seconds or more"):
            LevelMeasurements(made.names, made.curves, made.alpha, 3, terms=terms)
    with pytest.raises(Refusal, match="no answer"):
        mean_overlaps((P,), [GivenText((1,), ())])
    with pytest.raises(Refusal, match="at least one text"):
        measured_levels({"p": P}, {"p": times(1)}, [])
    with pytest.raises(Refusal, match="cannot be read"):
        load_levels(tmp_path / "none.json")
    for changed in ({"names": 5}, {"positions": float("inf")}, {"alpha": [[10 ** 400]]}, {"curves": []}):
        (tmp_path / "bad.json").write_text(json.dumps(made.as_dict() | changed))
        with pytest.raises(Refusal, match="measure it again|holds no measured levels"):
            load_levels(tmp_path / "bad.json")
