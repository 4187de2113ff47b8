"""The installed Chromium through Playwright: pages, what their consoles report, and controls moved as a reader does."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from playwright.sync_api import Browser, Error, Locator, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
SECONDS = 120                                      # to start, to load a page, to find an element: of a busy machine
FIRST, NEXT, LAST = 3000, 1000, 20000              # ms for an answer: to the first step, to the others, to all of them
SETTLED = 300                                      # ms for a picture to follow a control that is not timed
VALUE = "one => one.matches('select') ? one.selectedIndex : Number(one.value ?? one.getAttribute('aria-valuenow'))"
# Resolves to the milliseconds from the first event of a key or a choice to the frame that shows another picture, or to
# null. A picture is data, title, lines and notes of the figures and the text beside a control, without its own label.
WATCH = """(control, [box, patience]) => {
  const held = control.closest(box);
  const seen = () => [...held.querySelectorAll('.js-plotly-plot')]
    .map(({data, layout}) => JSON.stringify([data, layout.title, layout.shapes, layout.annotations])).join()
    + [...held.querySelectorAll('.widget-html-content, .view > div:not(.js-plotly-plot)')]
    .map(one => one.innerHTML).join();
  const before = seen(), kinds = ['keydown', 'input', 'change'];
  let start = null;
  const begin = event => { start ??= event.timeStamp; };
  kinds.forEach(kind => document.addEventListener(kind, begin, true));
  window.answered = new Promise(done => {
    const end = value => {
      watching.disconnect();
      kinds.forEach(kind => document.removeEventListener(kind, begin, true));
      done(value);
    };
    const watching = new MutationObserver(() => {
      if (start === null || seen() === before) return;
      watching.disconnect();
      requestAnimationFrame(() => setTimeout(() => end(performance.now() - start)));
    });
    watching.observe(held, {subtree: true, childList: true, characterData: true, attributes: true});
    setTimeout(() => end(null), patience);
  });
}"""


class NoBrowser(RuntimeError):
    """There is no Chromium, or it does not start."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser of this machine, without a window; it ends with the block. NoBrowser if there is none that starts."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise NoBrowser("no Chromium on this machine: apt-get install chromium, or your system's package of it")
    with sync_playwright() as driver:
        try:
            browser = driver.chromium.launch(executable_path=found, args=[*FLAGS], timeout=SECONDS * 1000)
        except Error as error:
            raise NoBrowser(f"{found} does not start: {error.message}") from error
        try:
            yield browser
        finally:
            browser.close()


def reported(page: Page) -> list[str]:
    """What the console reports as an error from now on, and every exception that nothing caught."""
    errors = list[str]()
    page.on("console", lambda said: errors.append(f"{said.text} {said.location.get('url', '')}")
            if said.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    return errors


def steps(control: Locator) -> Iterator[Callable[[], Any]]:
    """Every other value of a list, or keys that take a slider through all of its values."""
    if control.evaluate("one => one.matches('select')"):
        now, size = control.evaluate("one => [one.selectedIndex, one.length]")
        yield from (partial(control.select_option, index=i) for i in range(size) if i != now)
    else:
        yield from (partial(control.press, key) for key in ["ArrowRight"] * 12 + ["ArrowLeft"] * 24)


def moved(control: Locator, box: str) -> float:
    """Milliseconds from a key to the picture that it changed; the control goes through its values until one does.

    AssertionError if the element around it that matches `box` never shows another picture.
    """
    control.scroll_into_view_if_needed()
    patience = FIRST
    for step in steps(control):
        control.evaluate(WATCH, [box, patience])
        step()
        took = control.page.evaluate("window.answered")
        if took is not None:
            return float(took)
        patience = NEXT
    control.evaluate(WATCH, [box, LAST])
    control.press("Home")
    took = control.page.evaluate("window.answered")
    assert took is not None, f"a control changes nothing: {control.evaluate('one => one.outerHTML')[:500]}"
    return float(took)


def all_moved(controls: Locator, inside: str, box: str, name: str) -> dict[str, float]:
    """Milliseconds of every control by its name.

    A control is the element `inside` each of these, or each of these itself; `name` is a JavaScript function of each.
    """
    taken = dict[str, float]()
    for number in range(controls.count()):
        one = controls.nth(number)
        called, same = one.evaluate(name), 1
        while (key := called if same == 1 else f"{called} ({same})") in taken:
            same += 1
        control = one.locator(inside).first if inside else one
        start = control.evaluate(VALUE)
        taken[key] = moved(control, box)
        put_back(control, start)
    return taken


def put_back(control: Locator, start: float) -> None:
    """The control at its start again, where the others have an effect, and time for the picture to follow."""
    if control.evaluate("one => one.matches('select')"):
        control.select_option(index=int(start))
    else:
        for _ in range(24):
            now = control.evaluate(VALUE)
            if now == start:
                break
            control.press("ArrowLeft" if now > start else "ArrowRight")
    control.page.wait_for_timeout(SETTLED)


def main() -> int:
    """Draws a page and says with which browser: 1 and a sentence where there is none."""
    try:
        with chromium() as browser:
            page = browser.new_page()
            page.set_content("<p>ready</p>")
            print(f"Chromium {browser.version} {page.inner_text('p')}")
    except (NoBrowser, Error) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
