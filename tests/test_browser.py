"""As a reader would: JupyterLab, exported pages and the site in a browser, with every control moved once.

`make test-browser` runs it. Screenshots and the time that every control took are kept in results/browser/.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import nbformat
import papermill
import pytest

from specdec_lib.commands import notebook_runner, report, site
from specdec_lib.commands.notebook import notebook_called, write_page
from specdec_lib.figures.theme import contrast
from tests.chromium import chromium

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "results" / "browser"
BOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SETTINGS = {"notebook-extension/tracker": {"windowingMode": "none"},
            "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False}}
PATIENCE = 5                                       # seconds for a control to change its picture
# A picture is the data of its figures and its text without the labels of the controls.
LAB_CONTROLS = """[...document.querySelectorAll('.jp-OutputArea-output .widget-inline-hbox')]
  .filter(row => row.querySelector('.noUi-handle, select'))"""
SEEN = """(box => [...box.querySelectorAll('.js-plotly-plot')].map(one => JSON.stringify([one.data, one.layout.title]))
  .join() + [...box.querySelectorAll('.widget-html-content, .view > div:not(.js-plotly-plot)')]
  .map(one => one.innerHTML).join())"""

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module", name="page")
def _page(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(scope="module", name="lab")
def _lab(tmp_path_factory):
    """The address of a JupyterLab on copies of the notebooks, with the values of a quick run."""
    home = tmp_path_factory.mktemp("lab")
    books = home / "notebooks"
    books.mkdir()
    (home / "data").symlink_to(ROOT / "data")
    for path in BOOKS:
        book = papermill.parameterize.parameterize_notebook(papermill.iorw.load_notebook_node(str(path)),
                                                            notebook_runner.smoke_values(path))
        nbformat.write(book, books / path.name)
    for name, values in SETTINGS.items():
        kept = home / "config" / "lab" / "user-settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(values))
    env = {**os.environ, "PYTHONPATH": str(ROOT), "JUPYTER_CONFIG_DIR": str(home / "config"),
           "JUPYTER_RUNTIME_DIR": str(home / "run"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--port=0",
               f"--ServerApp.root_dir={books}", "--LabApp.expose_app_in_browser=True"]
    with (home / "log").open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=env)
    try:
        start = monotonic()
        while not (found := list((home / "run").glob("jpserver-*.json"))):
            assert monotonic() - start < 60, (home / "log").read_text()[-2000:]
            sleep(0.1)
        sleep(0.5)
        facts = json.loads(found[0].read_text())
        yield lambda name: f"{facts['url']}doc/tree/{name}.ipynb?reset&token={facts['token']}"
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture(scope="module", name="times")
def _times():
    """The seconds of every control by notebook; written at the end."""
    times: dict[str, dict[str, float]] = {}
    yield times
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / "controls.json").write_text(json.dumps(times, indent=1))


def moved(page, controls: str, number: int, box: str) -> float:
    """Seconds until the picture beside a control is another one; the control goes through its values until it is."""
    page.js(f"window.control = {controls}[{number}]; window.box = control.closest('{box}'); window.seen = {SEEN};"
            "control.scrollIntoView({block: 'center'})")
    named = page.js("control.matches('select') || Boolean(control.querySelector('select'))")
    for key in ["ArrowRight"] * 12 + ["ArrowLeft"] * 24:
        page.js("window.before = seen(box)")
        if named:
            step = 1 if key == "ArrowRight" else -1
            page.js("(() => {const list = control.matches('select') ? control : control.querySelector('select');"
                    f"list.selectedIndex = Math.min(Math.max(list.selectedIndex + ({step}), 0), list.length - 1);"
                    "for (const kind of ['input', 'change']) list.dispatchEvent(new Event(kind, {bubbles: true}));})()")
        else:
            page.js("(control.querySelector('.noUi-handle') || control).focus()")
            page.press(key)
        start = monotonic()
        while monotonic() - start < 0.6:
            if page.js("seen(box) !== before"):
                return monotonic() - start
    start = monotonic()
    while monotonic() - start < PATIENCE:
        if page.js("seen(box) !== before"):
            return PATIENCE
    raise AssertionError(f"control {number} changes nothing: {page.js('control.textContent + control.name')}")


def all_moved(page, controls: str, box: str) -> list[float]:
    return [moved(page, controls, number, box) for number in range(page.js(f"{controls}.length"))]


EXPORTED = "[...document.querySelectorAll('.specdec-explore [data-control]')]"


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)
def test_a_notebook_runs_in_jupyterlab_and_every_control_moves_its_picture(page, lab, times, book):
    page.errors.clear()
    page.open(lab(book.stem))
    page.until("window.jupyterapp && (window.book = [...jupyterapp.shell.widgets('main')][0])?.sessionContext?.session")
    page.js("(async () => { await book.context.ready; await book.sessionContext.ready;"
            "jupyterapp.shell.activateById(book.id); window.started = true; })(), 0")
    page.until("window.started && document.querySelectorAll('.jp-Cell').length > 5")
    page.js("jupyterapp.commands.execute('notebook:run-all-cells').then(() => { window.finished = true; }), 0")
    page.until("window.finished", 400)
    try:
        assert page.js("[...document.querySelectorAll('[data-mime-type=\"application/vnd.jupyter.error\"]')]"
                       ".map(one => one.innerText)") == []
        sleep(1)
        wide = page.js("[...document.querySelectorAll('.jp-OutputArea-output .js-plotly-plot')].map(one =>"
                       "one.querySelector('.main-svg').getBoundingClientRect().width /"
                       "one.closest('.jp-OutputArea-output').getBoundingClientRect().width)")
        assert all(0.9 < share <= 1.01 for share in wide)
        page.picture(KEPT / "lab" / f"{book.stem}.png")
        times[book.stem] = dict(enumerate(all_moved(page, LAB_CONTROLS, ".jp-OutputArea-output")))
        assert page.errors == []
    finally:
        page.js("jupyterapp.serviceManager.sessions.shutdownAll().then(() => 0)")


def test_an_exported_notebook_needs_no_network_and_all_its_controls_react(page, tmp_path):
    path = notebook_called("33")
    made = write_page(path, notebook_runner.smoke_values(path), tmp_path / "page.html")
    page.errors.clear()
    page.open(made.as_uri(), offline=True)
    taken = all_moved(page, EXPORTED, ".specdec-explore")
    assert len(taken) >= 6
    assert max(taken) < 0.3
    assert made.stat().st_size < 15_000_000
    page.picture(KEPT / "exported.png")
    assert page.errors == []


def test_the_report_needs_no_network_and_draws_its_figures(page, tmp_path):
    shutil.copytree(ROOT / "data" / "results" / "report", tmp_path / "run")
    made = report.write_report(tmp_path / "run")
    page.errors.clear()
    page.open(made.as_uri(), offline=True)
    page.until("document.querySelectorAll('.js-plotly-plot .main-svg').length > 6")
    page.picture(KEPT / "report.png")
    all_moved(page, EXPORTED, ".specdec-explore")
    assert page.errors == []


def test_the_site_needs_no_network_is_searched_changes_its_theme_and_its_controls_react(page, tmp_path):
    site.write_site(tmp_path, ["00", "02"], smoke=True)
    page.errors.clear()
    page.open((tmp_path / "index.html").as_uri(), offline=True)
    page.js("(() => {const field = document.querySelector('input[type=search]'); field.value = 'draft verify';"
            "field.dispatchEvent(new Event('input'));})()")
    assert page.js("document.querySelector('#found a').href").split("/")[-1] == "00_tour.html#Draft,-then-verify"
    for theme in ("light", "dark"):
        page.scheme(theme)
        page.open((tmp_path / "00_tour.html").as_uri(), offline=True)
        page.js("localStorage.clear()")
        page.open((tmp_path / "00_tour.html").as_uri(), offline=True)
        assert page.js("document.documentElement.dataset.theme") == theme
        assert min(contrast(*pair) for pair in page.js(INKS)) >= 4.5
        page.picture(KEPT / f"tour-{theme}.png")
    assert len(all_moved(page, EXPORTED, ".specdec-explore")) == 2
    page.js("specdecTheme()")
    assert page.js("document.documentElement.dataset.theme") == "light"
    assert page.errors == []


# Ink and paper of all texts outside figures: the first opaque paper around a text and its ink, with opacity.
INKS = """(() => {
  const rgb = said => said.match(/[\\d.]+/g).map(Number), pairs = new Set();
  const hex = parts => "#" + parts.slice(0, 3).map(one => Math.round(one).toString(16).padStart(2, "0")).join("");
  const walk = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode, around = text.parentElement;
    const skipped = around.closest("script, style, svg, .js-plotly-plot, select, .anchor-link");
    if (skipped || !text.textContent.trim()) continue;
    let opacity = 1, paper = null;
    for (let one = around; one && !paper; one = one.parentElement) {
      const found = rgb(getComputedStyle(one).backgroundColor);
      opacity *= Number(getComputedStyle(one).opacity);
      if (found.length === 3 || found[3] === 1) paper = found;
    }
    const ink = rgb(getComputedStyle(around).color), alpha = (ink[3] ?? 1) * opacity;
    pairs.add([hex(ink.slice(0, 3).map((one, i) => alpha * one + (1 - alpha) * paper[i])), hex(paper)].join());
  }
  return [...pairs].map(one => one.split(","));
})()"""


RACE = "[...document.querySelectorAll('.jp-OutputArea-output')].find(one => one.querySelector('textarea') && " \
       "one.querySelector('button.widget-button'))"


def test_a_race_of_your_own_prompt_grows_and_stops_at_once(page, lab):
    page.errors.clear()
    page.open(lab("06_race"))
    page.until("window.jupyterapp && (window.book = [...jupyterapp.shell.widgets('main')][0])?.sessionContext?.session")
    page.js("(async () => { await book.context.ready; await book.sessionContext.ready;"
            "jupyterapp.shell.activateById(book.id); window.started = true; })(), 0")
    page.until("window.started && document.querySelectorAll('.jp-Cell').length > 5")
    page.js("(() => { const cell = book.content.widgets.map(one => one.model.sharedModel)"
            ".find(one => one.getSource().includes('show.race_controls(')); cell.setSource("
            "'from dataclasses import replace\\n\\nplan = replace(plan, max_new_tokens=400)\\n'"
            "+ 'prompt = \"Write a long story about a lighthouse and its keeper.\"\\n' + cell.getSource()); })()")
    page.js("jupyterapp.commands.execute('notebook:run-all-cells').then(() => { window.finished = true; }), 0")
    page.until("window.finished", 400)
    try:
        page.js(f"window.box = {RACE}; window.press = word => [...box.querySelectorAll('button')]"
                ".find(one => one.innerText.trim() === word).click(); box.scrollIntoView()")
        page.js("window.words = () => box.querySelectorAll('span[title]').length; press('Start')")
        page.until("words() > 20")
        grown = page.js("words()")
        page.until(f"words() > {grown}")
        page.js("press('Stop')")
        start = monotonic()
        while not page.js("box.innerText.includes('stopped') && Boolean(box.querySelector('table'))"):
            assert monotonic() - start < 2, page.js("box.innerText")
        seen = page.js("words()")
        sleep(1)
        assert page.js("words()") == seen
        page.picture(KEPT / "lab" / "race-stopped.png")
        assert page.errors == []
    finally:
        page.js("jupyterapp.serviceManager.sessions.shutdownAll().then(() => 0)")
