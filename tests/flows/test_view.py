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
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import duckdb
import pytest

from earmark.tasks.store.versions import Version
from tests.browser import Tab, axe_core, chromium
from tests.builds import build_version, read_config
from tests.conftest import ROOT

EARMARK = str(Path(sys.executable).with_name("earmark"))
HOSTILE = "<img src=x onerror='window.bad = 1'>rise"
BOX = "document.querySelector('[data-sheet]')"  # the main table, or the first of a comparison
ROWS = f"[...{BOX}.querySelectorAll('tbody tr:not(.below)')]"
CELLS = f"{ROWS}.map((row) => row.cells[row.cells.length - 1]?.textContent)"  # the key, which stands last
CHOSEN = f"{ROWS}.find((one) => one.matches('.chosen'))?.querySelector('td:last-child').textContent"
HEADS = f"[...{BOX}.querySelectorAll('th')]"
LEADING = ["chosen_mos", "rejected_mos", "mos_gap", "dataset", "split", "category"]  # the key comes after them
PLAYERS = f"[...{BOX}.querySelectorAll('audio')]"


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
    store = str(versions[0].folder.parent.parent)
    command = [EARMARK, "inspect", "view", "mos-preferences@v2", "--store", store]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None
        yield found[0]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


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


def typed(tab: Tab, field: str, text: str) -> None:
    """Put a text into a field of the first table, as by keys."""
    tab.ask(f"(() => {{ const field = {BOX}.querySelector('{field}'); field.focus(); field.select(); }})()")
    tab("Input.insertText", text=text)


def shows(tab: Tab, keys: list[str]) -> None:
    """Wait until the rows to be seen have these keys."""
    tab.until(f"JSON.stringify({CELLS}) === {json.dumps(json.dumps(keys, separators=(',', ':')))}")


@pytest.mark.slow
def test_axe_finds_nothing_in_light_or_dark(address: str, tab: Tab, tmp_path: Path) -> None:
    axe = axe_core(tmp_path)
    for scheme in ("light", "dark"):
        tab.show(1280, 900, scheme)
        tab.visit(address)
        tab.until(f"{ROWS}.length > 3 && document.querySelector('.detail dd') !== null")
        assert tab.access_faults(axe) == [], scheme
    tab.show(1280, 900)


@pytest.mark.slow
def test_text_runs_in_its_own_direction(address: str, tab: Tab) -> None:
    tab.show(1280, 900)
    tab.visit(address)
    tab.until(f"{ROWS}.length > 3 && document.querySelector('.detail dd') !== null")
    assert [one for one in ("[data-sheet] tbody td", ".detail dd") if not tab.reads_leftwards(one)] == []


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
    click(tab, "button", "next")
    shows(tab, keys[25:50])
    click(tab, "th button", "category")
    shows(tab, column(version, "pair_id", "category")[:25])
    click(tab, "th button", "category")
    shows(tab, column(version, "pair_id", "category DESC")[:25])
    typed(tab, "input[type=search]", keys[30][:9].upper())  # no letter's case matters
    shows(tab, [keys[30]])
    typed(tab, "input[type=search]", "")
    shows(tab, column(version, "pair_id", "category DESC")[:25])
    tab.ask(f"{BOX}.querySelector('select').value = 'pair_id'")
    typed(tab, "input[aria-label=value]", keys[30][:9].upper())
    click(tab, "button", "Add filter")
    shows(tab, [keys[30]])
    assert tab.ask(f"{HEADS}.slice(0, 6).map((one) => one.textContent)") == LEADING
    if width < 1024:
        assert tab.ask(f"{PLAYERS}.length") == 0
        tab.ask(f"{ROWS}[0].click()")
    tab.until(f"{BOX}.querySelector('.detail[aria-busy=false] dl')?.textContent.includes('{keys[30]}')")
    tab.until(f"{PLAYERS}.length === 2 && {PLAYERS}.every((one) => one.readyState > 0)")
    tab.until(f"[...{BOX}.querySelectorAll('canvas')].every((one) => one.dataset.drawn)")
    tab.ask("document.activeElement.blur()")
    tab.press("1", 49)
    tab.until(f"{PLAYERS}[0].currentTime > 0.05")
    tab.press("2", 50)
    tab.until(f"{PLAYERS}[1].currentTime > 0.05")
    tab.until(f"{PLAYERS}[0].paused")
    click(tab, "button", "×")
    shows(tab, column(version, "pair_id", "category DESC")[:25])
    tab.visit(address)
    shows(tab, keys[:25])
    for at in range(1, 26):  # and over the end of the page
        tab.press("ArrowDown", 40)
        tab.until(f"{CHOSEN} === '{keys[at]}'")
    tab.press("ArrowUp", 38)
    tab.until(f"{CHOSEN} === '{keys[24]}'")
    assert tab.complaints == []
    assert all(url.startswith((address, "data:", "blob:")) for url in tab.requests)


@pytest.mark.slow
def test_a_row_that_is_tapped_on_a_phone_opens_where_it_was_tapped(address: str, tab: Tab) -> None:
    tab.show(390, 844)
    tab.visit(address)
    tab.until(f"{ROWS}.length === 25")
    for at in (7, 3, 20):
        tab.ask(f"{ROWS}[{at}].click()")
        tab.until(f"{ROWS}[{at}].matches('.chosen') && {PLAYERS}.length === 2")
        box = "{}.getBoundingClientRect().toJSON()"
        inside = "((row, detail) => Math.abs(row.bottom - detail.top) < 12 && detail.right <= 390)"
        row, detail = box.format(f"{ROWS}[{at}]"), box.format(f"{BOX}.querySelector('.detail')")
        tab.until(f"{inside}({row}, {detail})")
        assert tab.ask(f"{row}.top") < 844, "the row is in sight"
        below = tab.ask(f"{box.format(f'{ROWS}[{at + 1}]')}.top") if at < 24 else None
        assert below is None or below >= tab.ask(f"{detail}.bottom") - 1, "no row lies below the details"
    tab.ask(f"{ROWS}[20].click()")
    tab.until(f"{PLAYERS}.length === 0")
    assert tab.complaints == []


@pytest.mark.slow
def test_versions_are_compared_and_evaluations_shown_as_text(address: str, tab: Tab) -> None:
    tab.show(1280, 900)
    tab.visit(address)
    tab.until(f"{CHOSEN} !== undefined")
    assert "0.75" in tab.ask("document.body.innerText")
    assert HOSTILE in tab.ask("document.body.innerText")
    for number in range(tab.ask("document.querySelectorAll('[data-sheet]').length")):
        box = f"document.querySelector('[data-sheet=\"{number}\"]')"
        tab.ask(f"{box}.scrollIntoView({{ behavior: 'instant' }})")
        tab.until(f"{box}.dataset.open === 'yes'")
    click(tab, "summary", "columns")
    ratings = "document.querySelectorAll('[data-sheet]')[1]"
    tab.ask(f"{ratings}.querySelector('input[type=search]').value = 'onerror'")
    tab.ask(f"{ratings}.querySelector('input[type=search]').dispatchEvent(new Event('input'))")
    tab.until(f"{ratings}.querySelector('dl')?.textContent.includes('onerror')")
    click(tab, "a", "v1")
    tab.until("location.search === '?beside=v1' && document.querySelector('[data-sheet]') !== null")
    tab.ask(f"{BOX}.scrollIntoView({{ behavior: 'instant' }})")
    tab.until(f"{ROWS}.some((row) => row.cells[0].textContent === 'added')")
    tab.until(f"{BOX}.querySelector('dl')?.textContent.includes('mos_gap')")
    values = f"[...{BOX}.querySelectorAll('dl div')].find((one) => one.firstChild.textContent === 'pair_id')"
    assert tab.ask(f"{values}.innerText.split('\\n').slice(1)") == ["v1", "–", "v2", tab.ask(CHOSEN)]
    assert tab.ask("[window.bad, document.querySelectorAll('img[src=x]').length]") == [None, 0]
    assert tab.complaints == []


@pytest.mark.slow
def test_the_page_is_for_who_has_its_address_on_this_machine(address: str) -> None:
    parts = urlsplit(address)
    assert parts.hostname == "127.0.0.1"
    assert re.fullmatch(r"/[0-9a-f]{32}/", parts.path)

    def status(path: str, host: str = parts.netloc) -> int:
        with closing(http.client.HTTPConnection(parts.netloc)) as connection:
            connection.request("GET", path, headers={"Host": host})
            with connection.getresponse() as response:
                response.read()
                return response.status

    assert status(parts.path) == 200
    assert status(parts.path, "evil.example") == 400
    for path in ("/", f"/{'0' * 32}/", "/rows?relation=rows%20pairs&first=0", "/row", "/docs", "/openapi.json"):
        assert status(path) == 404, path
    for name in ("x", "..%2f..%2fetc%2fpasswd", "0" * 64, "'%20OR%20true%20--"):
        assert status(f"{parts.path}clips/{name}") == 404, name
    for query in ("relation=rows%20pairs", "relation=x&first=0", "relation=rows%20pairs&first=-1", "",
                  "relation=rows%20pairs&first=0&column=split", "relation=rows%20pairs&first=0&order=%22"):  # fmt: skip
        assert status(f"{parts.path}rows?{query}") == status(f"{parts.path}row?{query}") == 400, query
    assert status(f"{parts.path}row?relation=rows%20pairs&first=100000") == 400
    assert status(f"{parts.path}?beside=../v1") == 400


@pytest.mark.slow
def test_bad_input_is_one_line(versions: list[Version]) -> None:
    store = str(versions[0].folder.parent.parent)
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = str(busy.getsockname()[1])
        for command, says in (
            ([EARMARK, "inspect", "view", "mos-preferences@v9"], "v9"),
            (
                [EARMARK, "inspect", "view", "mos-preferences", "--port", port],
                f"--port {port}: Address already in use; choose another",
            ),
        ):
            done = subprocess.run([*command, "--store", store], capture_output=True, text=True, timeout=60)
            assert done.returncode == 1
            assert says in done.stderr
            assert len(done.stderr.splitlines()) == 1
