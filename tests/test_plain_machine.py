"""A GPU machine may have torch, transformers, numpy, safetensors, pandas and pyarrow alone: its tests pass there."""

import subprocess
import sys

from specdec_lib.bench.gpu_tests import ROOT, TESTS

LACKING = ("pydantic", "typer", "rich", "papermill", "plotly", "ipywidgets", "IPython", "ray")
CHOSEN = "captured_chain or in_a_thread or captured_tree"

BLOCKED = f"""
import sys
for name in {LACKING}:
    sys.modules[name] = None                       # importing it fails from now on
import pytest
sys.exit(pytest.main(["-q", "--noconftest", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not cuda", "-k",
                      {CHOSEN!r}, {str(TESTS)!r}]))
"""


def test_methods_and_captured_drafts_run_without_packages_for_people():
    done = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
