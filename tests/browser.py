"""A real headless Chromium, driven by its own protocol (DevTools) over a WebSocket: no driver, no browser download."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

PATIENCE_S = 60.0
AXE = "axe-core@4.14.1"  # MPL-2.0; fetched for tests alone


@contextmanager
def chromium(profile: Path, *flags: str) -> Iterator[Tab]:
    """Start Chromium with one tab; skips the test where there is none.

    Args:
        profile: an empty folder for its profile.
        flags: further words of its command line.
    """
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if binary is None:
        pytest.skip("no Chromium on the path; on Debian: apt-get install chromium")
    command = [
        binary,
        "--headless=new",
        "--no-sandbox",  # tests may run as root in a container
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--autoplay-policy=no-user-gesture-required",
        "--mute-audio",
        "--remote-debugging-port=0",
        f"--user-data-dir={profile}",
        *flags,
        "about:blank",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            port, path = _address(profile / "DevToolsActivePort")
            with connect(f"ws://127.0.0.1:{port}{path}", max_size=None) as socket:
                yield Tab(socket)
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()


def axe_core(folder: Path) -> str:
    """Return the script of axe-core, fetched from npm's registry; skips the test where that is not at hand."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm on the path; on Debian: apt-get install npm")
    fetched = subprocess.run([npm, "pack", AXE], cwd=folder, capture_output=True, text=True, timeout=120)
    if fetched.returncode:
        pytest.skip(f"npm could not fetch {AXE}: {fetched.stderr.strip().splitlines()[-1]}")
    with tarfile.open(folder / fetched.stdout.split()[-1]) as archive:
        script = archive.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


def _address(file: Path) -> list[str]:
    """Port and path of the browser's own end of the protocol, which it writes when it is ready."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if file.is_file() and len(lines := file.read_text().splitlines()) == 2:
            return lines
        time.sleep(0.05)
    raise TimeoutError("Chromium did not start")


class Tab:
    """One page, and what the browser told of it.

    Attributes:
        requests: addresses that pages asked for.
        complaints: console errors, exceptions and refusals.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._number = socket, 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self("Target.createTarget", url="about:blank")["targetId"]
        self._session = self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self(f"{domain}.enable")

    def __call__(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command; its result. Events that come before are noted."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        self._socket.send(json.dumps({**message, "sessionId": self._session} if self._session else message))
        while True:
            answer = json.loads(self._socket.recv(PATIENCE_S))
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        method, params = event.get("method", ""), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif (
            method == "Runtime.exceptionThrown"
            or (method == "Log.entryAdded" and params["entry"]["level"] == "error")
            or (method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"))
        ):
            self.complaints.append(json.dumps(params))

    def open(self, page: Path) -> None:
        """Open a page from disk and wait until it is loaded and its script has run."""
        self.visit(page.as_uri())
        self.until(f"location.href === {json.dumps(page.as_uri())}")

    def visit(self, url: str) -> None:
        """Open an address and wait until it is loaded; the page may send the browser on within its origin."""
        self.requests.clear()
        self.complaints.clear()
        self("Page.navigate", url=url)
        self.until(f"{json.dumps(url)}.startsWith(location.origin) && document.readyState === 'complete'")

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression; promises are awaited."""
        told = self("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        until = time.monotonic() + PATIENCE_S
        while not self.ask(expression):
            assert time.monotonic() < until, f"never true: {expression}; {self.complaints}"
            time.sleep(0.05)

    def reads_leftwards(self, selector: str) -> bool:
        """Put a Hebrew line into an element; whether its unit, at the end, is leftmost and beside its number."""
        places = self.ask(
            """((place) => {
              const at = (from, to) => {
                const range = document.createRange();
                range.setStart(place.firstChild, from); range.setEnd(place.firstChild, to);
                return range.getBoundingClientRect().left;
              };
              place.textContent = 'נגינה שקטה 120 BPM';
              return [at(15, 18), at(11, 14), at(6, 10), at(0, 5)];
            })"""
            + f"(document.querySelector({json.dumps(selector)}))"
        )
        return bool(places == sorted(places) and places[0] < places[-1])

    def press(self, key: str, code: int) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def show(self, width: int, height: int, scheme: str = "light") -> None:
        """Set the window's size in CSS pixels, and light or dark."""
        self("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
        self("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def access_faults(self, axe: str) -> list[str]:
        """Return the faults that axe-core finds on the page: the rule, and the place."""
        self.ask(f"{axe};0")
        found = self.ask("axe.run().then((told) => JSON.stringify(told.violations))")
        return [f"{one['id']}: {node['target']}" for one in json.loads(found) for node in one["nodes"]]

    def picture(self, path: Path) -> None:
        """Save what the window shows."""
        path.write_bytes(base64.b64decode(self("Page.captureScreenshot", format="png")["data"]))
