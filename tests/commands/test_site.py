"""The site: pages of executed notebooks, contents with search, a gallery; every link leads somewhere."""

import json
import os
import re
import signal
from threading import Thread
from time import sleep
from types import SimpleNamespace

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from specdec_lib import cli
from specdec_lib.commands import site
from specdec_lib.commands.html_page import page_bar
from specdec_lib.commands.notebook import notebooks
from specdec_lib.commands.notebook_runner import NotebookError
from specdec_lib.commands.site_pages import GALLERY, RACES, TOUR, bibliography_page, gallery_page, index_page, subject
from tests.held_folder import refused_beside_another
from tests.small_bench import refused


@pytest.fixture(scope="module", name="built")
def _built(tmp_path_factory):
    """The site of two notebooks, one of them with links to others."""
    out = tmp_path_factory.mktemp("site")
    site.write_site(out, ["00", "02"], jobs=2, smoke=True)
    return out


@pytest.mark.notebooks
def test_a_site_of_two_notebooks_has_no_broken_link_and_fetches_nothing(built):
    assert {path.name for path in built.iterdir() if path.is_file()} == {
        "00_tour.html", "02_the_lossless_trick.html", "index.html", "gallery.html", "bibliography.html",
        "findings.md", "plotly.min.js"}
    assert site.broken_links(built) == []
    tour = (built / "00_tour.html").read_text()
    assert '<a href="02_the_lossless_trick.html"' in tour
    assert ('<span title="specdec notebook 90_report writes its page">90 Which speculative method is the fastest here?'
            '</span>') in tour
    assert ".ipynb" not in "".join(re.findall(r'href="([^"]*)"', tour))
    assert '<script src="plotly.min.js">' in tour
    assert all(path.stat().st_size < 3_000_000 for path in built.glob("*.html"))


@pytest.mark.notebooks
def test_the_contents_know_titles_and_headings_and_the_gallery_shows_a_control(built):
    index = (built / "index.html").read_text()
    [held] = re.findall(r"const held = (\[.*?\]);\n", index, re.S)
    found = {one["text"]: one["to"] for one in json.loads(held)}
    assert found["How can a draft leave the output distribution unchanged?"] == "02_the_lossless_trick.html"
    assert any(text.endswith("› Draft, then verify") and "#" in to for text, to in found.items())
    assert "specdec-explore" in (built / "gallery.html").read_text()


def test_the_longest_notebooks_are_begun_first_and_the_others_keep_their_order():
    found = [path.stem for path in site.longest_first(list(notebooks().values()))]
    assert set(found[:len(site.LONGEST)]) == set(site.LONGEST)
    assert found[len(site.LONGEST):] == [name for name in notebooks() if name not in site.LONGEST]


@pytest.mark.parametrize(("words", "said"), [
    ("", "name at least one notebook"), (" , ,", "name at least one notebook"),
    ("02,02_the_lossless_trick", "would stand twice in the site"), ("index.ipynb", "index.html would stand twice")])
def test_notebooks_that_make_no_site_are_refused_before_any_runs(words, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "index.ipynb").write_text("{}")
    assert said in refused(["site", "--notebooks", words, "--out", "out"], capsys)
    assert not (tmp_path / "out").exists()


def test_another_site_is_never_mixed_with_this_one(tmp_path, capsys):
    (tmp_path / "index.html").write_text("<h1>Mine</h1>")
    said = refused(["site", "--notebooks", "00", "--out", tmp_path], capsys)
    assert "index.html is of another site: give --out a folder of its own" in said
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]
    (tmp_path / "index.html").write_text(page_bar())
    site.refuse_other_site(tmp_path)


def test_two_sites_are_not_written_into_one_folder_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(site, "write_pages", lambda *given: pytest.fail("both wrote pages"))
    monkeypatch.setattr(site.notebook_runner, "run_notebook", lambda *given, **how: pytest.fail("both ran"))
    with refused_beside_another(tmp_path):
        site.write_site(tmp_path, ["00"])


@pytest.mark.notebooks
def test_ctrl_c_ends_the_kernels_that_run_and_begins_no_other(tmp_path, monkeypatch, capfd):
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    for name in "abc":
        cell = (f"import os, pathlib, time\npathlib.Path('{tmp_path}/{name}.pid').write_text(str(os.getpid()))\n"
                "time.sleep(600)")
        nbformat.write(new_notebook(cells=[new_code_cell(cell)], metadata=kernel), tmp_path / f"{name}.ipynb")

    def interrupt():
        while len([path for path in tmp_path.glob("*.pid") if path.read_text()]) < 2:
            sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    Thread(target=interrupt, daemon=True).start()
    monkeypatch.chdir(tmp_path)
    assert cli.run(["site", "--notebooks", "a.ipynb,b.ipynb,c.ipynb", "--jobs", "2", "--out", "out"]) == 130
    assert "the pages that are finished stay in out" in capfd.readouterr().err
    ids = [int(path.read_text()) for path in tmp_path.glob("*.pid")]
    assert len(ids) == 2
    for one in ids:
        with pytest.raises(ProcessLookupError):
            os.kill(one, 0)


def test_every_notebook_belongs_to_a_part_of_the_contents():
    books = [SimpleNamespace(name=path.stem, title=path.stem, about="", headings=(), found=())
             for path in notebooks().values()]
    index = index_page(books, gallery=False)
    assert [book.name for book in books if f'href="{book.name}.html"' not in index] == []


def test_the_contents_send_a_first_reader_to_the_tour_where_the_site_has_it():
    tour, other = (SimpleNamespace(name=name, title=name, about="", headings=(), found=())
                   for name in (TOUR, "02_other"))
    assert f'Begin with <a href="{TOUR}.html">the tour</a>' in index_page([tour, other], gallery=False)
    assert "Begin with" not in index_page([other], gallery=False)


def test_the_contents_except_the_races_from_what_works_without_a_kernel():
    races, other = (SimpleNamespace(name=name, title=name, about="", headings=(), found=())
                    for name in (RACES, "02_other"))
    said = f'but for <a href="{RACES}.html">races of your own</a>, which need JupyterLab.</p>'
    assert said in index_page([races, other], gallery=False)
    assert "without a kernel and a network.</p>" in index_page([other], gallery=False)


def test_the_contents_name_the_method_and_paper_of_a_notebook_and_the_search_knows_its_first_paragraph():
    book = SimpleNamespace(name="12_when_svip", title="When to stop?", headings=(("By hand", "by-hand"),),
                           found=("At 0.5 < h it pays.", "Else not."),
                           about="SVIP (Ng et al. 2024). The draft looks at its entropy. You will see it.")
    index = index_page([book], gallery=False)
    assert '<span class="about">12 · SVIP (Ng et al. 2024)</span>' in index
    [title, heading] = json.loads(re.findall(r"const held = (\[.*?\]);\n", index, re.S)[0])
    assert title["about"] == f"12_when_svip {book.about} At 0.5 < h it pays. Else not."
    assert '<p class="found">At 0.5 &lt; h it pays. Else not.</p>' in index
    assert (heading["text"], heading["about"]) == ("When to stop? › By hand", "")
    assert subject(SimpleNamespace(name="echo", about="word " * 99)).endswith("word …")
    assert subject(SimpleNamespace(name="40_respec", about="ReSpec (2025): " + "word " * 99)) == "40 · ReSpec (2025)"
    assert subject(SimpleNamespace(name="echo", about="")) == "echo"


def test_every_picture_of_the_gallery_names_a_control_that_its_notebook_moves_first():
    books = {path.stem: path for path in notebooks().values()}
    for name, said in GALLERY.items():
        code = [cell.source for cell in nbformat.read(books[name], as_version=4).cells if cell.cell_type == "code"]
        moved = next(source for source in code if re.search(r"^explore\(", source, re.M))
        for control in re.findall("<code>(.*?)</code>", said):
            assert f"{control}=Choices(" in moved, (name, control)
        book = SimpleNamespace(name=name, title=name, about="", headings=(), found=())
        assert f"<p>{said}</p>" in gallery_page([(book, "<div>")], "plotly.min.js")


def test_the_bibliography_links_a_work_and_the_notebooks_that_name_it():
    book = SimpleNamespace(name="40_respec", title="ReSpec", about="", headings=(), found=())
    page = bibliography_page([book], {"2511.01282": ["40_respec", "99_elsewhere"]})
    assert ('<a href="https://arxiv.org/abs/2511.01282">2511.01282</a></td><td><a href="40_respec.html">'
            "40 · ReSpec</a><" in page)
    assert "99_elsewhere" not in page
    assert "<td>EAGLE-2</td><td>–</td><td>–</td><td></td>" in page


@pytest.mark.parametrize(("body", "said"), [
    ('<a href="b.html">b</a>', ["a.html links b.html, which does not exist"]),
    ('<h2 id="x y">x</h2><a href="#x y">here</a><a href="#z">z</a>', ["a.html links #z, which has no such heading"]),
    ('<h2 id="ä, b">x</h2><a href="#%C3%A4,%20b">here</a>', []),
    ('<script src="https://cdn/x.js"></script><a href="https://a.org">a</a>', ["a.html fetches https://cdn/x.js"]),
    ('<script>"<a href=\'no\'>"</script><img src="data:x">', [])])
def test_a_link_that_leads_nowhere_is_named(tmp_path, body, said):
    (tmp_path / "a.html").write_text(body)
    assert site.broken_links(tmp_path) == said


def test_a_notebook_that_fails_is_named_after_the_others_are_written(tmp_path, monkeypatch):
    def run_notebook(path, output, values, **how):
        raise NotebookError(f"{path.name} failed in cell 3")

    monkeypatch.setattr(site.notebook_runner, "run_notebook", run_notebook)
    with pytest.raises(NotebookError, match=r"has 1 faults: 03_one_loop.ipynb failed in cell 3"):
        site.write_site(tmp_path, ["03"])
    assert (tmp_path / "index.html").is_file()
