"""`earmark view`, in a real Chromium: it shows all rows, plays, compares, and stays on this machine and out of SQL."""

from __future__ import annotations

import csv
import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import duckdb
import pytest

from earmark.tasks.store.versions import Version
from tests.browser import Tab, chromium
from tests.builds import build_version, read_config
from tests.conftest import ROOT

EARMARK = str(Path(sys.executable).with_name("earmark"))
HOSTILE = "<img src=x onerror='window.bad = 1'>rise"
ROWS = "[...document.querySelectorAll('.q-table tbody tr')].filter((one) => one.checkVisibility())"
CELLS = f"{ROWS}.map((row) => row.cells[0]?.textContent)"
CHOSEN = f"{ROWS}.find((one) => one.matches('.chosen'))?.cells[0].textContent"
PLAYERS = "[...document.querySelectorAll('audio')].filter((one) => one.checkVisibility())"


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> list[Version]:
    """Two versions whose clips' phrases are HTML, and an evaluation beside the later one that is, too."""
    base = tmp_path_factory.mktemp("inputs")
    shutil.copytree(ROOT / "data/demo/mos", base / "mos")
    shutil.copy(ROOT / "data/demo/mos-preferences-audio.toml", base)
    listed = base / "mos/chimes/ratings.csv"
    with listed.open(newline="") as file:
        rows = [[HOSTILE if cell == "rise" else cell for cell in row] for row in csv.reader(file)]
    with listed.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    config = read_config(base / "mos-preferences-audio.toml")
    fewer = config.model_copy(update={"pairs": config.pairs.model_copy(update={"min_gap": 1.5})})
    store = tmp_path_factory.mktemp("store")
    made = [build_version(one, store) for one in (fewer, config)]
    folder = store / "evaluations/mos-preferences/v2/pairs-some-model"
    folder.mkdir(parents=True)
    (folder / "README.md").write_text(f"# Pairs\n\n| model | accuracy |\n|---|---|\n| {HOSTILE} | 0.75 |\n", "utf-8")
    return made


@pytest.fixture(scope="module")
def address(versions: list[Version]) -> Iterator[str]:
    """Where the page is."""
    store = str(versions[0].folder.parent.parent)
    command = [EARMARK, "view", "mos-preferences@v2", "--store", store]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None
        yield found[0]
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """A browser for all tests."""
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


def column(version: Version, name: str, order: str) -> list[str]:
    """A column of the pairs in an order, as the page shows them."""
    files = [str(path) for path in version.files("pairs")]
    rows = duckdb.execute(f"SELECT {name}::VARCHAR FROM read_parquet($1) ORDER BY {order}, pair_id", [files]).fetchall()
    return [row[0] for row in rows]


def click(tab: Tab, selector: str, text: str = "") -> None:
    """Click the first element to be seen that has the text."""
    seen = f"one.checkVisibility() && one.textContent.includes('{text}')"
    found = f"[...document.querySelectorAll(`{selector}`)].find((one) => {seen})"
    tab.until(f"{found} !== undefined")
    tab.ask(f"{found}.click()")


def shows(tab: Tab, keys: list[str]) -> None:
    """Wait until the rows to be seen have these keys."""
    tab.until(f"JSON.stringify({CELLS}) === {json.dumps(json.dumps(keys, separators=(',', ':')))}")


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 768, 1280])
def test_rows_are_filtered_ordered_and_played(versions: list[Version], address: str, tab: Tab, width: int) -> None:
    version = versions[1]
    tab.show(width, 900)
    tab.visit(address)
    keys = column(version, "pair_id", "pair_id")
    assert len(keys) > 25
    shows(tab, keys[:25])
    assert tab.ask("document.documentElement.scrollWidth") <= width, "the page scrolls sideways"
    click(tab, 'button[aria-label="Next page"]')
    shows(tab, keys[25:50])
    click(tab, "th", "category")
    shows(tab, column(version, "pair_id", "category")[:25])
    click(tab, "th", "category")
    shows(tab, column(version, "pair_id", "category DESC")[:25])
    field = "document.querySelector('input[aria-label=value]')"
    tab.ask(f"{field}.focus()")
    tab("Input.insertText", text=keys[30][:9].upper())  # no letter's case matters
    click(tab, "button", "Add filter")
    shows(tab, [keys[30]])
    tab.until(f"{PLAYERS}.length === 2 && {PLAYERS}.every((one) => one.readyState > 0)")
    tab.ask("document.activeElement.blur()")
    tab.press("1", 49)
    tab.until(f"{PLAYERS}[0].currentTime > 0.05")
    tab.press("2", 50)
    tab.until(f"{PLAYERS}[1].currentTime > 0.05")
    assert tab.ask(f"{PLAYERS}[0].paused")
    tab.ask("document.querySelector('.q-chip__icon--remove').click()")
    shows(tab, keys[:25])
    for at in range(1, 26):  # and over the end of the page
        tab.press("ArrowDown", 40)
        tab.until(f"{CHOSEN} === '{keys[at]}'")
    tab.press("ArrowUp", 38)
    tab.until(f"{CHOSEN} === '{keys[24]}'")
    assert tab.complaints == []
    assert all(url.startswith((address, "data:", "blob:")) for url in tab.requests)


@pytest.mark.slow
def test_versions_are_compared_and_evaluations_shown_as_text(address: str, tab: Tab) -> None:
    tab.show(1280, 900)
    tab.visit(address)
    tab.until(f"{CHOSEN} !== undefined")
    click(tab, ".q-tab", "Compare")
    click(tab, "button", "Compare")
    tab.until(f"{CELLS}.includes('added')")
    tab.until("[...document.querySelectorAll('td')].some((one) => one.textContent === 'mos_gap')")
    click(tab, ".q-tab", "Evaluations")
    tab.until("document.body.innerText.includes('0.75')")
    assert HOSTILE in tab.ask("document.body.innerText")
    click(tab, ".q-tab", "Rows")
    tab.until(f"{CHOSEN} !== undefined")
    tab.ask("document.querySelector('input[aria-label=value]').focus()")
    tab("Input.insertText", text="onerror")
    tab.ask("document.querySelector('input[aria-label=value]').dispatchEvent(new Event('change'))")
    assert tab.ask("[window.bad, document.querySelectorAll('img[src=x]').length]") == [None, 0]


@pytest.mark.slow
def test_the_page_is_for_who_has_its_address_on_this_machine(address: str) -> None:
    parts = urlsplit(address)
    assert parts.hostname == "127.0.0.1"
    assert re.fullmatch(r"/[0-9a-f]{32}/", parts.path)

    def status(path: str, host: str = parts.netloc) -> int:
        connection = http.client.HTTPConnection(parts.netloc)
        connection.request("GET", path, headers={"Host": host})
        return connection.getresponse().status

    assert status(parts.path) == 200
    assert status(parts.path, "evil.example") == 400
    for path in ("/", f"/{'0' * 32}/", "/_nicegui/client", "/docs", "/openapi.json", "/_nicegui_ws/socket.io/?EIO=4"):
        assert status(path) == 404, path
    for name in ("x", "..%2f..%2fetc%2fpasswd", "0" * 64, "'%20OR%20true%20--"):
        assert status(f"{parts.path}clips/{name}") == 404 or "%2f" in name, name


@pytest.mark.slow
def test_bad_input_is_one_line(versions: list[Version]) -> None:
    hide = "import sys; sys.modules['nicegui'] = None; from earmark.flows.command.cli import main; main()"
    store = str(versions[0].folder.parent.parent)
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = str(busy.getsockname()[1])
        for command, says in (
            (
                [sys.executable, "-c", hide, "view", "mos-preferences"],
                "install it with: pip install -c constraints.txt -e '.[view]' in ",
            ),
            ([EARMARK, "view", "mos-preferences@v9"], "v9"),
            (
                [EARMARK, "view", "mos-preferences", "--port", port],
                f"--port {port}: Address already in use; choose another",
            ),
        ):
            done = subprocess.run([*command, "--store", store], capture_output=True, text=True, timeout=60)
            assert done.returncode == 1
            assert says in done.stderr
            assert len(done.stderr.splitlines()) == 1
