"""Chromium without a window, led through chromedriver by plain requests on this machine."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
DRIVER = shutil.which("chromedriver")
MISSING = "Chromium and its driver are not installed; run: bash tools/install-chromium"
_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
]


class Browser:
    """One page at a time.

    Args:
        port: Where chromedriver listens.
        profile: A new folder for the browser's own files.
    """

    def __init__(self, port: str, profile: Path) -> None:
        self._address = f"http://127.0.0.1:{port}/session"
        self._open = build_opener(ProxyHandler({})).open  # past any proxy
        options = {"binary": CHROMIUM, "args": [*_FLAGS, f"--user-data-dir={profile}"]}
        wanted = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        session = self._ask("POST", "", {"capabilities": {"alwaysMatch": wanted}})
        self._address += f"/{session['sessionId']}"

    def open(self, page: Path, address: str = "", width: int = 1400, height: int = 900) -> None:
        """Opens a page from disk, with nothing kept of the one before."""
        self._ask("POST", "/url", {"url": "about:blank"})
        self.resize(width, height)
        self.errors(), self.requests()  # what came before does not count
        self._ask("POST", "/url", {"url": page.resolve().as_uri() + address})

    def resize(self, width: int, height: int = 900) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.tell("Emulation.setDeviceMetricsOverride", **size)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns; promises are waited for."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def tell(self, command: str, **parameters: Any) -> Any:
        """A command of the DevTools protocol."""
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def move(self, x: float, y: float) -> None:
        self.tell("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str, code: int, text: str = "") -> None:
        """Presses a key and lets it go."""
        common = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        down = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
        self.tell("Input.dispatchKeyEvent", **down, **common)
        self.tell("Input.dispatchKeyEvent", type="keyUp", **common)

    def screenshot(self, path: Path) -> None:
        """A picture of what is seen."""
        picture = self.tell("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(picture["data"]))

    def errors(self) -> list[str]:
        """What the console has printed since the last call."""
        return [entry["message"] for entry in self._ask("POST", "/se/log", {"type": "browser"})]

    def requests(self) -> list[str]:
        """Addresses that were asked for since this was last called, data in addresses left out."""
        entries = self._ask("POST", "/se/log", {"type": "performance"})
        events = [json.loads(entry["message"])["message"] for entry in entries]
        addresses = [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]
        return [address for address in addresses if not address.startswith(("data:", "chrome:"))]

    def close(self) -> None:
        self._ask("DELETE", "")

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = Request(self._address + path, content, headers, method=method)
        try:
            with self._open(request, timeout=60) as answer:
                return json.loads(answer.read())["value"]
        except HTTPError as problem:
            with problem:
                raise AssertionError(json.loads(problem.read())["value"]["message"]) from None


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser of its own, ended at the end."""
    assert DRIVER is not None
    with subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, text=True) as driver:
        silent = Timer(60, driver.kill)  # ends the wait for a port that never comes
        silent.start()
        try:
            assert driver.stdout is not None
            ports = (re.search(r"successfully on port (\d+)", line) for line in driver.stdout)
            port = next((match[1] for match in ports if match), None)
            silent.cancel()
            assert port is not None, "chromedriver did not start"
            opened = Browser(port, profile)
            try:
                yield opened
            finally:
                opened.close()
        finally:
            silent.cancel()
            driver.terminate()
            try:
                driver.wait(20)
            except subprocess.TimeoutExpired:
                driver.kill()


def until(holds: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := holds()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return value


def series(chromium: Browser, chart: str) -> dict[str, list[float]]:
    """What a chart draws, by the name of the curve; its x under the empty name."""
    curves: dict[str, list[float]] = chromium.run(
        "revbis.drawAll(); const { data, series } = revbis.charts[arguments[0]];"
        "return Object.fromEntries(data.map((d, i) => [i ? series[i].label : '', d]));",
        chart,
    )
    return curves


def choose(chromium: Browser, name: str, value: str) -> None:
    chromium.run(
        "const box = document.getElementById(`choose-${arguments[0]}`); box.value = arguments[1];"
        "box.dispatchEvent(new Event('change'));",
        name,
        value,
    )


def click(chromium: Browser, identity: str) -> None:
    chromium.run("document.getElementById(arguments[0]).click()", identity)
