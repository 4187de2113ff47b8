"""The tests of a device in groups, each in a process of its own with a time limit, what it says written as it goes.

A CUDA error stays with its process, and a capture that failed may make later ones fail. So what never ran on a GPU
cannot take the results of the others along, nor can a hang.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter

from specdec_lib.bench.gpu_cells import read_object
from specdec_lib.bench.provenance import provenance
from specdec_lib.files import write_text
from specdec_lib.types import Refusal

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests" / "test_cuda.py"
PATIENCE = 150.0                                   # seconds for a group
QUIET = 60                                         # seconds without a finished test, after which all stacks are written
LATE = -1                                          # the exit code of a group that took too long
CAPTURED = ("captured_chain or draft_models_chain", "captured_tree", "captured_block")
DECODED = ("captured_drafts or lossless_method", "in_a_thread")
GROUPS = {"steps": f"not ({' or '.join(CAPTURED + DECODED)})",   # expressions over the names of tests, as pytest's -k
          "chains": CAPTURED[0], "trees": CAPTURED[1], "blocks": CAPTURED[2], "methods": DECODED[0],
          "threads": DECODED[1]}


def run_tests(device: str, out: Path, say: Callable[[str], None], check: Callable[[], None] = lambda: None,
              path: Path = TESTS, groups: Mapping[str, str] = GROUPS, patience: float = PATIENCE) -> bool:
    """Runs the groups that have not passed yet, and whether all have now.

    `out/tests.json` has the exit code and seconds of each, `out/tests/NAME.txt` what it said. `check` is called before
    each.
    """
    out.mkdir(parents=True, exist_ok=True)
    kept = out / "tests.json"
    told = read_object(kept) if kept.exists() else {"groups": {}}
    if not isinstance(told.get("groups"), dict) or not all(isinstance(one, dict) for one in told["groups"].values()):
        raise Refusal(f"{kept} is damaged, or of an earlier version: remove it and run the same command again")
    for name, chosen in groups.items():
        if told["groups"].get(name, {}).get("exit_code") == 0:
            continue
        check()
        start = perf_counter()
        code = run_group(device, chosen, out / "tests" / f"{name}.txt", path, patience)
        told["groups"][name] = {"exit_code": code, "seconds": round(perf_counter() - start, 1)}
        write_text(kept, json.dumps({**told, "provenance": provenance()}, indent=1) + "\n")
        say(f"tests: {name} {'passed' if code == 0 else 'took too long' if code == LATE else 'failed'}")
    return all(told["groups"][name]["exit_code"] == 0 for name in groups)


def run_group(device: str, chosen: str, said: Path, path: Path, patience: float) -> int:
    """The exit code of the tests that this expression chooses, LATE where they took too long.

    They need nothing of the other tests' fixtures, which import packages for notebooks that such a machine may lack.
    """
    marked = "cuda" if device.startswith("cuda") else "not cuda"
    said.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-v", "--tb=short", "--noconftest", "-p", "no:cacheprovider",
               "-o", f"faulthandler_timeout={QUIET}", "--durations", "5", "-m", marked, "-k", chosen, str(path)]
    with said.open("w", encoding="utf-8") as file:
        try:
            done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, cwd=path.parents[1], check=False,
                                  timeout=patience)
        except subprocess.TimeoutExpired:
            return LATE
    return done.returncode
