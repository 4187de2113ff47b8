"""The notebook runner: refuses before it starts, keeps what it ran, exports one page that needs no network."""

import errno
import gc
import io
import os
import signal
import warnings
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from time import sleep

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from specdec_lib.commands import html_page, notebook_runner
from specdec_lib.commands.notebook import FOLDER as NOTEBOOKS
from specdec_lib.types import Refusal

LINES = ("k: int = 4          # smoke: 2 | depth\n"
         "alpha: float = 0.5  # smoke: 0.25 | chance\n"
         'name: str = "full"  # smoke: "quick" | which\n'
         "some: list = [1]    # smoke: [] | values\n"
         "flag: bool = True   # smoke: False | a switch")
SPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}


@pytest.fixture(name="write")
def _write(tmp_path):
    def write(*cells, lines=LINES, spec=SPEC):
        first = new_code_cell(lines, metadata={"tags": ["parameters"]})
        book = new_notebook(cells=[new_markdown_cell("# Tiny"), first, *map(new_code_cell, cells)],
                            metadata={"kernelspec": spec})
        path = tmp_path / "tiny.ipynb"
        nbformat.write(book, path)
        return path
    return write


def test_a_parameter_has_type_default_smoke_value_and_meaning(write):
    found = notebook_runner.parameters(write())
    assert found["alpha"] == notebook_runner.Parameter("alpha", "float", 0.5, 0.25, "chance")


def test_the_meaning_may_stand_first(write):
    found = notebook_runner.parameters(write(lines="k: int = 4  # depth, or length | smoke: 2"))
    assert found["k"] == notebook_runner.Parameter("k", "int", 4, 2, "depth, or length")


def test_smoke_values_of_every_kind_are_read_from_the_comments(write):
    quick = {"k": 2, "alpha": 0.25, "name": "quick", "some": [], "flag": False}
    assert notebook_runner.smoke_values(write()) == quick


@pytest.mark.parametrize(("values", "said"), [
    ({"kk": 3}, "no parameter 'kk'; it has: k, alpha, name, some, flag"),
    ({"k": 1.5}, "k of tiny.ipynb is of type int, got 1.5"),
    ({"k": True}, "is of type int, got True"),
    ({"flag": 1}, "is of type bool, got 1"),
    ({"name": None}, "is of type str, got None")])
def test_a_value_that_does_not_fit_is_refused_before_anything_runs(write, tmp_path, values, said):
    with pytest.raises(Refusal, match=said):
        notebook_runner.run_notebook(write(), tmp_path / "out.ipynb", values)
    assert not (tmp_path / "out.ipynb").exists()


@pytest.mark.parametrize(("bounds", "inside", "outside"), [
    ("from 1", (1, 99), (0, -1)), ("from 0 to 1", (0, 0.5, 1), (-0.1, 1.5)), ("above 0 to 0.5", (0.5, 0.1), (0, 0.6)),
    ("from -1 to 2", (-1, 2), (-2, 3))])
def test_a_number_outside_of_its_bounds_is_refused(write, bounds, inside, outside):
    path = write(lines=f"x: float = 1.0  # how much comes from 7 | {bounds} | smoke: 1.0")
    assert notebook_runner.parameters(path)["x"].bounds == bounds
    for value in inside:
        assert notebook_runner.checked_values(path, {"x": value}) == {"x": value}
    for value in outside:
        with pytest.raises(Refusal, match=f"the parameter x of tiny.ipynb is a number {bounds}, got {value}"):
            notebook_runner.checked_values(path, {"x": value})


def test_a_whole_number_serves_as_a_float(write):
    assert notebook_runner.checked_values(write(), {"alpha": 1}) == {"alpha": 1}


@pytest.mark.parametrize(("line", "said"), [
    ("k: int = 4  # depth", "must read '# meaning | smoke: value'"),
    ("k: int = 4  # depth | at least 1 | smoke: 2", "must read '# meaning | smoke: value', or"),
    ("k: int = 4  # smoke: 2", "must read '# meaning"),
    ("k: int = 4  # smoke: two | depth", "plain Python literals"),
    ("k: dict = 4  # smoke: 2 | depth", "needs a type out of int, float, str, list, bool")])
def test_a_malformed_parameter_line_is_named(write, line, said):
    with pytest.raises(ValueError, match=said):
        notebook_runner.parameters(write(lines=line))


def test_a_missing_notebook_and_one_without_language_are_refused(write, tmp_path):
    with pytest.raises(Refusal, match="there is no notebook"):
        notebook_runner.parameters(tmp_path / "none.ipynb")
    with pytest.raises(Refusal, match="cannot be read as a notebook"):
        notebook_runner.parameters(write(spec={"display_name": "x", "name": "python3"}))


def test_a_run_gets_its_values_and_environment_and_its_page_needs_no_network(write, tmp_path):
    path = write("import os, sys; print(k, name, os.environ['WORD']); print('bar', file=sys.stderr)",
                 "import plotly.graph_objects as go; go.Figure(go.Bar(x=[1], y=[k]))",
                 "go.Figure(go.Bar(x=[1], y=[k]))")
    told = io.StringIO()
    env = notebook_runner.export_env() | {"WORD": "heard"}
    done = notebook_runner.run_notebook(path, tmp_path / "deep" / "out.ipynb", {"k": 7}, env=env, echo=told)
    assert "7 full heard" in told.getvalue()
    assert "WORD" not in os.environ
    assert 0 < done.seconds < 120

    page = html_page.to_html(done.path, tmp_path / "page.html", code=False).read_text()
    assert "7 full heard" in page
    assert ">environ<" not in page
    assert ">bar" not in page
    assert page.count("Plotly.newPlot(  ") == page.count('class="plotly-graph-div"') == 2
    assert page.count("plotly.js v") == 1           # one copy, whatever the number of figures
    assert len(page) < 7_000_000
    assert 'data-theme="dark"' in page
    assert ' src="http' not in page
    assert '<link rel="stylesheet" href="http' not in page
    assert ">environ<" in html_page.to_html(done.path, tmp_path / "code.html").read_text()


def test_two_notebooks_at_once_run_in_their_own_folders_and_this_process_stays_in_its_own(write, tmp_path):
    before, seen = os.getcwd(), set()
    books = []
    for name in ("one", "two"):
        path = tmp_path / name / "book.ipynb"
        path.parent.mkdir()
        write("import os, time; print(os.getcwd()); time.sleep(1)").rename(path)
        books.append(path)
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(notebook_runner.run_notebook, path, path.with_name("out.ipynb")) for path in books]
        while not all(run.done() for run in runs):
            seen.add(os.getcwd())
            sleep(0.005)
    pages = [run.result().path.read_text() for run in runs]
    assert [page.count(f"{path.parent}\\n") for page, path in zip(pages, books, strict=True)] == [1, 1]
    assert seen == {before} == {os.getcwd()}


def test_a_failing_cell_is_named_and_what_ran_is_kept(write, tmp_path):
    with pytest.raises(notebook_runner.NotebookError,
                       match=r"failed in cell \d+: ZeroDivisionError.*kept in .*out.ipynb"):
        notebook_runner.run_notebook(write("print('before')", "1 / 0"), tmp_path / "out.ipynb")
    assert "before" in (tmp_path / "out.ipynb").read_text()


def test_a_cell_that_refuses_is_a_refusal_and_what_ran_is_kept(write, tmp_path):
    refuses = write("print('before')", "from specdec_lib.types import Refusal; raise Refusal('steps are at least 1')")
    with pytest.raises(Refusal, match=r"refused in cell \d+: steps are at least 1 \(kept in .*out.ipynb"):
        notebook_runner.run_notebook(refuses, tmp_path / "out.ipynb")
    assert "before" in (tmp_path / "out.ipynb").read_text()


def test_why_a_cell_failed_is_one_line_of_a_bearable_length(write, tmp_path):
    with pytest.raises(notebook_runner.NotebookError) as failed:
        notebook_runner.run_notebook(write("raise ValueError('one\\ntwo\\x1b[2J' + 'x' * 5000)"), tmp_path / "o.ipynb")
    said = str(failed.value)
    assert "ValueError: one two" in said
    assert "\n" not in said
    assert "\x1b" not in said
    assert len(said) < 1200


def test_a_cell_that_takes_too_long_is_stopped_and_what_ran_is_kept(write, tmp_path):
    with pytest.raises(notebook_runner.NotebookError, match="did not finish"):
        notebook_runner.run_notebook(write("print('before')", "import time; time.sleep(60)"), tmp_path / "out.ipynb",
                                     cell_seconds=2)
    assert "before" in (tmp_path / "out.ipynb").read_text()


def test_ctrl_c_ends_the_kernel_at_once_quietly_and_leaves_the_older_output(write, tmp_path, capfd):
    output, ids = tmp_path / "out.ipynb", tmp_path / "kernel"
    output.write_text("older")
    path = write(f"import os, pathlib; pathlib.Path({str(ids)!r}).write_text(str(os.getpid()))",
                 "import time; time.sleep(60)")

    def interrupt():
        while not ids.is_file() or not ids.read_text():
            sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        notebook_runner.run_notebook(path, output)
    assert output.read_text() == "older"
    assert not list(tmp_path.glob(".*"))
    assert "Traceback" not in capfd.readouterr().err
    with pytest.raises(ProcessLookupError):
        os.kill(int(ids.read_text()), 0)


def test_a_full_disk_is_refused_and_the_older_output_stays(write, tmp_path, monkeypatch):
    def full(*words):
        raise OSError(errno.ENOSPC, "No space left on device")

    output = tmp_path / "out.ipynb"
    output.write_text("older")
    monkeypatch.setattr(notebook_runner, "execute_in_thread", lambda *words, **how: full())
    with pytest.raises(Refusal, match=r"out\.ipynb cannot be written: its disk is full"):
        notebook_runner.run_notebook(write(), output)
    assert output.read_text() == "older"


def test_a_relative_output_is_relative_to_the_caller_and_not_to_the_notebook(write, tmp_path, monkeypatch):
    written = []

    def execute(source, rough, *_, **__):
        written.append(rough)
        nbformat.write(nbformat.read(source, 4), rough)

    monkeypatch.setattr(notebook_runner, "execute_in_thread", execute)
    monkeypatch.chdir(tmp_path)
    notebook_runner.run_notebook(write("x = 1"), "out/run.ipynb")
    assert os.path.isabs(written[0])
    assert (tmp_path / "out" / "run.ipynb").is_file()


@pytest.fixture
def swept():
    """What earlier tests left open, interrupted kernels for example, warns here and not in a test that forbids it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


@pytest.mark.filterwarnings("error")
@pytest.mark.usefixtures("swept")
def test_a_kernel_is_spoken_to_in_secret_and_warns_of_nothing(write, tmp_path, capfd):
    code = "import json, pathlib; from ipykernel.connect import get_connection_file\n" \
           "print(sorted(key for key in json.loads(pathlib.Path(get_connection_file()).read_text()) if 'curve' in key))"
    done = notebook_runner.run_notebook(write(code), tmp_path / "out.ipynb")
    assert "['curve_publickey', 'curve_secretkey']" in done.path.read_text()
    assert capfd.readouterr().err == ""


def test_the_usual_and_the_quick_values_of_all_notebooks_lie_within_their_bounds():
    known = [one for path in sorted(NOTEBOOKS.glob("*.ipynb")) for one in notebook_runner.parameters(path).values()]
    assert sum(bool(one.bounds) for one in known) > 150
    assert [one.name for one in known if not (one.allows(one.default) and one.allows(one.smoke))] == []
