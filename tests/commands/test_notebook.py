"""`specdec notebook`: finds a notebook by number or name, checks values before it starts, writes one page."""

import json
import shutil

import pytest

from specdec_lib.cli import run
from specdec_lib.commands import notebook
from specdec_lib.files import alone_in
from specdec_lib.models.replay import shipped_recordings
from specdec_lib.types import Refusal
from tests.held_folder import refused_beside_another
from tests.small_bench import refused


@pytest.mark.parametrize("word", ["03", "03_one_loop", "one_loop", "notebooks/03_one_loop.ipynb"])
def test_a_notebook_is_found_by_its_number_its_name_or_its_path(word):
    assert notebook.notebook_called(word).stem == "03_one_loop"


@pytest.mark.parametrize(("words", "said"), [
    (["77"], "there is no notebook '77': `specdec notebook` alone lists them all"),
    (["one_lop"], "there is no notebook 'one_lop': did you mean 03_one_loop?"),
    (["03", "-p", "dept=3"], "03_one_loop.ipynb has no parameter 'dept'; it has:"),
    (["03", "-p", "depth=deep"], "depth of 03_one_loop.ipynb is of type int, got 'deep'"),
    (["03", "-p", "depth"], "-p takes name=value, got 'depth'"),
    (["-p", "depth=3"], "-p and --parameters are of one notebook: name it"),
    (["04", "--recordings", "data/recordings"], "replays no recordings: leave --recordings away"),
    (["03", "--recordings", "tests"], "there are no recordings in")])
def test_what_does_not_fit_is_one_sentence_and_exit_code_2(words, said, capsys, tmp_path, monkeypatch):
    assert run(["notebook", *words, "--out", str(tmp_path / "page.html")]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert len(told.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_without_a_name_the_titles_are_listed_and_parameters_with_their_meaning(capsys):
    assert run(["notebook"]) == 0
    assert "What does one round pass from room to room?" in capsys.readouterr().out
    assert run(["notebook", "03", "--parameters"]) == 0
    assert "depth: int = 5  tokens drafted in a round by hand" in capsys.readouterr().out


def test_recordings_of_another_folder_bring_their_families_along(tmp_path):
    shutil.copy(shipped_recordings()["qa"], tmp_path / "mine.safetensors")
    path = notebook.notebook_called("03")
    assert notebook.values_of(path, ["depth=3"], tmp_path) == {
        "depth": 3, "recordings": str(tmp_path), "family": "mine"}
    assert notebook.values_of(path, ["family=other"], tmp_path)["family"] == "other"


def test_a_folder_that_exists_here_is_found_from_the_notebooks_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results" / "mine").mkdir(parents=True)
    path = notebook.notebook_called("91")
    assert notebook.values_of(path, ["sweep=results/mine"]) == {"sweep": str(tmp_path / "results" / "mine")}
    assert notebook.values_of(path, ["sweep=results/other"]) == {"sweep": "results/other"}


def test_a_file_that_exists_here_is_found_and_a_long_prompt_is_a_prompt(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.json").touch()
    assert notebook.values_of(notebook.notebook_called("01"), ["curve=mine.json"]) == {
        "curve": str(tmp_path / "mine.json")}
    prompt = "rivers " * 60 + "and/or lakes"
    assert notebook.values_of(notebook.notebook_called("06"), [f"prompt={prompt}"]) == {"prompt": prompt}


def test_the_page_is_not_written_over_the_notebook(tmp_path):
    path = tmp_path / "a.ipynb"
    path.write_text("{}")
    with pytest.raises(Refusal, match="would put the executed notebook over"):
        notebook.write_page(path, {}, tmp_path / "a.html")


@pytest.mark.parametrize(("out", "said"), [
    ("other.html", "would put the executed notebook over"), ("page.ipynb", "let --out end with .html"),
    ("folder", "is a folder, and a file is written there"), (".", "is a folder"), ("/", "is a folder"),
    ("other.ipynb/page.html", "is no folder: give another path")])
def test_a_page_is_only_put_where_nothing_is_lost(out, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "other.ipynb").write_text('{"metadata": {}}')
    assert said in refused(["notebook", "03", "--out", out], capsys)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "other.ipynb"]
    assert (tmp_path / "other.ipynb").read_text() == '{"metadata": {}}'


def test_one_process_at_a_time_writes_a_page(tmp_path, monkeypatch):
    path, page = notebook.notebook_called("03"), tmp_path / "a.html"
    with refused_beside_another(tmp_path, "a.ipynb"):
        notebook.write_page(path, {}, page)
    monkeypatch.setattr(notebook.notebook_runner, "run_notebook", lambda *given, **how: None)
    monkeypatch.setattr(notebook.html_page, "to_html", lambda *given, **how: page)
    with alone_in(tmp_path, "b.ipynb"):            # another page of the same folder
        assert notebook.write_page(path, {}, page) == page
    assert not list(tmp_path.iterdir())


def test_an_executed_notebook_may_be_replaced_and_a_copy_of_one_that_never_began(tmp_path):
    path, executed = notebook.notebook_called("03"), tmp_path / "a.ipynb"
    shutil.copy(path, executed)
    assert notebook.may_be_replaced(executed, path)
    executed.write_text('{"metadata": {"papermill": {}}}')
    assert notebook.may_be_replaced(executed, path)
    for mine in ('{"metadata": {}}', "[]", "{", "[" * 100_000):
        executed.write_text(mine)
        assert not notebook.may_be_replaced(executed, path)


@pytest.mark.notebooks
def test_a_notebook_runs_on_the_readers_own_recordings_and_its_page_stands_alone(tmp_path):
    shutil.copy(shipped_recordings()["qa"], tmp_path / "mine.safetensors")
    page = tmp_path / "out" / "page.html"
    assert run(["notebook", "03", "--recordings", str(tmp_path), "-p", "depth=3", "--out", str(page)]) == 0
    html = page.read_text()
    values = json.loads(page.with_suffix(".ipynb").read_text())["metadata"]["papermill"]["parameters"]
    assert values == {"recordings": str(tmp_path), "family": "mine", "depth": 3}
    assert ' src="http' not in html
    assert len(html) < 15_000_000
