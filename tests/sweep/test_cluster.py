"""Ray: a killed driver and killed workers lose nothing, no process stays, nothing listens beyond loopback."""

import json
import os
import subprocess
import sys
import time
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from specdec_lib.sweep import cluster
from specdec_lib.sweep.dataset import read_dataset
from specdec_lib.sweep.run import run_sweep
from specdec_lib.types import Refusal
from tests.sweep.worlds import in_process, make_world, nowhere, write_grid

ROOT = Path(__file__).parents[2]
PATIENCE = 60                                      # seconds in which processes of a killed driver have ended


def drive(*words, group: bool = False, **more) -> tuple[int, dict, str]:
    """Runs tests/sweep/driver.py: exit code, what it told last, stderr. Nothing else may be on its stdout."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}
    done = subprocess.run([sys.executable, "-m", "tests.sweep.driver", *map(str, words)], capture_output=True,
                          text=True, cwd=ROOT, env=env, timeout=300, start_new_session=group)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, told[-1] if told else {}, done.stderr


def alive(processes) -> list[int]:
    """Which of these still run."""
    return [pid for pid, born in processes if psutil.pid_exists(pid) and same_process(pid, born)]


def same_process(pid: int, born: float) -> bool:
    try:
        one = psutil.Process(pid)
        return abs(one.create_time() - born) < 1 and one.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def all_end(processes) -> bool:
    """Whether all of these end before our patience does."""
    end = time.monotonic() + PATIENCE
    while alive(processes) and time.monotonic() < end:
        time.sleep(0.1)
    return not alive(processes)


def kept(out: Path) -> dict[str, list]:
    """Cell -> rows, as they are kept."""
    return {path.stem: json.loads(path.read_text())["rows"] for path in (out / "cells").glob("*.json")}


def undisturbed(grid: Path, out: Path, monkeypatch) -> dict[str, list]:
    """What the same sweep keeps when it runs in this process."""
    monkeypatch.setattr(cluster, "start", in_process)
    run_sweep(grid, out)
    return kept(out)


def runs_nothing(grid: Path, out: Path, monkeypatch) -> bool:
    """Whether the same grid again starts no cluster and leaves every file as it is."""
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    monkeypatch.setattr(cluster, "start", nowhere)
    assert run_sweep(grid, out)[1] == 0
    return before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_a_killed_driver_and_killed_workers_lose_nothing_and_leave_nothing_behind(tmp_path, monkeypatch):
    grid, out = write_grid(make_world(tmp_path), seeds=[0, 1]), tmp_path / "out"
    code, told, said = drive(grid, out, "kill", 2)
    assert (code, len(kept(out))) == (-9, 2), said
    assert len(told["processes"]) > 3
    assert all_end(told["processes"])
    before = kept(out)
    code, told, said = drive(grid, out, "dies", 2)
    assert (code, told.get("ran")) == (0, 4), said
    assert said == ""                              # Ray's words about dead workers stay off the terminal
    assert len(list((tmp_path / "died").iterdir())) == 2
    assert told["heard"]
    assert all(ip_address(one.removeprefix("::ffff:")).is_loopback for one in told["heard"])
    assert all_end(told["processes"])
    assert before.items() <= kept(out).items()
    assert kept(out) == undisturbed(grid, tmp_path / "calm", monkeypatch)
    assert not [left for left in Path("/tmp").glob(f"{cluster.TEMPORARY}*") if left.stat().st_uid == os.getuid()
                and not psutil.pid_exists(int(left.name.removeprefix(cluster.TEMPORARY).partition("-")[0]))]
    assert runs_nothing(grid, out, monkeypatch)


WRITES = """import pathlib, sys, time
while True:
    pathlib.Path(sys.argv[1], "socket").write_text("x")
    time.sleep(.001)
"""


@pytest.mark.parametrize("fails", [1, 9])
def test_a_start_that_fails_is_tried_again_and_leaves_nothing_behind(fails, monkeypatch):
    tries, left = [], []

    def slow(_temp_dir, **settings):
        tries.append(Path(_temp_dir))
        if len(tries) <= fails:
            left.append(subprocess.Popen([sys.executable, "-c", WRITES, _temp_dir]))
            raise Exception("The current node timed out during startup\nThis could happen because")

    monkeypatch.setattr(cluster, "ray_module", lambda: SimpleNamespace(init=slow, shutdown=lambda: None))
    said = ""
    try:
        with cluster.start():
            pass
    except Refusal as why:
        said = str(why)
    assert said == ("" if fails == 1 else "Ray cannot be started here; the machine may be busy: run the same command"
                    " again (The current node timed out during startup)")
    assert len(tries) == (2 if fails == 1 else cluster.TRIES)
    assert not tries[0].exists()
    assert all(process.wait(PATIENCE) for process in left)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "code"), [("interrupt", 130), ("fails", 2)])
def test_ctrl_c_and_an_error_stop_ray_and_the_next_run_goes_on(kind, code, tmp_path):
    grid, out = write_grid(make_world(tmp_path), seeds=[0, 1]), tmp_path / "out"
    ended, told, said = drive(grid, out, kind, 2, group=True)
    assert (ended, len(kept(out))) == (code, 2), said
    assert "Traceback" not in said
    assert told["processes"]
    assert all_end(told["processes"])
    ended, told, said = drive(grid, out, "whole")
    assert (ended, told.get("ran"), len(kept(out))) == (0, 4, 6), said


@pytest.mark.long
def test_forty_cells_killed_twice_are_forty_results_and_the_same_grid_again_runs_nothing(tmp_path, monkeypatch):
    grid, out = write_grid(make_world(tmp_path), seeds=list(range(10)), methods=[
        "ar", {"method": "draft-model", "parameters": {"depth": [1, 2, 3]}}]), tmp_path / "out"
    for count in (7, 23):
        code, told, _ = drive(grid, out, "kill", count)
        assert (code, len(kept(out))) == (-9, count)
        assert all_end(told["processes"])
    code, told, said = drive(grid, out, "dies", 3)
    assert (code, told.get("ran")) == (0, 17), said
    assert len(kept(out)) == 40
    assert len({(row["cell"], row["question_id"]) for row in read_dataset(out)[1]}) == 120
    assert kept(out) == undisturbed(grid, tmp_path / "calm", monkeypatch)
    assert runs_nothing(grid, out, monkeypatch)


@pytest.mark.long
def test_two_ray_nodes_share_a_sweep_and_stay_when_it_ends(tmp_path):
    from ray.cluster_utils import Cluster

    grid, out = write_grid(make_world(tmp_path), seeds=list(range(8))), tmp_path / "out"
    two = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        two.add_node(num_cpus=1)
        code, told, said = drive(grid, out, "whole", SWEEP_ADDRESS=two.address)
        assert (code, told.get("ran")) == (0, 24), said
        nodes = [json.loads(path.read_text())["made"]["node"] for path in (out / "cells").glob("*.json")]
        assert len(nodes) == 24
        assert len(set(nodes)) == 2                # how many each takes depends on what else the machine does
        assert all(node.remaining_processes_alive() for node in two.list_all_nodes())       # somebody else's cluster
    finally:
        two.shutdown()
