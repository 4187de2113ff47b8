"""The table world's forecasts are the exact conditionals of its joint distribution."""

import itertools

import pytest

from specdec_lib.canvas.world_table import TableDiffusion, open_world
from tests.canvas.tables import every_canvas


def test_a_forecast_is_the_conditional_given_all_other_filled_positions_on_every_canvas():
    model = TableDiffusion.random(2, 3, seed=4)
    assert float(model.joint.sum()) == pytest.approx(1)
    for canvas in [*every_canvas(model, 3), every_canvas(model, 3).__next__().fill((0, 1, 2), (1, 0, 1))]:
        row = model((canvas,))[0]
        for position in range(3):
            weight = [0.0, 0.0]
            for text in itertools.product(range(2), repeat=3):
                if all(token in (model.mask, text[at]) or at == position for at, token in enumerate(canvas.tokens)):
                    weight[text[position]] += float(model.joint[text])
            assert row.logp[position].exp().tolist() == pytest.approx([each / sum(weight) for each in weight])


def test_answers_are_the_most_probable_texts_that_agree_with_what_is_given():
    world = open_world(30, 0)
    assert len({task.canvas.tokens for task in world.tasks}) == 30
    for task in world.tasks:
        texts = [text for text in itertools.product(range(3), repeat=6)
                 if all(token in (3, text[at]) for at, token in enumerate(task.canvas.tokens))]
        assert task.answer == max(texts, key=lambda text: float(world.model.joint[text]))
        assert task.canvas.masked
        assert world.solved(task, task.canvas.fill(task.canvas.area, task.answer))
