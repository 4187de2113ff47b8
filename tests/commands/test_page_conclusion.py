"""What a notebook concludes stands below its title, in the site's contents, and nowhere if there is none."""

import nbformat
import pytest

from specdec_lib import show
from specdec_lib.commands.html_page import to_html
from specdec_lib.commands.page_conclusion import BOX, concluded, with_conclusion
from specdec_lib.commands.site import site_page
from specdec_lib.show.html import CONCLUSION

OPENING = "# Does it pay?\n*A paper (2025).* It drafts.\n**You will see** it.\n\n| equation |\n|---|\n| a |"
SENTENCES = ("It pays where a < b: 1.20 times.", "Not below 3 tokens.")


def book(*displays):
    """A notebook of a title, a paragraph, and a cell for each of these displays, executed."""
    cells = [nbformat.v4.new_markdown_cell(OPENING), nbformat.v4.new_code_cell("import os")]
    for one in displays:
        shown = nbformat.v4.new_output("execute_result", {"text/html": one._repr_html_()})
        cells.append(nbformat.v4.new_code_cell("show.conclusion(said)", outputs=[shown]))
    return nbformat.v4.new_notebook(cells=cells)


def page_of(notebook, folder, **how):
    nbformat.write(notebook, folder / "a.ipynb")
    return to_html(folder / "a.ipynb", folder / "a.html", **how).read_text()


@pytest.mark.parametrize("code", [True, False])
def test_a_page_says_below_its_title_what_its_notebook_concludes_and_links_the_place(tmp_path, code):
    page = page_of(book(show.text("first"), show.conclusion(*SENTENCES)), tmp_path, code=code)
    body = page[page.index("<body"):]
    places = [body.index(one) for one in ("A paper (2025).", "You will see", f'<div class="{BOX}">', "<table", "first")]
    assert places == sorted(places)
    assert body.count("It pays where a &lt; b: 1.20 times.") == 2
    assert f'href="#{CONCLUSION}"' in body
    assert body.count(f'id="{CONCLUSION}"') == 1


def test_the_contents_hold_the_sentences_as_plain_text(tmp_path):
    found = site_page("a", page_of(book(show.stack(show.text("first"), show.conclusion(*SENTENCES))), tmp_path))
    assert (found.title, found.about) == ("Does it pay?", "A paper (2025). It drafts. You will see it.")
    assert found.found == SENTENCES


def test_a_notebook_without_a_conclusion_gets_no_box(tmp_path):
    page = page_of(book(show.text("first")), tmp_path)
    assert f'<div class="{BOX}">' not in page
    assert concluded(page) == ()


@pytest.mark.parametrize("opening", ["# Title alone", "# Title\nA line.", "No title.\n\nA paragraph.", ""])
def test_an_opening_of_another_kind_stays_whole_above_the_conclusion(opening):
    notebook = book(show.conclusion(*SENTENCES))
    notebook.cells[0].source = opening
    with_conclusion(notebook)
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    assert [text for text in texts if BOX not in text] == [opening] * bool(opening)
    assert BOX in texts[-1]


def test_an_empty_notebook_stays_empty():
    empty = nbformat.v4.new_notebook()
    with_conclusion(empty)
    assert empty.cells == []


def test_a_conclusion_leaves_empty_sentences_out_and_is_text_in_a_terminal():
    said = show.conclusion("Two of three.", "", "  ")
    assert repr(said) == "Two of three."
    assert concluded(said._repr_html_()) == ("Two of three.",)
