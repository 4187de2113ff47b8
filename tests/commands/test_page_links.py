"""Links between notebooks: to the page of one that has a page beside this one, and no dead link to any other."""

import shutil

import pytest

from specdec_lib.commands import notebook, site
from specdec_lib.commands.page_links import linked

THERE = '<a href="51_pearl.html#Claims" class="x">51 PEARL</a>'
NAMED = '<span title="specdec notebook 51_pearl writes its page">51 PEARL</span>'


@pytest.mark.parametrize(("beside", "made"), [(["50_two_workers", "51_pearl"], THERE), (["50_two_workers"], NAMED),
                                              ([], NAMED)])
def test_a_link_leads_to_a_page_that_is_there_and_else_becomes_text(beside, made):
    link = '<p><a href="51_pearl.ipynb#Claims" class="x">51 PEARL</a></p>'
    assert linked(link, beside) == f"<p>{made}</p>"


@pytest.mark.parametrize("link", ['<a href="https://arxiv.org/a.ipynb">a</a>', '<a href="#part">here</a>',
                                  '<a href="../elsewhere/a.ipynb">a</a>'])
def test_other_links_stay(link):
    assert linked(link, ["a"]) == link


def test_a_page_alone_has_no_dead_link_and_says_how_the_others_are_made(tmp_path, monkeypatch):
    monkeypatch.setattr(notebook.notebook_runner, "run_notebook",
                        lambda path, executed, *_, **__: shutil.copyfile(path, executed))
    tour = notebook.notebook_called("00")
    assert ".ipynb" in tour.read_text()
    html = notebook.write_page(tour, {}, tmp_path / "tour.html").read_text()
    assert site.broken_links(tmp_path) == []
    assert '<span title="specdec notebook 04_speed_algebra writes its page">' in html
    assert "<code>specdec site</code>" in html


def test_the_page_of_a_readers_own_notebook_is_not_called_one_of_the_workbook(tmp_path, monkeypatch):
    monkeypatch.setattr(notebook.notebook_runner, "run_notebook",
                        lambda path, executed, *_, **__: shutil.copyfile(path, executed))
    shutil.copyfile(notebook.notebook_called("99"), tmp_path / "mine.ipynb")
    html = notebook.write_page(tmp_path / "mine.ipynb", {}, tmp_path / "out.html").read_text()
    assert "specdec site" not in html
