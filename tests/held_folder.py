"""A folder, or a file in it, that another process has to itself."""

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from specdec_lib.types import Refusal

HOLD = ("import sys, pathlib; from specdec_lib.files import alone_in\n"
        "with alone_in(pathlib.Path(sys.argv[1]), *sys.argv[2:]): print('held', flush=True); sys.stdin.read()")


@contextmanager
def refused_beside_another(folder: Path, *name: str):
    """What runs within has to be refused, with the process that holds the folder, or the file of this name."""
    with subprocess.Popen([sys.executable, "-c", HOLD, folder, *name], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(Refusal, match=f"is in use by process {other.pid} on "):
            yield
        other.stdin.close()
