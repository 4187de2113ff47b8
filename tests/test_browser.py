"""As a reader would: JupyterLab, exported pages and the site in a browser, with every control moved once.

`make test-browser` runs it. Screenshots and the milliseconds that every control took are kept in results/browser/.
"""

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import nbformat
import papermill
import pytest

from specdec_lib.bench.provenance import provenance
from specdec_lib.commands import notebook_runner, report, site
from specdec_lib.commands.notebook import write_page
from specdec_lib.figures.theme import contrast
from tests.chromium import SECONDS, all_moved, chromium, reported
from tests.latency import keep

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "results" / "browser"
BOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SETTINGS = {"notebook-extension/tracker": {"windowingMode": "none"},
            "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False}}
STARTS = 3                                         # attempts to start JupyterLab
CELLS = 400                                        # seconds for all cells of a notebook

pytestmark = pytest.mark.browser
every_book = pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)


@pytest.fixture(scope="module", name="browser")
def _browser():
    with chromium() as browser:
        yield browser


@pytest.fixture(name="page")
def _page(browser):
    """An empty tab of a reader of its own, without a network but for this machine."""
    context = browser.new_context(viewport={"width": 1300, "height": 1000})
    context.set_default_timeout(SECONDS * 1000)
    yield context.new_page()
    context.close()


@pytest.fixture(name="errors")
def _errors(page):
    return reported(page)


@pytest.fixture(scope="module", name="kept")
def _kept(browser):
    """kept(kind, book, taken): keeps the milliseconds of the controls of a notebook, with those before of its kind."""
    made = provenance(["pytest", *sys.argv[1:]]) | {"browser": browser.version, "values": "those of a quick run"}
    times: dict[str, dict[str, dict[str, float]]] = {"exported": {}, "jupyterlab": {}}

    def note(kind, book, taken):
        times[kind][book.stem] = taken
        if any(times[kind].values()):
            keep(KEPT / "controls.json", kind, times[kind], made)

    return note


@pytest.fixture(scope="module", name="exported")
def _exported(request, tmp_path_factory):
    """The page of each notebook that a test here opens; all are executed before, two at a time."""
    home = tmp_path_factory.mktemp("pages")
    wanted = {item.callspec.params["book"] for item in request.session.items if "exported" in item.fixturenames}
    with notebook_runner.environment(notebook_runner.export_env() | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}), \
            ThreadPoolExecutor(2) as pool:
        made = {book: pool.submit(write_page, book, notebook_runner.smoke_values(book), home / f"{book.stem}.html")
                for book in sorted(wanted)}
    return lambda book: made[book].result()


@pytest.fixture(scope="module", name="lab")
def _lab(tmp_path_factory):
    """The address of a notebook in a JupyterLab on copies of all, with the values of a quick run."""
    home = tmp_path_factory.mktemp("lab")
    books = home / "notebooks"
    books.mkdir()
    (home / "data").symlink_to(ROOT / "data")
    for path in BOOKS:
        book = papermill.parameterize.parameterize_notebook(papermill.iorw.load_notebook_node(str(path)),
                                                            notebook_runner.smoke_values(path))
        nbformat.write(book, books / path.name)
    for name, values in SETTINGS.items():
        chosen = home / "config" / "lab" / "user-settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        chosen.parent.mkdir(parents=True, exist_ok=True)
        chosen.write_text(json.dumps(values))
    with jupyterlab(home, books) as facts:
        yield lambda book: f"{facts['url']}doc/tree/{book.stem}.ipynb?reset&token={facts['token']}"


@contextmanager
def jupyterlab(home, books):
    """What a running JupyterLab says of itself; a start that fails is tried again."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "JUPYTER_CONFIG_DIR": str(home / "config"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--port=0",
               f"--ServerApp.root_dir={books}", "--LabApp.expose_app_in_browser=True"]
    for attempt in range(STARTS):
        run = home / f"run{attempt}"
        with (home / "log").open("w") as log:
            server = subprocess.Popen(command, stdout=log, stderr=log, env=env | {"JUPYTER_RUNTIME_DIR": str(run)})
        try:
            start = monotonic()
            while server.poll() is None and monotonic() - start < SECONDS:
                if found := list(run.glob("jpserver-*.json")):
                    sleep(0.5)                     # the file is there before it is written
                    yield json.loads(found[0].read_text())
                    return
                sleep(0.1)
        finally:
            server.terminate()
            server.wait(30)
    raise AssertionError(f"JupyterLab did not start:\n{(home / 'log').read_text()[-2000:]}")


def moved_in_page(page) -> dict[str, float]:
    return all_moved(page.locator(".specdec-explore [data-control]"), "", ".specdec-explore", "one => one.name")


def moved_in_lab(page) -> dict[str, float]:
    rows = page.locator(".jp-OutputArea-output .widget-inline-hbox:has(.noUi-handle, select)")
    return all_moved(rows, ".noUi-handle, select", ".jp-OutputArea-output",
                     "one => one.querySelector('.widget-label').textContent")


def opened(page, path) -> None:
    """A page of a folder, loaded without a network."""
    page.context.set_offline(True)
    page.goto(path.as_uri(), wait_until="load")


@every_book
def test_a_notebook_runs_in_jupyterlab_and_every_control_moves_its_picture(page, errors, lab, kept, book):
    page.goto(lab(book), wait_until="domcontentloaded")
    page.wait_for_function("window.jupyterapp && (window.book = [...jupyterapp.shell.widgets('main')][0])"
                           "?.sessionContext?.session")
    page.evaluate("async () => { await book.context.ready; await book.sessionContext.ready;"
                  "jupyterapp.shell.activateById(book.id); }")
    page.wait_for_function("document.querySelectorAll('.jp-Cell').length > 5")
    page.evaluate("() => { jupyterapp.commands.execute('notebook:run-all-cells').then(() => {"
                  "window.finished = true; }); }")
    page.wait_for_function("window.finished", timeout=CELLS * 1000)
    try:
        failed = page.locator("[data-mime-type='application/vnd.jupyter.error']").all_inner_texts()
        assert failed == []
        page.wait_for_timeout(1000)
        wide = page.evaluate("[...document.querySelectorAll('.jp-OutputArea-output .js-plotly-plot')].map(one =>"
                             "one.querySelector('.main-svg').getBoundingClientRect().width /"
                             "one.closest('.jp-OutputArea-output').getBoundingClientRect().width)")
        assert all(0.9 < share <= 1.01 for share in wide)
        page.screenshot(path=KEPT / "lab" / f"{book.stem}.png")
        kept("jupyterlab", book, moved_in_lab(page))
        assert errors == []
    finally:
        page.evaluate("jupyterapp.serviceManager.sessions.shutdownAll().then(() => 0)")


@every_book
def test_an_exported_page_needs_no_network_and_every_control_moves_its_picture(page, errors, exported, kept, book):
    made = exported(book)
    opened(page, made)
    assert page.locator("[data-mime-type='application/vnd.jupyter.error']").count() == 0
    assert made.stat().st_size < 15_000_000
    page.screenshot(path=KEPT / "exported" / f"{book.stem}.png")
    kept("exported", book, moved_in_page(page))
    assert errors == []


def test_the_report_needs_no_network_and_draws_its_figures(page, errors, tmp_path):
    shutil.copytree(ROOT / "data" / "results" / "report", tmp_path / "run")
    opened(page, report.write_report(tmp_path / "run"))
    page.wait_for_function("document.querySelectorAll('.js-plotly-plot .main-svg').length > 6")
    page.screenshot(path=KEPT / "report.png")
    moved_in_page(page)
    assert errors == []


def test_the_site_needs_no_network_is_searched_changes_its_theme_and_its_controls_react(page, errors, tmp_path):
    site.write_site(tmp_path, ["00", "02"], smoke=True)
    opened(page, tmp_path / "index.html")
    page.locator("input[type=search]").fill("draft verify")
    found = page.locator("#found a").first.get_attribute("href")
    assert found.split("/")[-1] == "00_tour.html#Draft,-then-verify"
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        opened(page, tmp_path / "00_tour.html")
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        assert min(contrast(*pair) for pair in page.evaluate(INKS)) >= 4.5
        page.screenshot(path=KEPT / f"tour-{theme}.png")
    assert len(moved_in_page(page)) == 2
    page.get_by_role("button", name="light or dark").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.set_viewport_size({"width": 420, "height": 900})
    for name in ("index", "gallery", "bibliography", "00_tour", "02_the_lossless_trick"):
        opened(page, tmp_path / f"{name}.html")
        assert page.evaluate("document.documentElement.scrollWidth") <= 420, name
    assert errors == []


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


def test_a_race_of_your_own_prompt_grows_and_stops_at_once(page, errors, lab):
    page.goto(lab(next(book for book in BOOKS if book.stem == "06_race")), wait_until="domcontentloaded")
    page.wait_for_function("window.jupyterapp && (window.book = [...jupyterapp.shell.widgets('main')][0])"
                           "?.sessionContext?.session")
    page.evaluate("async () => { await book.context.ready; await book.sessionContext.ready;"
                  "jupyterapp.shell.activateById(book.id); }")
    page.wait_for_function("document.querySelectorAll('.jp-Cell').length > 5")
    page.evaluate("() => { const cell = book.content.widgets.map(one => one.model.sharedModel)"
                  ".find(one => one.getSource().includes('show.race_controls(')); cell.setSource("
                  "'from dataclasses import replace\\n\\nplan = replace(plan, max_new_tokens=400)\\n'"
                  "+ 'prompt = \"Write a long story about a lighthouse and its keeper.\"\\n' + cell.getSource()); }")
    page.evaluate("() => { jupyterapp.commands.execute('notebook:run-all-cells').then(() => {"
                  "window.finished = true; }); }")
    page.wait_for_function("window.finished", timeout=CELLS * 1000)
    try:
        page.evaluate(f"() => {{ window.box = {RACE}; window.press = word => [...box.querySelectorAll('button')]"
                      ".find(one => one.innerText.trim() === word).click(); box.scrollIntoView();"
                      "window.words = () => box.querySelectorAll('span[title]').length; press('Start'); }")
        page.wait_for_function("words() > 20")
        grown = page.evaluate("words()")
        page.wait_for_function(f"words() > {grown}")
        page.evaluate("press('Stop')")
        start = monotonic()
        while not page.evaluate("box.innerText.includes('stopped') && Boolean(box.querySelector('table'))"):
            assert monotonic() - start < 2, page.evaluate("box.innerText")
        seen = page.evaluate("words()")
        sleep(1)
        assert page.evaluate("words()") == seen
        page.screenshot(path=KEPT / "lab" / "race-stopped.png")
        assert errors == []
    finally:
        page.evaluate("jupyterapp.serviceManager.sessions.shutdownAll().then(() => 0)")
