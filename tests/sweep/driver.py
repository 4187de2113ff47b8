"""`python -m tests.sweep.driver GRID OUT KIND [N]` runs a sweep on Ray and does something to it.

KIND: `kill` (SIGKILL to this process when N cells are kept), `interrupt` (Ctrl-C for the whole group then), `dies` (the
worker of each of N cells dies once in the midst of it), `fails` (an error in this process then), `whole` (nothing). The
last line on stdout is JSON: processes below this one, the addresses that they listen on, and how many cells were run.
"""

import functools
import json
import os
import signal
import sys
from pathlib import Path

import psutil

from specdec_lib.commands.exit_codes import say
from specdec_lib.sweep import cluster, run, work
from specdec_lib.types import Refusal


def mortal(out: str, times: int):
    """A way to run cells in which the first so many that begin kill their process, once each."""
    def run_cell(cell, cores, check):
        import os
        import signal
        from pathlib import Path

        marks = Path(out).with_name("died")
        marks.mkdir(exist_ok=True)
        if len(list(marks.iterdir())) < times and not (marks / cell.name).exists():
            (marks / cell.name).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return work.run_cell(cell, cores, check)
    return run_cell


def below() -> dict:
    """Processes below this one, and where they and it listen."""
    family = psutil.Process().children(recursive=True)
    heard = [one.laddr.ip for process in (psutil.Process(), *family) for one in connections(process)
             if one.status == "LISTEN"]
    return {"processes": [[process.pid, process.create_time()] for process in family], "heard": sorted(set(heard))}


def connections(process: psutil.Process) -> list:
    """Its connections; none of a process that has ended since it was listed, as a worker of Ray may."""
    try:
        return process.net_connections("inet")
    except psutil.NoSuchProcess:
        return []


def main(grid: str, out: str, kind: str, number: str = "0") -> int:
    told = {}

    def progress(done: int, total: int, name: str) -> None:
        if name.startswith(("starting", "loading")) or done < int(number):
            return
        if not told:
            told.update(below())
            sys.stdout.write(json.dumps(told) + "\n")
            sys.stdout.flush()
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "interrupt":
            os.killpg(os.getpgrp(), signal.SIGINT)
        if kind == "fails":
            raise OSError("a disk has failed")

    if kind == "dies":
        cluster.start = functools.partial(cluster.start, work=mortal(out, int(number)))
    try:
        told["ran"] = run.run_sweep(Path(grid), Path(out), os.environ.get("SWEEP_ADDRESS"), progress)[1]
    except (Refusal, OSError) as error:
        say(str(error))
        return 2
    except KeyboardInterrupt:
        return 130
    sys.stdout.write(json.dumps(told) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
