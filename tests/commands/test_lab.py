"""JupyterLab's saves leave the notebooks of the checkout as they were, outputs are kept nowhere else either."""

import asyncio

import nbformat
import pytest
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from traitlets.config import Config

from specdec_lib.commands import lab, notebook


@pytest.fixture(name="saved")
def _saved(tmp_path, monkeypatch):
    """Saves a notebook that was run, as JupyterLab does, and returns the bytes before and after."""
    def saved(folder: str):
        source = notebook.notebook_called("03")
        path = tmp_path / folder / source.name
        path.parent.mkdir()
        path.write_bytes(source.read_bytes())
        monkeypatch.setattr(lab, "FOLDER", tmp_path / "notebooks")
        book = nbformat.read(path, as_version=4)
        book.metadata = {"kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python",
                                        "name": "python3"}, "widgets": {}, "language_info": {"version": "3.11"}}
        code = [cell for cell in book.cells if cell.cell_type == "code"]
        for cell in code:
            cell.execution_count, cell.metadata["trusted"] = 7, True
            cell.outputs = [nbformat.v4.new_output("stream", text="seen")]
        option, _, hook = lab.HOOK.removeprefix("--").partition("=")
        config = Config({option.partition(".")[0]: {option.partition(".")[2]: hook}})
        manager = AsyncLargeFileManager(root_dir=str(tmp_path), config=config)
        asyncio.run(manager.save({"type": "notebook", "content": book}, f"{folder}/{path.name}"))
        return source.read_bytes(), path.read_bytes()
    return saved


def test_a_notebook_that_was_run_and_saved_is_the_committed_one_byte_by_byte(saved):
    before, after = saved("notebooks")
    assert after == before


def test_a_notebook_elsewhere_keeps_its_outputs(saved):
    _, after = saved("mine")
    assert b'"seen"' in after


def test_the_lab_opens_on_the_tour():
    command = lab.lab_command()
    assert command[1:3] == ["-m", "jupyterlab"]
    assert command[-1].endswith("00_tour.ipynb")
    assert lab.HOOK in command
