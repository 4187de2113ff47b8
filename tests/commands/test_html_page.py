"""Pages of notebooks: formulas become MathML, which needs no script; code, prices and tables stay what they are."""

import json
import re
from pathlib import Path

import nbformat
import pytest

from specdec_lib.commands.html_page import to_html, with_formulas

ROOT = Path(__file__).parents[2]
MATH = '<math xmlns="http://www.w3.org/1998/Math/MathML" display="inline">'


@pytest.mark.parametrize("text", ["costs $5 and $6", "`$a$`", "a $ b $ c", "`price = '$'` and `$`", "$5 and `$a$`"])
def test_what_is_no_formula_stays(text):
    assert with_formulas(text) == text


def test_formulas_become_mathml_wherever_they_stand():
    made = with_formulas(r"rate $\alpha$, `$code$`, $\frac{a}{b}$")
    assert made.count(MATH) == 2
    assert "<mfrac>" in made
    assert "`$code$`" in made


def test_a_page_draws_the_formula_of_a_table_and_fetches_no_script(tmp_path):
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(
        "# Title\n\n| equation | line |\n|---|---|\n| $P(x\\mid s)$ | `$` |")])
    nbformat.write(book, tmp_path / "a.ipynb")
    page = to_html(tmp_path / "a.ipynb", tmp_path / "a.html").read_text()
    assert "<td><math " in page
    assert "<td><code>$</code></td>" in page
    assert "<script src" not in page


def test_no_formula_of_a_notebook_shows_a_command_of_latex():
    texts = ["".join(cell["source"]) for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
             for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "markdown"]
    drawn = [element for text in texts for element in re.findall(r"<math.*?</math>", with_formulas(text), re.DOTALL)]
    assert len(drawn) > 50
    assert [element for element in drawn if "\\" in element] == []


def test_no_formula_of_a_notebook_spells_a_word_as_a_product_of_letters():
    texts = ["".join(cell["source"]) for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
             for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "markdown"]
    drawn = [element for text in texts for element in re.findall(r"<math.*?</math>", with_formulas(text), re.DOTALL)]
    letters = re.compile(r"<mrow>(?:<mi>[a-z]</mi>){3,}</mrow>")
    assert letters.search(with_formulas("$T_{gen}$"))
    assert [element for element in drawn if letters.search(element)] == []


def test_imports_and_collapsed_code_are_folded_in_a_page_and_other_code_is_not(tmp_path):
    collapsed = nbformat.v4.new_code_cell("hidden = 1", metadata={"jupyter": {"source_hidden": True}})
    plain = [nbformat.v4.new_code_cell(code)
             for code in ("import os\n\nfrom sys import path", "import os\nshown = os", "%time 1")]
    nbformat.write(nbformat.v4.new_notebook(cells=[*plain, collapsed]), tmp_path / "a.ipynb")
    page = to_html(tmp_path / "a.ipynb", tmp_path / "a.html").read_text()
    folds = re.findall(r"<details class=\"specdec-fold\"><summary>(.+?)</summary>(.+?)</details>", page, re.DOTALL)
    assert [name for name, _ in folds] == ["imports", "code"]
    assert ["path" in folds[0][1], "hidden" in folds[1][1]] == [True, True]
    assert "shown" not in "".join(code for _, code in folds)
    assert "<details" not in to_html(tmp_path / "a.ipynb", tmp_path / "b.html", code=False).read_text()
