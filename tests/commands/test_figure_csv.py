"""The numbers of a figure stand in its page as CSV, and are those of the figure."""

import base64
import csv
import io
import re

import nbformat
import numpy as np
import plotly.graph_objects as go
import pytest

from specdec_lib import figures
from specdec_lib.commands.figure_csv import csv_link, explored_csv, figure_csv, values
from specdec_lib.commands.html_page import to_html
from specdec_lib.explore import Choices, explore
from tests.hostile import SCRIPT, running

LINK = re.compile(r'<a class="specdec-csv" download="([^"]*)" href="data:text/csv;charset=utf-8;base64,([^"]*)"')


def read(text):
    return list(csv.DictReader(io.StringIO(text)))


def linked(html):
    """File name -> rows, of all links of a page."""
    return {name: read(base64.b64decode(data).decode()) for name, data in LINK.findall(html)}


def page(tmp_path, *shown, numbers=True):
    """The page of a notebook whose cells show these."""
    cells = []
    for one in shown:
        data = ({"application/vnd.plotly.v1+json": one.to_plotly_json() | {"layout": one.layout.to_plotly_json()}}
                if isinstance(one, go.Figure) else {"text/html": one.html})
        cell = nbformat.v4.new_code_cell("x", outputs=[nbformat.v4.new_output("display_data", data=data)])
        cells.append(cell)
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "a.ipynb")
    return to_html(tmp_path / "a.ipynb", tmp_path / "a.html", code=False, plotly="p.js", numbers=numbers).read_text()


def speeds(k=2.5, name="sam, long"):
    return figures.speedups(["ar", name], [1.0, k], [None, (2.0, 3.5)], [1, None], title=f"k is {k}")


def test_the_csv_in_the_page_holds_the_data_of_the_figure(tmp_path):
    figure = speeds()
    found = linked(page(tmp_path, figure))
    assert list(found) == ["k-is-2-5.csv"]
    bar, points = figure.data
    rows = {(row["series"], row["x"]): row for row in found["k-is-2-5.csv"]}
    assert [rows[bar.name, x]["y"] for x in bar.x] == [str(y) for y in bar.y]
    assert [float(rows[bar.name, "sam, long"][f"y {side}"]) for side in ("above", "below")] == [1.0, 0.5]
    assert rows[points.name, "ar"]["y"] == "1.0"
    assert rows[points.name, "sam, long"]["y"] == ""
    assert len(rows) == 4


def test_without_being_asked_a_page_has_no_csv(tmp_path):
    assert linked(page(tmp_path, speeds(), numbers=False)) == {}


def test_every_picture_of_a_control_is_in_its_csv(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECDEC_EXPLORE", "html")
    shown = explore(speeds, k=Choices(2.5, 4.0), name=Choices("sam", "eagle"))
    [rows] = linked(page(tmp_path, shown)).values()
    measured = {(row["k"], row["name"]): row["y"] for row in rows if row["series"].startswith("measured")
                and row["x"] != "ar"}
    assert measured == {(str(k), name): str(k) for k in (2.5, 4.0) for name in ("sam", "eagle")}


def test_a_control_without_figures_has_no_csv(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECDEC_EXPLORE", "html")
    from specdec_lib import show
    assert linked(page(tmp_path, explore(lambda k: show.text(f"k is {k}"), k=Choices(1, 2)))) == {}


def test_a_grid_has_a_row_for_each_cell():
    found = read(figure_csv({"data": [{"type": "heatmap", "x": [1, 2], "y": ["a", "b"], "z": [[1, 2], [3, None]]}]}))
    assert [tuple(row.values()) for row in found] == [("", "1", "a", "1"), ("", "2", "a", "2"), ("", "1", "b", "3"),
                                                      ("", "2", "b", "")]
    assert len(read(figure_csv({"data": [{"z": [[1, 2]]}]}))) == 2


def test_what_a_shorter_column_lacks_is_empty():
    assert [row["y"] for row in read(figure_csv({"data": [{"x": [1, 2], "y": [3]}]}))] == ["3", ""]


@pytest.mark.parametrize(("packed", "plain"), [
    (go.Figure(go.Bar(y=np.array([1.5, 2.5]))).to_plotly_json()["data"][0]["y"], [1.5, 2.5]),
    ({"dtype": "i1", "bdata": base64.b64encode(bytes([1, 2, 3, 4])).decode(), "shape": "2, 2"}, [[1, 2], [3, 4]]),
    ("text", []), (None, []), ([1, None], [1, None])])
def test_values_are_read_however_they_are_packed(packed, plain):
    assert values(packed) == plain


def test_names_from_outside_stay_data():
    link = csv_link(figure_csv({"data": [{"name": SCRIPT, "x": [SCRIPT], "y": [1]}]}), SCRIPT)
    assert running(link) == []
    [[row]] = linked(link).values()
    assert (row["series"], row["x"]) == (SCRIPT, SCRIPT)


def test_a_figure_without_points_has_no_link():
    assert csv_link(figure_csv({"data": []}), "any") == ""
    assert csv_link(explored_csv({"labels": {}, "at": {}}), "any") == ""
