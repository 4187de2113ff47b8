"""What each captured work needs alone, on a CPU whose steps are fixed: which works, how often, and how long."""

import pytest

from specdec_lib.bench import gpu_cells, gpu_drafts
from specdec_lib.bench.environment import Environment
from specdec_lib.bench.gpu_cells import CellFile
from specdec_lib.bench.gpu_drafts import NODES, measure_drafts, shape_of
from specdec_lib.types import Draft
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
    measure_drafts(file, world, lambda: None, ("ar", "eagle2", "block-diffusion"), 12)
    assert [(cell["method"], cell["nodes"]) for cell in file.cells] == [
        ("ar", 10), *(("eagle2", nodes) for nodes in NODES), ("block-diffusion", 10)]
    works = [{one["work"] for one in cell["works"]} for cell in file.cells]
    assert works == [{"CapturedStep"}, *[{"CapturedStep", "CapturedTree"}] * 3, {"CapturedStep", "CapturedBlock"}]
    for cell in file.cells:
        assert cell["tokens"] == 12
        assert 0 < sum(cell["round"].values()) * cell["rounds"] < cell["seconds"] + 0.1
        assert all(one["launches"] > 0 and one["device_seconds"] > 0 for one in cell["works"])
        assert sum(one["launches"] for one in cell["works"] if one["work"] == "CapturedStep") >= cell["rounds"]
    trees = [one for cell in file.cells for one in cell["works"] if one["work"] == "CapturedTree"]
    assert len({one["nodes"] for one in trees}) > 1              # budgets of nodes make trees of other sizes
    assert file.held["finished"]


def test_a_shape_names_the_work_and_its_whole_numbers(world):
    world.target((1, 2, 3), Draft())
    assert shape_of(world.target.lease.held.last) == {"work": "CapturedStep", "width": 4, "columns": 256, "depth": 4,
                                                      "size": 104}
