"""The static checks: ruff over everything, basedpyright in basic mode over the package."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent


def passes(*command: str) -> None:
    done = subprocess.run([str(BIN / command[0]), *command[1:]], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]


def test_ruff_has_no_complaint():
    passes("ruff", "check", "--no-cache", ".")


def test_the_types_of_the_package_fit():
    passes("basedpyright")
