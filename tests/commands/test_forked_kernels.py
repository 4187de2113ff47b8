"""Forked kernels: they share imports and nothing else, and end when they are told to and with their starter."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from specdec_lib.commands import notebook_runner
from specdec_lib.commands.forked_kernels import IMPORTED, LAUNCHER, can_fork

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux alone")
ROOT = Path(__file__).parents[2]
ABOUT = """
import json, os, signal, sys
first = 'torch' in sys.modules
import torch
free = signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
print(json.dumps([os.getppid(), os.getcwd(), os.environ.get('WORD'), os.environ.get('ONLY_HERE'), first,
                  torch.get_num_threads(), free]))
"""
# A script without a guard: a fork that ran it again would start a kernel in its turn, and end with an error.
STARTER = """
from specdec_lib.commands import forked_kernels, notebook_runner
forked_kernels.IMPORTED.clear()                    # none is needed here
notebook_runner.run_notebook({book!r}, {out!r}, fork=True)
"""


def write(path: Path, *cells: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    first = new_code_cell("k: int = 4  # smoke: 2 | depth", metadata={"tags": ["parameters"]})
    spec = {"display_name": "Python 3", "language": "python", "name": "python3"}
    nbformat.write(new_notebook(cells=[first, *map(new_code_cell, cells)], metadata={"kernelspec": spec}), path)
    return path


def told(run) -> list:
    said = [output.text for cell in nbformat.read(run.path, as_version=4).cells for output in cell.get("outputs", ())]
    return json.loads(said[0])


def ends(process: int, seconds: float = 15) -> bool:
    """Whether a process, which is no child of this one, is gone after so many seconds at most."""
    until = monotonic() + seconds
    while monotonic() < until:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        sleep(0.05)
    return False


def number_in(path: Path, seconds: float = 60) -> int:
    until = monotonic() + seconds
    while not (path.is_file() and path.read_text()):
        assert monotonic() < until
        sleep(0.05)
    return int(path.read_text())


def test_kernels_share_their_imports_and_have_folder_variables_and_threads_of_their_own(tmp_path, monkeypatch):
    found = []
    for name, word, threads in (("one", "first", "1"), ("two", "second", "2")):
        book = write(tmp_path / name / "book.ipynb", ABOUT)
        with monkeypatch.context() as patch:
            patch.setenv("ONLY_HERE", name)
            if name == "two":
                patch.delenv("ONLY_HERE")
            found.append(told(notebook_runner.run_notebook(book, book.with_name("out.ipynb"), fork=True,
                                                           env={"WORD": word, "OMP_NUM_THREADS": threads})))
    server = found[0][0]
    assert server != os.getpid()
    assert found == [[server, str(tmp_path / "one"), "first", "one", True, 1, True],
                     [server, str(tmp_path / "two"), "second", None, True, 2, True]]


def test_a_kernel_without_fork_is_a_child_of_this_process_that_has_imported_nothing(tmp_path):
    book = write(tmp_path / "book.ipynb", ABOUT)
    parent, *_, first, _, _ = told(notebook_runner.run_notebook(book, tmp_path / "out.ipynb"))
    assert (parent, first) == (os.getpid(), False)


def test_what_kernels_share_is_there_and_reads_no_variable_that_one_may_have_otherwise():
    code = f"import importlib, sys\nfor name in {IMPORTED}: importlib.import_module(name)\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert {"torch", "pandas", "ipykernel"} <= loaded
    assert not loaded & {"specdec_lib", "plotly", "ipywidgets", "transformers", "huggingface_hub"}


def test_only_this_pythons_own_kernels_are_forked():
    assert can_fork([*LAUNCHER, "-f", "file"])
    assert not can_fork(["/usr/bin/other", *LAUNCHER[1:], "-f", "file"])
    assert not can_fork([sys.executable, "-m", "xeus", "-f", "file"])


def test_a_kernel_that_is_done_and_one_that_takes_too_long_are_gone_and_have_cleaned_up(tmp_path):
    write_number = "import os, pathlib; pathlib.Path('kernel').write_text(str(os.getpid()))"
    at_end = "import atexit; atexit.register(pathlib.Path('ended').write_text, 'yes')"
    book = write(tmp_path / "book.ipynb", f"{write_number}\n{at_end}")
    notebook_runner.run_notebook(book, tmp_path / "out.ipynb", fork=True)
    assert ends(number_in(tmp_path / "kernel"))
    assert (tmp_path / "ended").read_text() == "yes"

    (tmp_path / "kernel").unlink()
    book = write(tmp_path / "book.ipynb", write_number, "import time; time.sleep(60)")
    with pytest.raises(notebook_runner.NotebookError, match="did not finish"):
        notebook_runner.run_notebook(book, tmp_path / "out.ipynb", fork=True, cell_seconds=1)
    assert ends(number_in(tmp_path / "kernel"))


def test_a_kernel_that_dies_is_reported(tmp_path):
    book = write(tmp_path / "book.ipynb", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(notebook_runner.NotebookError, match="did not finish"):
        notebook_runner.run_notebook(book, tmp_path / "out.ipynb", fork=True)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_kernel_and_its_server_end_with_the_process_that_started_them(tmp_path, number):
    book = write(tmp_path / "book.ipynb", "import os, pathlib\npathlib.Path('server').write_text(str(os.getppid()))\n"
                 "pathlib.Path('kernel').write_text(str(os.getpid()))", "import time; time.sleep(60)")
    script = tmp_path / "starter.py"
    script.write_text(STARTER.format(book=str(book), out=str(tmp_path / "out.ipynb")))
    starter = subprocess.Popen([sys.executable, str(script)], stderr=subprocess.PIPE, text=True, cwd=tmp_path,
                               env=os.environ | {"PYTHONPATH": str(ROOT)})
    kernel, server = number_in(tmp_path / "kernel"), number_in(tmp_path / "server")
    starter.send_signal(number)
    said = starter.communicate(timeout=60)[1]
    assert ends(kernel)
    assert ends(server)
    assert said.count("Traceback") == (number == signal.SIGINT)      # the starter's own alone
