"""A headless Chromium, driven through its remote debugging port: pages, scripts, keys, errors and screenshots."""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from urllib.request import urlopen

import websocket

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-port=0",
         "--window-size=1300,1000", "--remote-allow-origins=*")
KEYS = {"ArrowRight": 39, "ArrowLeft": 37, "ArrowDown": 40, "Home": 36}


class Page:
    """One tab. `errors` holds what its console reported as an error and every exception that nothing caught."""

    def __init__(self, address: str):
        self.socket = websocket.create_connection(address, timeout=60, max_size=None)
        self.numbers, self.errors = itertools.count(1), list[str]()
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict:
        """One command of the protocol; the events that arrive before its answer are looked through for errors."""
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("id") == number:
                assert "error" not in message, f"{method}: {message['error']}"
                return message["result"]
            self.heard(message)

    def heard(self, message: dict) -> None:
        params, event = message.get("params", {}), message.get("method")
        if event == "Page.javascriptDialogOpening":    # whether to leave a page with changes: yes
            answer = {"id": next(self.numbers), "method": "Page.handleJavaScriptDialog", "params": {"accept": True}}
            self.socket.send(json.dumps(answer))
        elif event == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"].get("exception", {}).get("description", params)))
        elif event == "Runtime.consoleAPICalled" and params["type"] == "error":
            self.errors.append(" ".join(str(arg.get("value", arg.get("description"))) for arg in params["args"]))
        elif event == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    def open(self, url: str, offline: bool = False) -> None:
        """Loads a page, without a network if `offline`, and waits until it has loaded."""
        self.call("Network.emulateNetworkConditions", offline=offline, latency=0, downloadThroughput=-1,
                  uploadThroughput=-1)
        self.call("Page.navigate", url=url)
        self.until("document.readyState == 'complete' && location.href != 'about:blank'")

    def js(self, script: str) -> Any:
        """The value of a JavaScript expression, awaited if it is a promise."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, f"{script}: {found['exceptionDetails']}"
        return found["result"].get("value")

    def until(self, script: str, seconds: float = 60) -> float:
        """Waits until the expression holds and returns the seconds that it took."""
        start = monotonic()
        while not self.js(f"Boolean({script})"):
            assert monotonic() - start < seconds, f"after {seconds} s this does not hold: {script}"
            sleep(0.01)
        return monotonic() - start

    def press(self, key: str) -> None:
        """One key, pressed and released, for the element that has the focus."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key])

    def scheme(self, name: str) -> None:
        """What the page is told of the reader's theme: light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def width(self, pixels: int, height: int = 1000) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=pixels, height=height, deviceScaleFactor=1, mobile=False)

    def picture(self, path: Path, whole: bool = False) -> None:
        """A PNG of what is visible, or of the `whole` page."""
        path.parent.mkdir(parents=True, exist_ok=True)
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def chromium(profile: Path) -> Iterator[Page]:
    """A browser with this empty folder as its profile, and its one tab; it is ended at the end of the block."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    assert found, f"no browser: install one of {', '.join(NAMES)}"
    running = subprocess.Popen([found, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        port, start = profile / "DevToolsActivePort", monotonic()
        while not (port.is_file() and len(port.read_text().split()) == 2):
            assert running.poll() is None, f"{found} ended at once"
            assert monotonic() - start < 60, f"{found} did not start"
            sleep(0.05)
        with urlopen(f"http://127.0.0.1:{port.read_text().split()[0]}/json/list", timeout=10) as answer:
            tabs = json.load(answer)
        yield Page(next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page"))
    finally:
        running.terminate()
        running.wait(20)
