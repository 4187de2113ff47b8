"""The text world: which trained model it takes from a folder, and how that one fills."""

import pytest

from specdec_lib import cli
from specdec_lib.canvas import world_text
from specdec_lib.canvas.catalog import make_canvas_method
from specdec_lib.canvas.loop import finished
from specdec_lib.canvas.worlds import open_world
from specdec_lib.hub.load import load
from specdec_lib.types import Refusal
from tests.training.folder import answers_file, model_folder

HERE = ["--device", "cpu", "--dtype", "float32", "--threads", "1"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A tiny target, and the folders of its two diffusion models, made by the command."""
    folder = tmp_path_factory.mktemp("world")
    model = model_folder(folder / "tiny")
    data = answers_file(model, folder / "answers.jsonl")
    words = ["train", "diffusion-lm", "--target", str(model), "--data", str(data), "--minutes", "0.02", *HERE]
    assert cli.run(["train", "draft-lm", *words[2:], "--out", str(folder / "block")]) == 0
    assert cli.run([*words, "--out", str(folder / "block")]) == 0
    assert cli.run([*words, "--attention", "full", "--out", str(folder / "full")]) == 0
    return model, folder


@pytest.fixture
def tiny(trained, monkeypatch):
    """The world of the tiny target, on prompts that its tokenizer knows."""
    model, folder = trained
    monkeypatch.setattr(world_text, "load", lambda name, dtype, device: load(str(model), dtype, device))
    monkeypatch.setattr(world_text, "first_turns", lambda limit: [("1", "qa", "a k r"), ("2", "qa", "b l s")][:limit])
    return folder


@pytest.mark.parametrize(("shelf", "name", "block"), [("block", "diffusion-lm", 8), ("full", "diffusion-lm-full", 32)])
def test_a_folder_s_model_fills_and_the_bidirectional_one_has_the_whole_area_open(tiny, shelf, name, block):
    world = open_world("text", 2, folder=tiny / shelf)
    assert (world.about["checkpoint"], world.about["block"]) == (name, block)
    canvas = world.tasks[0].canvas
    done = finished(canvas, world.model, make_canvas_method("stepwise", world.model))
    filled = [place for turn in done.rounds for place in turn.positions]
    assert sorted(filled) == list(canvas.area)
    first = {place - canvas.area[0] for place in filled[:8]}
    assert (first == set(range(8))) == (block == 8)                    # a block is finished before the next is begun
    same = finished(canvas, world.model, make_canvas_method("ssd(rows=4)", world.model))
    assert same.canvas == done.canvas


def test_in_the_bidirectional_world_what_is_filled_last_changes_the_forecast_of_what_is_before_it(tiny):
    world = open_world("text", 1, folder=tiny / "full")
    canvas = world.tasks[0].canvas
    empty, filled = world.model((canvas, canvas.fill([canvas.area[-1]], [5])))
    assert float((empty.logp[0] - filled.logp[0]).abs().max()) > 1e-6


def test_a_folder_without_such_a_model_is_refused_with_the_command_that_makes_one(tiny, tmp_path):
    with pytest.raises(Refusal, match="holds no model of text canvases .*`specdec train diffusion-lm-full --out"):
        open_world("text", 1, folder=tmp_path)


def test_the_table_world_takes_no_checkpoints(tmp_path):
    with pytest.raises(Refusal, match="leave out --checkpoints"):
        open_world("table", 1, folder=tmp_path)
