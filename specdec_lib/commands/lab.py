"""`specdec lab`: the notebooks in JupyterLab; what it saves into the checkout are the cells, never what a run left."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from specdec_lib.commands.notebook import FOLDER, notebook_called

HOOK = f"--ContentsManager.pre_save_hook={__name__}.without_run"
KEPT = ("tags", "jupyter")                         # of a cell's metadata: its tags, and whether its code is collapsed


def lab_command(*more: str) -> list[str]:
    """The command line that opens the tour in JupyterLab."""
    return [sys.executable, "-m", "jupyterlab", HOOK, *more, str(notebook_called("00_tour"))]


def open_lab(say: Callable[[str], None]) -> None:
    """Replaces this process by JupyterLab."""
    command = lab_command()
    say("notebooks are saved without outputs; press Ctrl-C here to end JupyterLab")
    os.execv(command[0], command)


def without_run(model: dict[str, Any], path: str, contents_manager: Any, **_: Any) -> None:
    """Takes outputs, counts and a kernel's traces out of a notebook of the workbook that JupyterLab is about to save.

    Autosave writes every two minutes: outputs would change the checkout, and its tests refuse them.
    """
    here = Path(contents_manager.root_dir, path.lstrip("/")).resolve()
    if model.get("type") != "notebook" or model.get("content") is None or here.parent != FOLDER.resolve():
        return
    book = model["content"]
    for cell in book["cells"]:
        cell["metadata"] = {name: value for name, value in cell.get("metadata", {}).items() if name in KEPT}
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    book["metadata"] = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
                        "language_info": {"name": "python"}}
