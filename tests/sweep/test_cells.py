"""Cells: a name is a digest of all that decides the result, and of nothing else."""

import json
import shutil

import pytest

from specdec_lib.bench.prompts import Prompt
from specdec_lib.sweep.cells import cells_of, first_turns, prompt_data
from specdec_lib.sweep.dataset import kind_of
from specdec_lib.sweep.grid import read_grid
from specdec_lib.types import Refusal
from tests.bench.test_options import put_card
from tests.sweep.worlds import PROMPTS, make_world, write_grid


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"))


def cells(world, **changes):
    return cells_of(read_grid(write_grid(world, **changes)))


def names(world, **changes):
    return [cell.name for cell in cells(world, **changes)]


def test_a_grid_is_the_product_of_its_axes(world):
    found = cells(world, seeds=[0, 1], max_new_tokens=[4, 8])
    assert len(found) == len({cell.name for cell in found}) == 3 * 2 * 2
    pairs = {(cell.settings["seed"], cell.settings["max_new_tokens"]) for cell in found}
    assert pairs == {(0, 4), (0, 8), (1, 4), (1, 8)}


@pytest.mark.parametrize("changes", [
    {"seeds": 1}, {"max_new_tokens": 9}, {"temperatures": 0.5}, {"dtypes": "float64"}, {"mode": "timing"},
    {"prompts": {"file": "prompts.jsonl", "limit": 2}}, {"prompts": {"file": "prompts.jsonl", "turns": 1}},
    {"mode": "timing", "repeats": 2}, {"mode": "timing", "cores": 1}, {"draft": None}])
def test_every_setting_is_in_the_name(changes, world):
    base = {"mode": "timing"} if changes.get("mode") == "timing" and len(changes) > 1 else {}
    assert not set(names(world, **changes)) & set(names(world, **base))


def test_a_name_does_not_change_with_where_things_lie_or_what_else_is_swept(world, tmp_path):
    before = names(world)
    shutil.copytree(world, tmp_path / "moved")
    assert names(tmp_path / "moved") == before
    timed = names(world, mode="timing")
    assert names(tmp_path / "moved", mode="timing") == timed
    (tmp_path / "moved" / "curve.json").write_text((world / "curve.json").read_text() + "\n")
    assert not set(names(tmp_path / "moved", mode="timing")) & set(timed)
    assert before[0] in names(world, methods=["sam", "ar"])
    assert names(world) == before


def test_other_weights_and_other_prompts_are_other_cells(world, tmp_path):
    before = names(world)
    here = tmp_path / "here"
    shutil.copytree(world, here)
    lines = [{**prompt, "turns": ["z"]} if prompt["question_id"] == 1 else prompt for prompt in PROMPTS]
    (here / "prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    changed = names(here)
    assert not set(changed) & set(before)
    weights = here / "tiny" / "model.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert not set(names(here)) & {*changed, *before}


@pytest.mark.parametrize(("method", "read"), [("specbranch(predict='h-rad')", "h-rad"), ("eagle", "eagle"),
                                              ("specbranch(predict='length')", "length-predictor"),
                                              ("diffuspec(drafter='block-diffusion')", "block-diffusion"),
                                              ("diffuspec", "ngram"), ("eagle2@adaeagle", "length-predictor")])
def test_another_checkpoint_of_those_that_a_method_reads_is_another_cell(method, read, world, tmp_path):
    shelf = tmp_path / "world" / "shelf"
    shutil.copytree(world, shelf.parent)
    shelf.mkdir()
    for name in ("h-rad", "eagle", "length-predictor", "block-diffusion", "diffusion-lm", "ngram", "canvas-sudoku"):
        put_card(shelf, name, "1" * 64)
    before = names(shelf.parent, methods=[method], checkpoints="shelf")
    for name, changes in ((read, True), ("canvas-sudoku", False)):
        shutil.rmtree(shelf / name)
        put_card(shelf, name, "2" * 64)
        assert (names(shelf.parent, methods=[method], checkpoints="shelf") != before) == changes
        before = names(shelf.parent, methods=[method], checkpoints="shelf")


def test_two_texts_of_one_method_are_one_cell(world):
    found = cells(world, methods=[{"method": "respec", "parameters": {"theta": [1, 5.0]}},
                                  {"method": "respec", "parameters": {"least": [0.1, 0.6]}},
                                  "respec(theta=1.0)"])
    assert len(found) == 3                         # 5.0 and 0.6 are the defaults
    assert [cell.named for cell in found] == [{"theta": 1.0, "least": .6}, {"theta": 5.0, "least": .6},
                                              {"theta": 5.0, "least": .1}]


@pytest.mark.parametrize(("changes", "word"), [
    ({"prompts": {"file": "none.jsonl"}}, "there is no prompt file"),
    ({"prompts": {"file": "prompts.jsonl", "families": ["poems"]}}, "no prompts of the family 'poems'"),
    ({"targets": "./nowhere"}, "there is no folder"), ({"draft": "eagle"}, "is not a language model"),
    ({"cost": "none.json"}, "none.json"), ({"checkpoints": "nowhere"}, "no folder of checkpoints"),
    ({"methods": [{"method": "token-recycling", "parameters": {"width": [0]}}]}, "token-recycling"),
    ({"seeds": list(range(5000))}, "at most 10,000"), ({"seeds": list(range(20_000))}, "there are 20,000 values"),
    ({"methods": [{"method": "prompt-lookup", "parameters": {name: list(range(1, 9999)) for name in (
        "depth", "longest", "shortest", "nodes")}}]}, "combinations of its parameters")])
def test_what_cannot_run_is_refused_with_a_line_before_anything_runs(changes, word, world):
    with pytest.raises(Refusal, match=r", line \d+: ") as caught:
        cells(world, **changes)
    assert word in str(caught.value)


def test_sets_of_prompts_that_overlap_are_refused_since_their_rows_would_be_added_up(world):
    one, two = ({"file": "prompts.jsonl", "families": [family]} for family in ("qa", "rag"))
    assert len(cells(world, prompts=[one, two], methods="ar")) == 2
    with pytest.raises(Refusal, match=r"this set and set 1 share prompt 1 of prompts.jsonl, .*: write a grid for each"):
        cells(world, prompts=[{"file": "prompts.jsonl", "turns": turns} for turns in (1, 2)])


def test_turns_are_cut_with_the_references_that_belong_to_them():
    two = Prompt(1, "qa", "qa", ("a", "b"), ("x", "y"))
    assert first_turns(two, 1) == Prompt(1, "qa", "qa", ("a",), ("x",))
    assert first_turns(two, 2) == first_turns(two, None) == two
    alternatives = Prompt(1, "qa", "qa", ("a", "b"), ("x", "y", "z"))
    assert first_turns(alternatives, 1).reference == ("x", "y", "z")


def test_a_system_turn_makes_another_prompt():
    assert prompt_data(Prompt(1, "qa", "qa", ("a",), None, "x")) != prompt_data(Prompt(1, "qa", "qa", ("a",), None))


def test_switches_stand_in_the_table_as_texts():
    kinds = [kind_of(values) for values in ([True, False], [1, 2.5, None], [1, "a"], [None])]
    assert list(map(str, kinds)) == ["string", "double", "string", "string"]
