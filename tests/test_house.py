"""The laws of the house: imports point one way, rooms do not know each other, names are unique, files stay small."""

import ast
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from specdec_lib import catalog

ROOT = Path(__file__).parents[1]
LIB = ROOT / "specdec_lib"
FILES = sorted(LIB.rglob("*.py"))
ROOMS = ("when", "what", "how")
# From the bottom up: a module imports its own folder and what stands below. The longest name that fits counts.
FLOORS = [("lazy",), ("topk",), ("scores",), ("types",), ("cards",), ("sharing",),
          ("dice", "files", "by_name", "sampling", "exact", "lattice", "linked_slots", "acceptance", "trees", "specs",
           "speculate", "parameters", "intervals", "running_fold", "collection"),
          ("cost.lengths", "cost.curves", "cost.refit", "cost.hierarchy", "cost.levels", "cost.batches",
           "cost.row_costs"), ("models",),
          ("cost.flops", "cost.roofline"), ("hub",),
          ("checkpoints",), ("heads",), ("continuous",), ("seq2seq",),
          ("index",),
          ("memory",), ROOMS, ("schedules",), ("methods",), ("catalog",), ("measure",), ("batches",), ("integrations",),
          ("cost.break_even", "cost.contention"), ("canvas",),
          ("training",), ("recordings",),
          ("bench",), ("sweep",), ("analysis",), ("toys",), ("figures",), ("show",), ("explore",), ("commands",),
          ("cli",)]
FLOOR = {name: height for height, names in enumerate(FLOORS) for name in names}
BELOW_THE_LOOP = (*ROOMS, "types", "scores", "dice")          # these may not know the loop
NOTEBOOK_LIBRARIES = {"pandas", "pyarrow", "plotly", "ipywidgets", "anywidget", "papermill", "nbconvert", "typer",
                      "rich",
                      "IPython", "jupyterlab", "nbformat"}
CORE_ENDS_BELOW = FLOOR["bench"]


def module_of(path: Path) -> str:
    """`when.fixed` for specdec_lib/when/fixed.py; a package by its own name."""
    parts = path.relative_to(LIB).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def floor_of(module: str) -> int | None:
    """The height of a module; None for the loop and the package itself, which have rules of their own."""
    while module and module not in FLOOR:
        module = module.rpartition(".")[0]
    return FLOOR.get(module)


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
    """Names inside the package that a file imports, without the package's own name."""
    return [name.removeprefix("specdec_lib.") for name in imports(path) if name.startswith("specdec_lib.")]


def test_imports_point_one_way():
    broken = []
    for path in FILES:
        mine, own = floor_of(module_of(path)), module_of(path).split(".")[0]
        for other in inner(path):
            if other.split(".")[0] == "loop":
                broken += [f"{path.relative_to(LIB)} may not know the loop"] * (own in BELOW_THE_LOOP)
            elif mine is not None and other.split(".")[0] != own and floor_of(other) >= mine:
                broken.append(f"{path.relative_to(LIB)} imports {other}")
    assert not broken, "imports point one way:\n" + "\n".join(broken)
    assert {name.split(".")[0] for name in inner(LIB / "loop.py")} <= {"types", "scores", "speculate"}


def test_parts_do_not_know_each_other_and_methods_name_them_by_card():
    broken = [f"{path.relative_to(LIB)} imports {name}" for room in (*ROOMS, "methods")
              for path in (LIB / room).glob("*.py")
              for name in inner(path) if name.split(".")[0] in ROOMS]
    assert not broken, "parts are put together by kit.part(name):\n" + "\n".join(broken)


def test_everything_below_the_bench_runs_without_notebooks_tables_and_a_terminal():
    core = [path for path in FILES if (floor_of(module_of(path)) or 0) < CORE_ENDS_BELOW]
    broken = [f"{path.relative_to(LIB)} imports {name}" for path in core for name in imports(path)
              if name.split(".")[0] in NOTEBOOK_LIBRARIES]
    assert not broken, "torch, transformers, numpy and safetensors alone:\n" + "\n".join(broken)


def test_files_and_functions_are_small_say_what_they_are_do_not_print_and_class_names_are_unique():
    broken, classes = [], defaultdict(list)
    for path in FILES:
        text, name = path.read_text(), str(path.relative_to(LIB))
        tree = ast.parse(text)
        broken += [f"{name} has no docstring"] * (not ast.get_docstring(tree))
        broken += [f"{name} has over 300 lines"] * (len(text.splitlines()) > 300)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= 45:
                broken.append(f"{name}: {node.name} has over 45 lines")
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                broken.append(f"{name} prints: the library returns, the command line prints")
            elif isinstance(node, ast.ClassDef):
                classes[node.name].append(name)
    broken += [f"{path.relative_to(ROOT)} has over 300 lines: split it by what it tests"
               for path in (ROOT / "tests").rglob("*.py") if len(path.read_text().splitlines()) > 300]
    broken += [f"{name} is a class in {', '.join(places)}" for name, places in classes.items() if len(places) > 1]
    assert not broken, "\n".join(broken)


def test_the_map_in_the_readme_is_what_the_imports_say():
    made = subprocess.run([sys.executable, ROOT / ".ci/package_map.py"], capture_output=True, text=True, check=True)
    assert made.stdout.strip() in (ROOT / "docs" / "house.md").read_text(), "run `python .ci/package_map.py --write`"


def test_every_card_has_a_notebook_every_part_a_test_of_its_name_and_tests_mirror_the_package():
    cards = [card for room in (*catalog.parts().values(), catalog.methods()) for card in room.values()]
    broken = [f"the card {card.name} lacks idea, source or a file notebooks/{card.notebook}.ipynb" for card in cards
              if not (card.idea and card.source and (ROOT / "notebooks" / f"{card.notebook}.ipynb").is_file())]
    broken += [f"{room}/{path.name} has no test of its name" for room in ROOMS
               for path in (LIB / room).glob("[a-z]*.py")
               if not (ROOT / "tests" / room / f"test_{path.name}").is_file()]
    folders = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")}
    broken += [f"tests/{folder} mirrors no folder of the package" for folder in folders if not (LIB / folder).is_dir()]
    assert not broken, "\n".join(broken)
