"""The laws of the house: imports point one way, rooms do not know each other, files stay small."""

import ast
from pathlib import Path

import pytest

from specdec_lib import catalog

ROOT = Path(__file__).parents[1]
LIB = ROOT / "specdec_lib"
FLOORS = [("blocks",), ("types",), ("dice", "sampling", "exact", "drafting", "leniency", "verifying", "lattice"),
          ("models",), ("index",), ("when", "what", "how"), ("methods",), ("catalog",), ("measure",), ("cost",),
          ("training",), ("bench",), ("figures",), ("show",), ("explore",), ("cli",)]
FLOOR = {name: height for height, names in enumerate(FLOORS) for name in names}
CORE = {"blocks", "types", "dice", "sampling", "exact", "drafting", "leniency", "verifying", "lattice", "models",
        "index", "when", "what", "how", "methods", "catalog", "loop", "measure", "cost", "training"}
OUTSIDE_CORE = {"pandas", "pyarrow", "plotly", "ipywidgets", "anywidget", "papermill", "nbconvert", "typer", "rich",
                "IPython", "jupyterlab", "nbformat"}
FILES = sorted(LIB.rglob("*.py"))


def place(path: Path) -> str:
    """The room or file of the house that a module stands in."""
    first = path.relative_to(LIB).parts[0]
    return first.removesuffix(".py")


def imports(path: Path) -> list[str]:
    """Full names of everything a file imports, wherever in the file it does so."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are absolute"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def inner(path: Path) -> list[str]:
    """The places of the house that a file imports from."""
    return [name.split(".")[1] for name in imports(path) if name.startswith("specdec_lib.")]


@pytest.mark.parametrize("path", [f for f in FILES if place(f) in FLOOR], ids=lambda f: str(f.relative_to(LIB)))
def test_imports_point_one_way(path):
    mine = FLOOR[place(path)]
    for other in inner(path):
        if other == "loop":
            rooms = ("when", "what", "how", "types", "dice")
            assert place(path) not in rooms, f"{path.name}: a room may not know the loop"
        elif other != place(path) and other in FLOOR:
            assert FLOOR[other] < mine, f"{path.relative_to(LIB)} imports {other}: imports point one way"


@pytest.mark.parametrize("room", ["when", "what", "how"])
def test_files_of_one_room_import_neither_another_room_nor_each_other(room):
    for path in (LIB / room).glob("*.py"):
        for name in imports(path):
            if name.startswith("specdec_lib."):
                foreign = name.split(".")[1] in ("when", "what", "how")
                assert not foreign, f"{path.name} imports {name}: put them together in methods/"


def test_methods_name_their_parts_by_card_and_import_no_room():
    for path in (LIB / "methods").glob("*.py"):
        assert not {"when", "what", "how"} & set(inner(path)), f"{path.name}: use kit.part(name)"


def test_the_loop_knows_types_alone():
    assert set(inner(LIB / "loop.py")) == {"types"}


@pytest.mark.parametrize("path", [f for f in FILES if place(f) in CORE], ids=lambda f: str(f.relative_to(LIB)))
def test_the_core_runs_without_notebooks_and_tables(path):
    outer = {name.split(".")[0] for name in imports(path)}
    assert not outer & OUTSIDE_CORE, f"{path.name} is core: torch, transformers, numpy and safetensors alone"


@pytest.mark.parametrize("path", FILES, ids=lambda f: str(f.relative_to(LIB)))
def test_files_are_small_and_say_what_they_are(path):
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text)), f"{path.name} starts with a sentence on what it is"
    assert len(text.splitlines()) <= 420, f"{path.name}: two ideas in one place, split it"


def test_the_library_does_not_print():
    for path in FILES:
        calls = [node.func.id for node in ast.walk(ast.parse(path.read_text()))
                 if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
        assert "print" not in calls, f"{path.name}: the library returns, the command line prints"


def every_card():
    return [card for room in (*catalog.parts().values(), catalog.methods()) for card in room.values()]


@pytest.mark.parametrize("card", every_card(), ids=lambda card: card.name)
def test_every_card_names_its_idea_source_and_a_notebook_that_exists(card):
    assert card.idea and card.source
    assert (ROOT / "notebooks" / f"{card.notebook}.ipynb").is_file(), f"{card.name}: no notebook {card.notebook}"


def test_every_part_has_a_test_of_the_same_name():
    for room in ("when", "what", "how"):
        for path in (LIB / room).glob("[a-z]*.py"):
            test = ROOT / "tests" / room / f"test_{path.name}"
            assert test.is_file(), f"{room}/{path.name} has no test of its name"
