"""Figures of a page follow its reader: on a narrow screen nothing is cut, on a dark page everything is legible."""

import json

import nbformat
import pytest

from specdec_lib import figures
from specdec_lib.commands.html_page import FIGURE, to_html
from specdec_lib.commands.page_figures import GROUND, LETTERS, MARKS, figure_script
from specdec_lib.figures.theme import PALETTE, SERIES, contrast
from specdec_lib.show.page_controls import page_with_controls
from tests.chromium import chromium

LONG = "a method of many parts, respec(theta=2.5,penalty=0.1) over eagle2(steps=6,topk=10)"
STEPS = [f"+ step {n}" for n in range(9)]
PICTURES = {
    "ratios": lambda: figures.ratios([LONG, "sam"], [1.1, .9], [(1.0, 1.2), (.8, .95)],
                                     "Of the two comparisons of this long title one is surely slower and one is not"),
    "regrets": lambda: figures.regrets({LONG: .2, "fixed 1": .35}),
    "waterfall": lambda: figures.waterfall(STEPS, [1.1] * 9, [(1.05, 1.2)] * 9),
    "by_family": lambda: figures.by_family(["qa", "rag"], {f"method number {n}": [1.0, 1 + n / 9] for n in range(9)}),
    "map": lambda: figures.schedule_map([.5, .9], [2, 10], [["plain", "serial"], ["serial", "pearl"]],
                                        {"here": (.6, 3), "there": (.8, 7)}),
    "board": lambda: figures.board([4] + [0] * 80, [0] * 81, [.9] + [None] * 80, {0: 1})}
# The texts of all figures that leave their figure, and legends that meet a title.
FAULTS = """(() => {
  const found = [], box = one => one.getBoundingClientRect();
  const meet = (a, b) => a.left < b.right && b.left < a.right && a.top + 1 < b.bottom && b.top + 1 < a.bottom;
  for (const plot of document.querySelectorAll(".js-plotly-plot")) {
    const around = box(plot);
    for (const text of plot.querySelectorAll(".main-svg text")) {
      const own = box(text);
      if (text.textContent && (own.left < around.left - 1 || own.right > around.right + 1 || own.top < around.top - 1
          || own.bottom > around.bottom + 1)) found.push(`cut: ${text.textContent}`);
    }
    const title = plot.querySelector(".gtitle"), keys = plot.querySelector(".legend");
    if (title && keys && meet(box(title), box(keys))) found.push(`the legend runs into: ${title.textContent}`);
    if (keys && box(keys).right > around.right + 1) found.push(`the legend leaves: ${title.textContent}`);
  }
  return found;
})()"""
# Inks of letters on the ground of a page, and of those within maps.
INKS = """map => [...document.querySelectorAll(".js-plotly-plot text")].filter(text => text.textContent
  && !text.closest(".barlayer") && map === Boolean(text.closest(".annotation, .scatterlayer")
  && text.closest(".js-plotly-plot").querySelector(".heatmaplayer image"))).map(text => getComputedStyle(text).fill)"""


@pytest.fixture(scope="module", name="written")
def _written(tmp_path_factory):
    """A page with every picture, one of them under a control, and no code."""
    made = {name: json.loads(picture().to_json()) for name, picture in PICTURES.items()}
    pages = {(0,): PICTURES["ratios"](), (1,): PICTURES["regrets"]()}
    moved = page_with_controls([("n", ["1", "2"], False)], (0,), pages)
    held = [{FIGURE: figure} for figure in made.values()] + [{"text/html": moved.html}]
    cells = [nbformat.v4.new_code_cell("", outputs=[nbformat.v4.new_output("display_data", one)]) for one in held]
    home = tmp_path_factory.mktemp("page")
    nbformat.write(nbformat.v4.new_notebook(cells=cells), home / "a.ipynb")
    return to_html(home / "a.ipynb", home / "a.html")


@pytest.fixture(scope="module", name="shown")
def _shown(written):
    """shown(width, theme): the page in a browser."""
    with chromium() as browser:
        def show(width, theme="light"):
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
            page.goto(written.as_uri(), wait_until="load")
            page.wait_for_function(f"document.querySelectorAll('.js-plotly-plot .main-svg').length > {len(PICTURES)}")
            return page

        yield show


def test_the_script_stands_behind_plotly_and_only_where_there_are_figures(written, tmp_path):
    page = written.read_text()
    assert page.index("plotly.js v") < page.index(figure_script()) < page.index("plotly-graph-div")
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Words")]), tmp_path / "b.ipynb")
    assert figure_script() not in to_html(tmp_path / "b.ipynb", tmp_path / "b.html").read_text()


def test_inks_of_the_dark_theme_are_told_from_its_ground():
    assert min(contrast(LETTERS.get(ink, ink), GROUND) for ink in LETTERS) >= 4.5
    drawn = [*PALETTE.values(), *(look[0] for look in SERIES), "#222222"]
    assert min(contrast(MARKS.get(ink, ink), GROUND) for ink in drawn) >= 3
    assert contrast(MARKS[PALETTE["target"]], "#ffffff") >= 4.5          # white numbers stand on such bars


@pytest.mark.browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_on_a_narrow_screen_nothing_of_a_figure_is_cut_and_legends_stay_below_titles(shown, theme):
    page = shown(420, theme)
    assert page.evaluate(FAULTS) == []
    assert page.evaluate("document.querySelectorAll('.js-plotly-plot')[2].layout.annotations.length") == 0
    page.locator("[data-control]").press("ArrowRight")
    page.wait_for_function("document.querySelector('.view .js-plotly-plot').textContent.includes('oracle')")
    assert page.evaluate(FAULTS) == []
    page.set_viewport_size({"width": 1200, "height": 900})
    page.wait_for_function("document.querySelectorAll('.js-plotly-plot')[2].layout.annotations.length === 9")


@pytest.mark.browser
def test_a_wide_light_page_draws_its_figures_as_they_were_written(shown):
    drawn = shown(1200).evaluate("[...document.querySelectorAll('.js-plotly-plot')].map(({data, layout}) => "
                                 "({names: data.map(one => one.name ?? null), title: layout.title, "
                                 "margin: layout.margin ?? null, template: layout.template}))")
    written = [json.loads(picture().to_json()) for picture in (*PICTURES.values(), PICTURES["ratios"])]
    assert drawn == [{"names": [one.get("name") for one in figure["data"]], "title": figure["layout"]["title"],
                      "margin": figure["layout"].get("margin"), "template": figure["layout"]["template"]}
                     for figure in written]


@pytest.mark.browser
def test_a_dark_page_has_dark_figures_with_legible_letters_and_the_button_turns_them_light(shown):
    page = shown(1200, "dark")

    def inks(of_maps=False):
        found = page.evaluate(INKS, of_maps)
        return {"#" + "".join(f"{int(part):02x}" for part in ink[4:-1].split(",")) for ink in found}

    papers = "[...document.querySelectorAll('.js-plotly-plot')].map(plot => plot.layout.paper_bgcolor ?? 'white')"
    assert set(page.evaluate(papers)) == {GROUND}
    assert min(contrast(ink, GROUND) for ink in inks()) >= 4.5
    assert inks(True) == {"#222222"}
    page.get_by_role("button", name="light or dark").click()
    page.wait_for_function(f"{papers}.every(paper => paper === 'white')")
    assert min(contrast(ink, "#ffffff") for ink in inks()) >= 4.5
