"""What each captured work needs alone, on a CPU whose steps are fixed: which works, how often, and how long."""

from copy import copy
from types import SimpleNamespace

import pytest

from specdec_lib.bench import gpu_cells, gpu_drafts, gpu_kernels
from specdec_lib.bench.environment import Environment
from specdec_lib.bench.gpu_cells import CellFile
from specdec_lib.bench.gpu_drafts import NODES, measure_drafts, shape_of
from specdec_lib.bench.gpu_kernels import measure_kernels, without_times
from specdec_lib.models.llama.cuda_graph import CapturedWork
from specdec_lib.types import Draft, Seconds
from tests.test_cuda import output_kit, weights


@pytest.fixture
def world():
    weights.cache_clear()                          # what was captured lies on them
    kit = output_kit("cpu", True)
    return Environment(kit.target, lambda messages: tuple(range(1, 30)), str, object, kit.facts, kit.draft,
                       kit.checkpoints)


def test_every_captured_work_of_a_method_is_timed_alone(world, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_drafts, "replayed", lambda device, launch: gpu_cells.replayed(device, launch, 2))
    file = CellFile(tmp_path / "drafts.json", {})
    begun = []
    measure_drafts(file, world, lambda: begun.append(len(file.cells)), ("ar", "eagle2", "block-diffusion"), 12)
    assert begun == [0, 1, 2, 3, 4]
    assert [(cell["method"], cell["nodes"]) for cell in file.cells] == [
        ("ar", 10), *(("eagle2", nodes) for nodes in NODES), ("block-diffusion", 10)]
    works = [{one["work"] for one in cell["works"]} for cell in file.cells]
    assert works == [{"CapturedStep"}, *[{"CapturedStep", "CapturedTree"}] * 3, {"CapturedStep", "CapturedBlock"}]
    for cell in file.cells:
        assert cell["tokens"] == 12
        assert 0 < sum(cell["round"].values()) * cell["rounds"] < cell["seconds"] + 0.1
        assert all(one["launches"] > 0 and one["device_seconds"] > 0 for one in cell["works"])
        assert sum(one["launches"] for one in cell["works"] if one["work"] == "CapturedStep") >= cell["rounds"]
    largest = [max(one.get("nodes", 0) for one in cell["works"]) for cell in file.cells[1:4]]
    assert largest == sorted({*largest})           # larger budgets of nodes make larger trees
    assert file.held["finished"]


def test_the_second_decode_is_the_measured_one(world, monkeypatch):
    world.target((1, 2, 3), Draft())
    step, decodes, made = world.target.lease.held.last, [], []

    def decoded(*words):
        decodes.append(words)
        step.launched += len(decodes)
        if len(decodes) == 2:                      # a work that the first decode did not need
            made.append(copy(step))
            made[0].launched = 7
            gpu_drafts.WORKS.add(made[0])
        parts = (Seconds(wall=4.0), Seconds())
        return SimpleNamespace(output=(1,), rounds=[SimpleNamespace(seconds=seconds) for seconds in parts])
    monkeypatch.setattr(gpu_drafts, "decoded", decoded)
    monkeypatch.setattr(gpu_drafts, "captures", lambda: (0, 3, 5)[len(decodes)])
    monkeypatch.setattr(gpu_drafts, "replayed", lambda device, launch: 0.5)
    cell = gpu_drafts.drafts_cell(world, "ar", 10, (1,), 1)
    assert (cell["captures"], cell["wall"]) == ([3, 2], 2.0)
    assert sorted(work["launches"] for work in cell["works"]) == [2, 7]


def test_a_shape_names_the_work_and_its_whole_numbers(world):
    world.target((1, 2, 3), Draft())
    assert shape_of(world.target.lease.held.last) == {"work": "CapturedStep", "width": 4, "columns": 256, "depth": 4,
                                                      "size": 104}


def test_kernels_of_every_captured_work_are_counted_once_and_again_after_a_cut(world, tmp_path, monkeypatch):
    launches, launch = [], CapturedWork.launch
    monkeypatch.setattr(gpu_kernels, "LAUNCHES", 2)                 # a profile of more takes seconds to read
    monkeypatch.setattr(CapturedWork, "launch", lambda work: launches.append(shape_of(work)) or launch(work))
    file = CellFile(tmp_path / "kernels.json", {})
    measure_kernels(file, world, lambda: None, ("ar", "eagle2"), 12)
    works = [one for cell in file.cells for one in cell["works"]]
    assert [cell["method"] for cell in file.cells] == ["ar", "eagle2"]
    assert {one["work"] for one in works} == {"CapturedStep", "CapturedTree"}
    shapes = [without_times(one) for one in works]
    assert all(shapes.count(shape) == 1 for shape in shapes)
    for one, shape in zip(works, shapes, strict=True):
        found = {kernel["name"]: kernel["count"] for kernel in one["kernels"]}
        assert found["aten::baddbmm"] == one["depth" if one["work"] == "CapturedStep" else "count"]
        took = [kernel["microseconds"] for kernel in one["kernels"]]
        assert took == sorted(took, reverse=True)
        assert 0 < max(took) < 1e6
        assert launches.count(shape) > 2
    cut = CellFile(tmp_path / "kernels.json", {})
    cut.held |= {"cells": cut.cells[:1], "finished": False}
    measure_kernels(cut, world, lambda: None, ("ar", "eagle2"), 12)
    assert [[without_times(one) for one in cell["works"]] for cell in cut.cells] == [
        [without_times(one) for one in cell["works"]] for cell in file.cells]
