"""Every notebook runs with its smoke values, every claim in it holds, and it keeps to the craft of the others."""

import ast
import re
from pathlib import Path

import nbformat
import pytest

from specdec_lib.commands import notebook_runner
from specdec_lib.commands.page_conclusion import concluded, displayed

ROOT = Path(__file__).parents[1]
BOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LESSONS = [book for book in BOOKS if not book.name.startswith(("90_", "91_"))]         # a report asks nothing
METHODS = [book for book in BOOKS if re.match(r"[1-7]\d_|99_", book.name)]
BEATS = ("By hand", "The code", "Watch it", "Turn the knob", "Where it fails", "Claims", "Exercises")
BANNED = ("interact(", "interactive_output", "Output(", "renderers", "PLOTLY_RENDERER", "SPECDEC_EXPLORE",
          "pip install", "plotly", "/work", "/root", "/home", "from_pretrained")
ENV = {"PYTHONPATH": str(ROOT), "SPECDEC_EXPLORE": "html", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
       "TRANSFORMERS_OFFLINE": "1", "PLOTLY_RENDERER": "plotly_mimetype"}
# A last cell for a notebook in live mode: its own explore once more in a stack, and every control through its values.
LIVE = """
import gc
import ipywidgets
again = explore(by_budget, place=Choices(1, 2, 3, start=2))
display(show.stack(show.text("above"), again))
kinds = (ipywidgets.SelectionSlider, ipywidgets.Dropdown)
for control in [one for one in gc.get_objects() if type(one) in kinds]:
    [box] = [one for one in gc.get_objects() if type(one) is ipywidgets.VBox and control in one.children]
    titles = []
    for place in range(len(control.options)):
        control.index = place
        titles.append(box.children[-2].layout.title.text)
    print(control.description, titles)
"""
every_book = pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)
every_lesson = pytest.mark.parametrize("book", LESSONS, ids=lambda book: book.stem)
every_method = pytest.mark.parametrize("book", METHODS, ids=lambda book: book.stem)


def cells(book: Path, kind: str = "") -> list:
    found = nbformat.read(book, as_version=4).cells
    return [cell for cell in found if cell.cell_type == kind] if kind else found


def parsed(book: Path) -> ast.Module:
    """All code of a notebook as one tree; magics are not Python and fail here."""
    return ast.parse("\n".join(cell.source for cell in cells(book, "code")))


def calls(book: Path, name: str) -> list[ast.Call]:
    """Calls of a function by its own name, `name(...)` or `show.name(...)`."""
    return [node for node in ast.walk(parsed(book)) if isinstance(node, ast.Call)
            and name in (getattr(node.func, "id", ""), getattr(node.func, "attr", ""))]


@pytest.mark.notebooks
@every_book
def test_a_notebook_runs_top_to_bottom_and_its_claims_hold(book, tmp_path):
    done = notebook_runner.run_notebook(book, tmp_path / book.name, notebook_runner.smoke_values(book), env=ENV,
                                        cell_seconds=60, fork=True)
    for cell in cells(done.path, "code"):
        for output in cell.outputs:
            drawn = output.get("data", {}).get("application/vnd.plotly.v1+json")
            steps = max(1, len((drawn or {}).get("layout", {}).get("sliders", [{}])[0].get("steps", [1])))
            assert len(str(drawn)) <= 200_000 * steps, f"a figure too heavy to travel:\n{cell.source}"
    said = concluded(displayed(nbformat.read(done.path, as_version=4)))
    assert said
    assert sum(map(len, said)) <= 550, f"a conclusion is read at a glance: {said}"
    assert all(sentence.endswith(".") for sentence in said), said
    assert not re.search(r"\bnan\b|\bNone\b|  |\{", " ".join(said)), said


@pytest.mark.notebooks
def test_a_notebook_with_a_stack_of_controls_runs_live_and_each_control_redraws_its_figure(tmp_path):
    book = nbformat.read(ROOT / "notebooks" / "54_duodecoding.ipynb", as_version=4)
    shown = len(calls(ROOT / "notebooks" / "54_duodecoding.ipynb", "explore"))
    book.cells.append(nbformat.v4.new_code_cell(LIVE))
    (tmp_path / "data").symlink_to(ROOT / "data")
    live = tmp_path / "notebooks" / "live.ipynb"
    live.parent.mkdir()
    nbformat.write(book, live)
    values = notebook_runner.smoke_values(live)
    done = notebook_runner.run_notebook(live, tmp_path / "done.ipynb", values, cell_seconds=60, fork=True,
                                        env=ENV | {"SPECDEC_EXPLORE": "live"})
    outputs = [output for cell in cells(done.path, "code") for output in cell.outputs]
    assert sum("application/vnd.jupyter.widget-view+json" in one.get("data", {}) for one in outputs) == shown + 1
    said = "".join(one.text for one in outputs if one.get("name") == "stdout").splitlines()
    assert len(said) == shown + 1
    assert len(set(said)) == 1
    ends = r"\d\.\d\d to \d\.\d\d"
    titles = [f"'Right token in place {place}: {ends} times the tokens with at most 2 sequences, {ends} with 8'"
              for place in (1, 2, 3)]
    assert re.fullmatch(rf"place \[{', '.join(titles)}\]", said[0].replace("<br>", " ")), said


@every_book
def test_a_notebook_is_committed_without_outputs_and_with_a_language(book):
    found = nbformat.read(book, as_version=4)
    nbformat.validate(found)
    assert found.metadata.kernelspec.language == "python"
    for cell in cells(book, "code"):
        assert not cell.outputs, cell.source
        assert cell.execution_count is None, cell.source
        assert set(cell.metadata) <= {"tags", "jupyter"}, f"{set(cell.metadata)} is left over from a run"
        assert cell.metadata.get("jupyter", {"source_hidden": True}) == {"source_hidden": True}, "collapsed or not"


def test_the_tour_links_every_notebook_by_its_title():
    tour = "\n".join(cell.source for cell in cells(ROOT / "notebooks" / "00_tour.ipynb", "markdown"))
    for book in BOOKS[1:]:
        number, title = book.stem.split("_")[0], cells(book)[0].source.splitlines()[0].removeprefix("# ")
        assert f"{number} {title}]({book.name})" in tour or book.stem in ("40_respec", "41_diffuspec"), book.stem


@every_book
def test_a_notebook_opens_with_its_title_and_typed_parameters(book):
    first, second = cells(book)[:2]
    assert first.cell_type == "markdown"
    assert first.source.startswith("# ")
    assert second.metadata.get("tags") == ["parameters"]
    written = {node.target.id for node in ast.parse(second.source).body}
    assert set() < written == set(notebook_runner.parameters(book))


@every_book
def test_code_cells_are_short_and_stand_under_a_sentence(book):
    above = None
    for place, cell in enumerate(cells(book)):
        if cell.cell_type == "code":
            assert len(cell.source.splitlines()) <= 15, f"split this cell:\n{cell.source}"
            assert place <= 2 or above == "markdown", f"no sentence above:\n{cell.source}"
        above = cell.cell_type
    assert len(cells(book)) <= 45, "two ideas in one notebook: split it"


@every_book
def test_a_notebook_defines_nothing_long(book):
    for node in ast.walk(parsed(book)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            assert node.end_lineno - node.lineno < 6, f"{node.name} belongs into the library"


@every_book
def test_a_notebook_holds_no_widget_that_hangs_no_path_and_no_colour(book):
    code = "\n".join(cell.source for cell in cells(book, "code"))
    assert not [word for word in BANNED if word in code]
    assert not re.search(r"#[0-9a-fA-F]{6}\b", code)


@every_book
def test_a_notebook_concludes_once_in_sentences_that_are_computed(book):
    [call] = calls(book, "conclusion")
    assert [one for one in call.args if not isinstance(one, ast.Constant)], "no outcome is written by hand"


@every_book
def test_a_notebook_checks_a_claim(book):
    assert calls(book, "check")


@every_book
def test_what_a_slider_moves_was_called_plainly_before(book):
    plain = {getattr(call.func, "id", "") for call in ast.walk(parsed(book)) if isinstance(call, ast.Call)}
    plain |= {getattr(call.func, "attr", "") for call in ast.walk(parsed(book)) if isinstance(call, ast.Call)}
    for call in calls(book, "explore"):
        moved = getattr(call.args[0], "id", None) or getattr(call.args[0], "attr", None)
        assert moved in plain, "explore a named function that a cell above has called"


@every_lesson
def test_the_reader_is_asked_what_to_expect_before_each_slider(book):
    above = ""
    for cell in cells(book):
        if cell.cell_type == "code" and "explore(" in cell.source.replace("import explore", ""):
            assert "expect" in above, f"ask what the reader expects before the slider:\n{cell.source}"
        above = cell.source


@every_method
def test_a_method_notebook_has_the_eight_beats_in_order(book):
    headings = re.findall(r"^## (.+)$", "\n".join(cell.source for cell in cells(book, "markdown")), flags=re.MULTILINE)
    beats = [beat for heading in headings for beat in BEATS if heading.startswith(beat)]
    assert beats == list(BEATS)
    assert calls(book, "explore")
    assert calls(book, "source")


@every_method
def test_a_method_notebook_ends_with_three_exercises(book):
    last = cells(book, "markdown")[-1].source
    assert re.findall(r"^(\d)\. ", last, flags=re.MULTILINE) == ["1", "2", "3"]


@every_book
def test_a_line_of_ours_beside_an_equation_stands_in_the_file_that_is_named(book):
    for path, line in re.findall(r"\| `([a-z_0-9/]+\.(?:py|c|h))`: `(.+?)`[^`|]* \|", cells(book)[0].source):
        code = " ".join((ROOT / "specdec_lib" / path).read_text().split())
        assert " ".join(line.replace("\\|", "|").split()) in code, f"{path} has no line {line}"


@every_book
def test_a_link_to_another_notebook_leads_to_one(book):
    text = "\n\n".join(cell.source for cell in cells(book, "markdown"))
    assert not re.search(r"[^\n]\n\*\*(Previous|Next):", text), "links are a paragraph, not part of the last exercise"
    for name in re.findall(r"\]\(([^)#:]+\.ipynb)\)", text):
        assert (ROOT / "notebooks" / name).is_file(), name


@every_book
def test_a_notebook_ends_with_its_neighbours_in_the_order_of_files_and_with_related_notebooks(book):
    assert not (wrong := wrong_ending(cells(book)[-1].source, BOOKS.index(book))), "\n".join(wrong)


def test_a_wrong_neighbour_at_the_end_of_a_notebook_is_found():
    place = len(BOOKS) // 2
    right = cells(BOOKS[place])[-1].source
    skipped, line = right.replace(BOOKS[place + 1].name, BOOKS[place + 2].name), right.split("\n\n")[-1]
    faults = [wrong_ending(text, place) for text in (skipped, right.replace(line, ""), right.split("**Related")[0])]
    assert [len(found) for found in faults] == [2, 3, 1]     # a title of another number as well; nothing; none related


def wrong_ending(source: str, place: int) -> list[str]:
    """What the last paragraph of the notebook at this place says wrongly of its neighbours and of related notebooks."""
    parts = re.findall(r"\*\*(\w+):\*\* (.+?)(?= · \*\*|$)", " ".join(source.split("\n\n")[-1].split()))
    said = {way: re.findall(r"\[(\w+) [^]]+\]\((\S+?)\)", links) for way, links in parts}
    near = {"Previous": BOOKS[:place][-1:], "Next": BOOKS[place + 1:][:1]}
    faults = [f"{way} is {named}, and the notebook there is {right}" for way, books in near.items()
              if (named := [name for _, name in said.get(way, [])]) != (right := [one.name for one in books])]
    own = {BOOKS[place].name, *(one.name for books in near.values() for one in books)}
    faults += ["no related notebooks"] * (not {name for _, name in said.get("Related", [])} - own)
    return faults + [f"{number} is not {name}" for links in said.values() for number, name in links
                     if number != name.split("_")[0]]


@every_book
def test_a_notebook_that_replays_takes_its_recordings_from_the_parameter_of_that_name(book):
    for call in [*calls(book, "find_recordings"), *calls(book, "load_recordings")]:
        assert [ast.unparse(word) for word in call.args] == ["recordings"]
        known = notebook_runner.parameters(book)["recordings"]
        assert (known.default, known.smoke) == ("shipped", "shipped")


@every_book
def test_a_notebook_never_replays_the_shipped_recordings_alone(book):
    assert not calls(book, "shipped_recordings"), "load_recordings(recordings) reads the reader's own as well"
    known = notebook_runner.parameters(book)
    assert "family" not in known or "recordings" in known, "a family is one of a folder of recordings"


@every_book
def test_a_temperature_is_called_so(book):
    assert "heat" not in notebook_runner.parameters(book)


@every_book
def test_what_a_slider_reads_is_bound_once_so_that_it_moves_the_same_after_all_cells_have_run(book):
    trees = [ast.parse(cell.source) for cell in cells(book, "code")]
    functions = {node.name: node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for place, tree in enumerate(trees):
        for call in [node for node in ast.walk(tree) if isinstance(node, ast.Call) and called(node) == "explore"]:
            moved = functions.get(ast.unparse(call.args[0]))
            known, waiting = set[str](), list(reads(moved) if moved else ())
            while waiting:
                name = waiting.pop()
                if name not in known and name in functions:
                    waiting += reads(functions[name])
                known.add(name)
            later = set().union(*(bound(one) for one in trees[place + 1:]))
            assert not known & later, f"a later cell gives another value to {sorted(known & later)}"


def called(call: ast.Call) -> str:
    return getattr(call.func, "id", "")


def reads(function: ast.FunctionDef) -> set[str]:
    """The names from outside that a function reads."""
    names = [node for line in function.body for node in ast.walk(line) if isinstance(node, ast.Name)]
    own = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    own |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
    return {node.id for node in names} - own


def bound(cell: ast.AST) -> set[str]:
    """The names that a cell binds, those inside of its functions and comprehensions left out."""
    found, waiting = set[str](), [cell]
    inner = ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(one.asname or one.name).split(".")[0] for one in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        if not isinstance(node, inner | ast.FunctionDef):
            waiting += ast.iter_child_nodes(node)
    return found
