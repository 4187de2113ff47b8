"""A process that has loaded everything once and forks a child for each command; children are killed where it is asked.

`python -m tests.nursery FOLDER` makes a tiny target and its prompts in the folder, then reads a line of JSON for each
child: `job`, `out`, and one of `before` (SIGKILL before so many changes of files below `out`), `after` (seconds)
and `full` (from so many changes on the disk takes no more). It answers with a line: `code` (negative: the signal),
`said`, and `changes` and `seconds` of a child that was not killed.
"""

import contextlib
import errno
import functools
import json
import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

import torch

from specdec_lib import cli
from specdec_lib.commands import report, train
from specdec_lib.cost.curves import CostCurve
from specdec_lib.hub import default_model, locate
from specdec_lib.sweep import cluster
from specdec_lib.training import pipeline
from specdec_lib.training.data import begun_shard
from specdec_lib.training.data.answers import AnswerPlan
from specdec_lib.training.fit import Settings
from tests.hub.test_default_model import write_gguf
from tests.sweep.worlds import in_process, write_grid
from tests.training.folder import model_folder

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
PROMPTS = [{"question_id": 1, "category": "qa", "turns": ["a b c a b"]},
           {"question_id": 2, "category": "writing", "turns": ["red green", "blue"]},
           {"question_id": 3, "category": "rag", "turns": ["blue b c blue b"]}]
RUN = Path(__file__).parents[1] / "data" / "results" / "report"
PATIENCE = 240                                     # seconds after which a child hangs


class Worlds:
    """The commands on tiny inputs in one folder; each takes the folder that it may write to."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.target = ["--target", str(model_folder(folder / "tiny")), "--device", "cpu", "--dtype", "float32",
                       "--threads", "1"]
        (folder / "prompts.jsonl").write_text("".join(json.dumps(prompt) + "\n" for prompt in PROMPTS))
        (folder / "text.txt").write_text("a b c red green a b c blue\n" * 40)
        CostCurve((1, 5, 9), (8,), ((1.0, 1.2, 2.0),)).save(folder / "curve.json")      # a measured one would decide
        (folder / "gguf").mkdir()                                                        # how much is drafted
        self.gguf = write_gguf(folder / "gguf")[0]
        self.write_notebook(folder / "notebooks" / "90_report.ipynb")

    def write_notebook(self, path: Path) -> None:
        import nbformat
        from nbformat.v4 import new_code_cell, new_notebook

        path.parent.mkdir()
        cells = [new_code_cell('run: str = "a"  # smoke: "a" | folder\nk: int = 1  # smoke: 1 | nothing',
                               metadata={"tags": ["parameters"]}),
                 new_code_cell("import json, pathlib\nlist(json.loads(pathlib.Path(run, 'summary.json').read_text()))")]
        kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
        nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)

    def bench(self, out: Path, command: str = "bench") -> int:
        return cli.run([command, *self.target, "--prompts", str(self.folder / "prompts.jsonl"), "--out", str(out),
                        "--methods", "ar,sam,draft-model(depth=2)", "--draft", "first-layers", "--peers", "",
                        "--max-new-tokens", "6", "--cost", str(self.folder / "curve.json")])

    def report(self, out: Path) -> int:
        report.ROOT = self.folder
        return self.bench(out, "report")

    def record(self, out: Path) -> int:
        words = ["record", *self.target, "--prompts", str(self.folder / "prompts.jsonl"), "--out", str(out)]
        return next(filter(None, (cli.run([*words, "--drafters", drafters, "--max-new-tokens", "6", "--add"])
                                  for drafters in ("prompt-lookup", "suffix-automaton"))), 0)

    def train(self, out: Path) -> int:
        begun_shard.EVERY = 0.05
        pipeline.AnswerPlan = functools.partial(AnswerPlan, size=8, max_new=24)
        pipeline.make_answers = functools.partial(pipeline.make_answers, batch=4)
        pipeline.Settings = lambda **given: Settings(**given | {"steps": 6, "save_every": 0.0})
        train.TrainingOrder = functools.partial(pipeline.TrainingOrder, tokens=900)
        return cli.run(["train", "draft-lm", *self.target, "--minutes", "30", "--out", str(out)])

    def store(self, out: Path) -> int:
        out.mkdir(exist_ok=True)
        return cli.run(["store", "--from", str(self.folder / "text.txt"), *self.target[:2], "--out",
                        str(out / "a.store")])

    def cost(self, out: Path) -> int:
        return cli.run(["cost", *self.target, "--contexts", "8,16", "--repeats", "1", "--out", str(out / "cost.json")])

    def overhead(self, out: Path) -> int:
        return cli.run(["overhead", "--tokens", "300", "--out", str(out / "overhead.json")])

    def export(self, out: Path) -> int:
        return cli.run(["export", str(RUN), "--out", str(out / "answers")])

    def compare(self, out: Path) -> int:
        return cli.run(["compare", str(RUN), str(RUN.with_name("copies")), "--out", str(out / "both.csv")])

    def canvas(self, out: Path) -> int:
        return cli.run(["canvas", "--world", "table", "--limit", "3", "--keep", "2", "--out", str(out), "--methods",
                        "ssd(rows=3),tolerator(forwards=4)"])

    def sweep(self, out: Path) -> int:
        cluster.start = in_process                 # this process alone writes; tests/sweep kills it with Ray as well
        return cli.run(["sweep", str(write_grid(self.folder)), "--out", str(out)])

    def conversion(self, out: Path) -> int:
        def fetch(into: Path, say) -> Path:
            (into / "wheel").mkdir()
            return Path(shutil.copy(self.gguf, into / "wheel"))

        default_model.fetch, default_model.NEEDED = fetch, 0
        os.environ["XDG_CACHE_HOME"] = str(out)
        return locate.main([])


def count_changes(out: Path, before: int | None, full: int | None) -> list[int]:
    """Counts, in a list of one number, the changes of files below `out`; kills the group before the given one."""
    counted, below = [0], f"{out}{os.sep}"         # a job that needs the folder itself makes it, which is no change

    def hook(event: str, words: tuple) -> None:
        if event == "open":
            path, _, flags = words
            changes = isinstance(flags, int) and flags & WRITES
        else:
            path, changes = words[0] if words else None, event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir")
        if changes and isinstance(path, str | os.PathLike) and os.fspath(path).startswith(below):
            counted[0] += 1
            if counted[0] == before:
                os.killpg(os.getpgrp(), signal.SIGKILL)
                time.sleep(60)                     # the signal comes before that is over
            if full and counted[0] >= full and event in ("open", "os.mkdir"):
                raise OSError(errno.ENOSPC, "No space left on device", path)

    sys.addaudithook(hook)
    return counted


def child(job, out: Path, asked: dict, log: Path, told: int) -> None:
    """Runs the job in this process, a fork in a group of its own, and ends it."""
    os.setsid()
    with log.open("wb", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = ["specdec"]
    counted = count_changes(out, asked.get("before"), asked.get("full"))
    code = job(out)
    os.write(told, str(counted[0]).encode())
    os._exit(code)


def answered(hear: int, seconds: float) -> bool:
    """Waits so long at most; seconds in which this process was stopped count as one."""
    while seconds > 0:
        if select.select([hear], [], [], min(1.0, seconds))[0]:
            return True
        seconds -= 1.0
    return False


def run(worlds: Worlds, asked: dict) -> dict:
    """Forks one child and waits for it, or kills it after its seconds."""
    out, log = Path(asked["out"]), worlds.folder / "log"
    hear, told = os.pipe()
    began = time.monotonic()
    process = os.fork()
    if not process:
        try:
            child(getattr(worlds, asked["job"]), out, asked, log, told)
        finally:
            import traceback

            traceback.print_exc()
            os._exit(1)
    os.close(told)
    seconds = asked.get("after") or PATIENCE
    if not answered(hear, seconds):                # neither an answer nor an end
        with contextlib.suppress(ProcessLookupError):       # it has no group yet
            os.killpg(process, signal.SIGKILL)
        os.kill(process, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    changes = os.read(hear, 20)
    os.close(hear)
    said = log.read_text(errors="replace") if log.exists() else ""
    return {"code": code, "said": said, "changes": int(changes or 0), "seconds": time.monotonic() - began,
            "hung": code == -signal.SIGKILL and seconds == PATIENCE and not asked.get("before")}


def main() -> None:
    torch.set_num_threads(1)
    os.fsync = lambda file: None                   # slow, and SIGKILL is no power cut
    worlds = Worlds(Path(sys.argv[1]))
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        answers.write(json.dumps(run(worlds, json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
