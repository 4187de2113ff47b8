"""SIGKILL at any moment of any command that writes: resumed, it ends as one that was not killed, and loses nothing.
So does a disk that is full from any moment on, which is one sentence.

Most kills come before a change of a file that is drawn at random (creating, renaming, removing), so that every state
of the disk between two changes can be met; the others come after random seconds, in the midst of a file as well.
"""

import json
import random
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from safetensors import safe_open

SHORT = {"bench": 2, "canvas": 1, "train": 2, "record": 1, "store": 1, "cost": 1, "conversion": 1,
         "sweep": 1}                               # kills
FILLED = {"bench": 2, "canvas": 1, "train": 1, "record": 1, "store": 1, "cost": 1, "overhead": 1, "conversion": 1,
          "export": 1, "sweep": 1}
FULL = re.compile(r"^(?:specdec: )?\S+ cannot be (?:written|made): its disk is full, with [\d.]+ MB free", re.MULTILINE)
LONG = {"bench": 22, "sweep": 4, "canvas": 4, "train": 22, "record": 13, "report": 11, "store": 5, "cost": 5,
        "overhead": 3, "conversion": 7, "export": 3, "compare": 1}
TIMES = {"when", "what", "target", "how", "seconds", "prefill", "wall"}                # columns of tables
# What no two runs have in common: times, what follows from them, and the process that ran.
OWN = {"seconds", "created", "date", "machine", "command", "commit", "changed", "minutes", "break_even", "load", "now",
       "speedup", "speedup_ci", "speedup_end_to_end", "expected_speedup", "tokens_per_second", "time_share",
       "cost_curve", "spread_of_repeats", "spread_within_decode", "warnings", "nodes", "provenance", "sizes",
       "seconds_ci", "times_as_fast", "times_as_fast_ci", "row_seconds", "row_cost"}


class Nursery:
    """The process that forks the children."""

    def __init__(self, folder: Path):
        self.folder, self.calm = folder, {}
        self.process = subprocess.Popen([sys.executable, "-m", "tests.nursery", str(folder)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                        cwd=Path(__file__).parents[1])

    def __call__(self, job: str, out: Path, **kill) -> dict:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps({"job": job, "out": str(out), **kill}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert not answer["hung"], f"{job} {kill} hangs"
        allowed = (0, 2) if "full" in kill else (0, -9)
        assert answer["code"] in allowed, f"{job} {kill}: {answer['said'][-3000:]}"
        return answer

    def unharmed(self, job: str) -> tuple[dict, dict]:
        """The answer and the end state of a run that was left alone."""
        if job not in self.calm:
            out = self.folder / f"calm-{job}"
            self.calm[job] = self(job, out), state(out)
        return self.calm[job]


@pytest.fixture(scope="module")
def nursery(tmp_path_factory):
    made = Nursery(tmp_path_factory.mktemp("nursery"))
    yield made
    made.process.communicate()                     # the end of its input is its end


def lasting(value):
    """Plain data without what no two runs have in common."""
    if isinstance(value, dict):
        return {key: lasting(inner) for key, inner in value.items() if key not in OWN}
    return [lasting(inner) for inner in value] if isinstance(value, list) else value


def content(path: Path):
    """What a file holds, times left out; fails for a file that cannot be read to its end."""
    if path.suffix == ".parquet":
        return [{key: value for key, value in row.items() if key not in TIMES}
                for row in pq.read_table(path).to_pylist()]
    if path.suffix == ".json":
        return lasting(json.loads(path.read_text()))
    if path.suffix == ".safetensors":
        with safe_open(path, "numpy") as file:
            header = file.metadata() or {}
            return ({key: file.get_tensor(key).tolist() for key in file.keys() if not key.endswith("/seconds")},  # noqa: SIM118
                    {key: lasting(json.loads(value)) if value[:1] in "{[" else value for key, value in header.items()
                     if key != "sha256"})          # the checksum is over times too
    if path.name in ("log.jsonl", "log.jsonl.gz", "README.md", "report.html", "report.ipynb"):
        return path.stat().st_size > 0
    return path.read_bytes()


def state(out: Path) -> dict:
    """Every file and folder below `out`, hidden ones too."""
    return {str(path.relative_to(out)): content(path) if path.is_file() else None for path in sorted(out.rglob("*"))}


def visible(out: Path) -> dict:
    """The files that stand under their own names, which are whole at any time."""
    return {str(path.relative_to(out)): content(path) for path in sorted(out.rglob("*")) if path.is_file()
            and not any(part.startswith(".") or ".partial-" in part for part in path.relative_to(out).parts)}


def kills(nursery: Nursery, folder: Path, job: str, count: int, dice: random.Random) -> list[str]:
    """So many kills of a job, up to four before it is let through; returns what differs from a run without kills."""
    calm, expected = nursery.unharmed(job)
    wrong, done, runs = [], 0, 0
    while done < count:
        out, runs, story = folder / f"killed-{runs}", runs + 1, []
        for _ in range(min(dice.randint(1, 4), count - done)):
            kill = ({"before": dice.randint(1, calm["changes"])} if dice.random() < 0.7 else
                    {"after": dice.uniform(0.05, 1) * calm["seconds"]})
            ended = nursery(job, out, **kill)
            story.append(f"{kill} {ended['code']}")
            done += ended["code"] == -9
            visible(out)
        nursery(job, out)
        wrong += differences(f"{job}, {story}", state(out), expected)
    return wrong


def differences(what: str, found: dict, expected: dict) -> list[str]:
    """The files that differ, are missing or are too many."""
    return [f"{what}: {name}" for name in sorted(found.keys() | expected.keys())
            if found.get(name, "missing") != expected.get(name, "missing")]


def kill_all(nursery: Nursery, folder: Path, counts: dict, seed: int) -> dict:
    """The differences by job."""
    found = defaultdict(list)
    for job, count in counts.items():
        (folder / job).mkdir()
        found[job] += kills(nursery, folder / job, job, count, random.Random(f"{seed} {job}"))
    return {job: wrong for job, wrong in found.items() if wrong}


def test_ten_kills_lose_nothing_double_nothing_and_leave_nothing_behind(nursery, tmp_path):
    assert sum(SHORT.values()) == 10
    assert kill_all(nursery, tmp_path, SHORT, 1) == {}


@pytest.mark.long
def test_a_hundred_kills_lose_nothing_double_nothing_and_leave_nothing_behind(nursery, tmp_path):
    assert sum(LONG.values()) == 100
    assert kill_all(nursery, tmp_path, LONG, 2) == {}


def fill_all(nursery: Nursery, folder: Path, counts: dict, seed: int) -> list[str]:
    """What is wrong with these jobs on a disk that is full from a random change on, and after there is room again."""
    wrong = []
    for job, count in counts.items():
        calm, expected = nursery.unharmed(job)
        dice = random.Random(f"{seed} {job}")
        for number, full in enumerate(dice.sample(range(1, calm["changes"] + 1), min(count, calm["changes"]))):
            out, what = folder / f"{job}-{number}", f"{job} from change {full} on"
            ended = nursery(job, out, full=full)
            sentences = FULL.findall(ended["said"])
            if ended["code"] and (len(sentences) != 1 or "Traceback" in ended["said"]):
                wrong.append(f"{what}: {ended['said'][-2000:]}")
            if out.exists():
                visible(out)
            nursery(job, out)
            wrong += differences(what, state(out), expected)
    return wrong


def test_a_disk_that_is_full_from_any_change_on_is_one_sentence_and_loses_nothing(nursery, tmp_path):
    assert fill_all(nursery, tmp_path, FILLED, 3) == []


@pytest.mark.long
def test_a_disk_that_is_full_at_a_hundred_moments_is_one_sentence_and_loses_nothing(nursery, tmp_path):
    assert fill_all(nursery, tmp_path, LONG, 4) == []
