"""Each demo corpus's report, in a real Chromium."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from earmark.flows.command.metrics import serve_metrics
from earmark.tasks.pipeline.registry import corpora
from earmark.tasks.store.figures import Histogram, Page, Section, Sheet
from earmark.tasks.store.manifest import FileEntry
from earmark.tasks.store.report import render_report
from earmark.tasks.store.versions import Store
from tests.browser import Tab, axe_core, chromium
from tests.builds import build_version, read_config
from tests.conftest import ROOT
from tests.store.test_report import HOSTILE_PAGE, MANIFEST, SHA256, STORY

pytestmark = pytest.mark.slow

# Cells whose text stands on more lines than it has words of at most 12 letters: words were broken.
BROKEN_CELLS = """[...document.querySelectorAll('td, th')].filter((cell) => {
  const words = cell.textContent.trim().split(/[\\s_/.-]+/);
  if (words.some((word) => word.length > 12)) return false;
  const range = document.createRange(); // the cell itself is as tall as the tallest of its row
  range.selectNodeContents(cell);
  const line = 1.55 * parseFloat(getComputedStyle(cell).fontSize);
  return range.getBoundingClientRect().height > (words.length + 1) * line + 12;
}).map((cell) => cell.textContent)"""
# Below the spectrogram, a clip's loudest half has the taller columns: decoded here, and counted in pixels there.
WAVEFORM_IS_RIGHT = """(async () => {
  const canvas = document.querySelector("canvas");
  const own = Uint8Array.from(atob(JSON.parse(document.getElementById("data").textContent)
    .sounds[canvas.dataset.sound]), (sign) => sign.charCodeAt(0)).buffer;
  const samples = (await new OfflineAudioContext(1, 1, 24000).decodeAudioData(own)).getChannelData(0);
  const pixels = canvas.getContext("2d").getImageData(0, 72, 320, 36).data;
  return Array.from({ length: 320 }, (_, x) => {
    const part = [...samples.slice(Math.floor(x * samples.length / 320), Math.floor((x + 1) * samples.length / 320))];
    const tall = (Math.max(...part) - Math.min(...part)) * 17;
    let lit = 0;
    for (let y = 0; y < 36; y++) lit += pixels[4 * (y * 320 + x) + 3] / 255;
    return Math.abs(lit - Math.max(1, tall)) < 1.5;
  }).every(Boolean);
})()"""
STRANGERS = "<script>read = fetch('/reports/mos-preferences/v1').then((a) => a.text()).catch(() => 'nothing')</script>"
WITHOUT_SOUND = {"music-prompts", "score-questions"}


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """A browser for all tests."""
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    return axe_core(tmp_path_factory.mktemp("axe"))


@pytest.fixture
def demo(built_demo: Path) -> Store:
    return Store(built_demo)


def report_of(store: Store, corpus: str) -> Path:
    """The report of the newest version."""
    version = store.latest(corpus)
    assert version is not None
    return version.folder / "report.html"


def asked_for(tab: Tab) -> list[str]:
    """Addresses asked for beside the page itself; the browser's own pictures for players are data."""
    return [url for url in tab.requests if not url.startswith(("data:", "blob:"))][1:]


@pytest.mark.parametrize("corpus", corpora())
def test_report(corpus: str, demo: Store, tab: Tab) -> None:
    page = report_of(demo, corpus)
    papers = set()
    for width, scheme in ((1600, "light"), (1024, "light"), (390, "dark")):
        tab.show(width, 900, scheme)
        tab.open(page)
        assert tab.ask("document.documentElement.scrollWidth") <= width, "the page scrolls sideways"
        papers.add(tab.ask("getComputedStyle(document.body).backgroundColor"))
        assert tab.ask(BROKEN_CELLS) == []
        assert_filters_filter(tab)
        assert_keyboard_reaches(tab)
        assert_sheets_open(tab, width)
        if corpus not in WITHOUT_SOUND:
            assert_players_play(tab)
        assert tab.complaints == []
        assert asked_for(tab) == []
    assert len(papers) == 2, "light and dark look the same"


@pytest.mark.parametrize("corpus", corpora())
def test_axe_finds_nothing_in_light_or_dark(corpus: str, demo: Store, tab: Tab, axe: str) -> None:
    for scheme in ("light", "dark"):
        tab.show(1200, 900, scheme)
        tab.open(report_of(demo, corpus))
        assert tab.access_faults(axe) == [], scheme


def assert_players_play(tab: Tab) -> None:
    """Every player knows its length; the first goes forward; its spectrogram is drawn; starting another stops it."""
    assert tab.ask("document.querySelectorAll('audio').length") > 1
    tab.until("[...document.querySelectorAll('audio')].every((one) => one.error || one.readyState >= 1)")
    assert tab.ask("[...document.querySelectorAll('audio')].every((one) => !one.error && one.duration > 0)")
    tab.ask("document.querySelector('audio').play()")
    tab.until("document.querySelector('audio').currentTime > 0.05")
    tab.ask("document.querySelectorAll('audio')[1].play()")
    assert tab.ask("document.querySelector('audio').paused")
    # Both are started before the browser says that the first one plays: the second plays on.
    tab.ask("document.querySelectorAll('audio').forEach((one) => { one.pause(); one.currentTime = 0; })")
    tab.until("[...document.querySelectorAll('audio')].every((one) => one.paused && !one.seeking)")
    tab.ask("[...document.querySelectorAll('audio')].slice(0, 2).forEach((one) => { one.play().catch(() => {}); })")
    tab.until("document.querySelectorAll('audio')[1].currentTime > 0.05")
    assert tab.ask("document.querySelector('audio').paused")
    tab.ask("document.querySelectorAll('audio')[1].pause()")
    tab.ask("document.querySelector('canvas').scrollIntoView({ behavior: 'instant' })")
    tab.until("document.querySelector('canvas').dataset.drawn === 'yes'")
    assert tab.ask(WAVEFORM_IS_RIGHT)


def assert_filters_filter(tab: Tab) -> None:
    """Each value of each filter leaves exactly the rows that have it, some at once, and the count says so."""
    found = tab.ask(
        """[...document.querySelectorAll("form[data-browser]")].flatMap((form) => {
          const rows = [...form.parentElement.querySelectorAll(".rows > li")];
          return [...form.querySelectorAll("select")].flatMap((select) => [...select.options].map((option) => {
            select.value = option.value;
            select.dispatchEvent(new Event("change", { bubbles: true }));
            const shown = rows.filter((row) => row.checkVisibility());
            const onward = form.parentElement.querySelectorAll(".pages button")[1];
            let most = shown.length;
            while (!onward.disabled) {
              onward.click();
              const more = rows.filter((row) => row.checkVisibility());
              shown.push(...more);
              most = Math.max(most, more.length);
            }
            const told = Number(form.querySelector("output b").textContent);
            const name = select.dataset.filter;
            const meant = rows.filter((row) => !option.value || JSON.parse(row.dataset.tags)[name] === option.value);
            const right = shown.length === meant.length && shown.every((row) => meant.includes(row));
            const said = { name, value: option.value, all: rows.length, shown: shown.length, told, right, most };
            select.value = "";
            select.dispatchEvent(new Event("change", { bubbles: true }));
            return said;
          }));
        })"""
    )
    assert found
    for said in found:
        assert said["right"], said
        assert said["told"] == said["shown"] > 0, said
        assert said["most"] == min(said["shown"], 8), said
    assert any(said["shown"] < said["all"] for said in found)


def assert_sheets_open(tab: Tab, width: int) -> None:
    """Every table shows rows when it is scrolled to, and scrolls within its box; axes' ticks do not touch."""
    for number in range(tab.ask("document.querySelectorAll('[data-sheet]').length")):
        box = f"document.querySelector('[data-sheet=\"{number}\"]')"
        tab.ask(f"{box}.scrollIntoView({{ behavior: 'instant' }})")
        tab.until(f"{box}.dataset.open === 'yes'")
        assert tab.ask(f"{box}.querySelectorAll('tbody tr').length") > 0
    assert tab.ask("document.documentElement.scrollWidth") <= width, "the page scrolls sideways"
    assert tab.ask(BROKEN_CELLS) == []
    touching = tab.ask(
        """[...document.querySelectorAll(".x")].filter((axis) => {
          const boxes = [...axis.children].map((tick) => tick.getBoundingClientRect());
          return boxes.length < 2 || boxes.some((one, at) => at && one.left < boxes[at - 1].right + 2);
        }).map((axis) => axis.textContent)"""
    )
    assert touching == []


def assert_keyboard_reaches(tab: Tab) -> None:
    """Tab goes to the skip link first, which is then to be seen, and from it on to filters."""
    tab.ask("document.activeElement.blur(), scrollTo(0, 0)")
    tab.press("Tab", 9)
    assert tab.ask("document.activeElement.className") == "skip"
    assert tab.ask("document.activeElement.getBoundingClientRect().left") >= 0
    reached = set()
    for _ in range(60):
        tab.press("Tab", 9)
        reached.add(tab.ask("document.activeElement.tagName"))
        assert tab.ask("getComputedStyle(document.activeElement).outlineStyle") != "none"
        if "SELECT" in reached:
            break
    assert {"A", "SELECT"} <= reached


def test_earmark_serves_reports_that_work_and_read_no_other(tab: Tab, tmp_path: Path) -> None:
    build_version(read_config(ROOT / "data/demo/mos-preferences.toml"), tmp_path)
    pulled = tmp_path / "captions/v1"
    pulled.mkdir(parents=True)
    (pulled / "report.html").write_text(STRANGERS)
    files = (FileEntry(path="report.html", sha256=SHA256, bytes=len(STRANGERS)),)
    (pulled / "manifest.json").write_text(MANIFEST.model_copy(update={"corpus": "captions", "files": files}).to_json())
    server = serve_metrics(str(tmp_path), "127.0.0.1", 0, "earmark:password")
    try:
        place = f"127.0.0.1:{server.server_port}/reports"
        tab("Page.navigate", url=f"http://earmark:password@{place}/captions/v1")  # the browser keeps the password
        tab.visit(f"http://{place}/captions/v1")
        assert tab.ask("Promise.all([self.origin, read])") == ["null", "nothing"]
        tab.show(1200, 900)
        tab.visit(f"http://{place}/mos-preferences/v1")
        assert tab.ask("self.origin") == "null"
        assert_filters_filter(tab)
        assert_keyboard_reaches(tab)
        assert_sheets_open(tab, 1200)
        assert_players_play(tab)
        tab.ask("document.querySelector('nav a').click()")
        tab.until("location.hash !== ''")
        assert tab.complaints == []
        assert asked_for(tab) == []
    finally:
        server.shutdown()
        server.server_close()


def test_hostile_text_does_nothing(tab: Tab, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(render_report(MANIFEST, STORY, HOSTILE_PAGE), encoding="utf-8")
    tab.open(page)
    assert tab.ask("document.images.length") == 0
    assert tab.ask("document.scripts.length") == 2
    assert "<script>alert(1)</script>" in tab.ask("document.querySelector('h3').textContent")
    assert asked_for(tab) == []
    assert tab.complaints == []


def test_text_runs_in_its_own_direction(tab: Tab, tmp_path: Path) -> None:
    """Cards, tags, facts, texts, bars and tables have it alike."""
    page = tmp_path / "report.html"
    page.write_text(render_report(MANIFEST, STORY, HOSTILE_PAGE), encoding="utf-8")
    tab.show(1280, 900)
    tab.open(page)
    places = (".rows h3", ".tags bdi", ".rows dd", ".texts p", "figure.bars th", ".resulttable td")
    there = [one for one in places if tab.ask(f"document.querySelector('{one}') !== null")]
    assert len(there) >= 5
    assert [one for one in there if not tab.reads_leftwards(one)] == []


FIRST_COLUMN = "[...document.querySelectorAll('tbody tr td:first-child')].map((cell) => cell.textContent)"


@pytest.mark.parametrize("width", [390, 1024, 1600])
def test_a_sheet_searches_sorts_turns_over_and_stays_text(tab: Tab, tmp_path: Path, width: int) -> None:
    rows = [(f"row {number % 7} <script>window.bad = {number}</script>", number * 37 % 101) for number in range(101)]
    rows[50] = ("<img src=x onerror='window.bad = 1'>", None)  # type: ignore[assignment]
    texts, numbers = zip(*rows, strict=True)
    links = {"__proto__": {"x": "main"}, "text": {rows[0][0]: "section-1"}}
    more = tuple(f"more {place}" for place in range(12))
    sheet = Sheet("t", ("n", "text", *more), (numbers, texts, *[texts] * 12), 5000, links)
    page = tmp_path / "report.html"
    page.write_text(render_report(MANIFEST, STORY, Page((Section("S", (sheet,)),))), encoding="utf-8")
    tab.show(width, 900)
    tab.open(page)
    tab.until("document.querySelector('[data-sheet]').dataset.open === 'yes'")

    def output() -> str:
        return str(tab.ask("document.querySelector('output').textContent"))

    def click(label: str) -> None:
        tab.ask(f"[...document.querySelectorAll('button')].find((one) => one.textContent === '{label}').click()")

    def search(words: str) -> None:
        tab.ask(f"(() => {{ const box = document.querySelector('input[type=search]'); box.value = {json.dumps(words)};"
                "box.dispatchEvent(new Event('input')); })()")  # fmt: skip

    def column() -> list[str]:
        found: list[str] = tab.ask(FIRST_COLUMN)
        return found

    def shown(values: list[int | None]) -> list[str]:
        return ["–" if value is None else str(value) for value in values]

    assert output() == "101 of 101 match; the page holds 101 of 5,000 rows"
    assert column() == shown([number for _, number in rows[:25]])
    click("next")
    assert column() == shown([number for _, number in rows[25:50]])
    ordered = sorted(number for _, number in rows if number is not None)
    click("n")
    assert column() == shown(ordered[:25])  # type: ignore[arg-type]
    assert tab.ask("document.activeElement.textContent") == "n"
    click("n")
    assert column() == shown(ordered[::-1][:25])  # type: ignore[arg-type]
    for _ in range(4):
        click("next")
    assert column() == ["–"]
    assert tab.ask("document.querySelectorAll('.pages button')[1].disabled")
    search("ROW script 3")
    said = [(f"{number} {text}".lower(), number) for text, number in rows]
    meant = [number for text, number in said if all(word in text for word in ("row", "script", "3"))]
    assert output().startswith(f"{len(meant)} of 101 match")
    assert column() == shown(sorted(meant, reverse=True)[:25])  # type: ignore[type-var]
    search("no such words")
    assert column() == []
    search("")
    heads = "[...document.querySelectorAll('thead th')].map((head) => head.textContent)"
    assert len(tab.ask(heads)) == 10
    tab.ask("document.querySelector('details').open = true; document.querySelector('details input').click()")
    assert tab.ask(heads)[0] == "text"
    assert tab.ask("document.documentElement.scrollWidth") <= width
    assert {"<script>", "</script>"} <= {found for found in ("<script>", "</script>") if found in "".join(column())}
    click("text")
    assert rows[50][0] in column()[:1]
    search(rows[0][0])
    assert tab.ask("document.querySelector('tbody a').getAttribute('href')") == "#section-1"
    assert tab.ask("window.bad") is None
    assert tab.ask("[document.images.length, document.scripts.length]") == [0, 2]
    assert tab.complaints == []
    assert asked_for(tab) == []


def test_a_reject_leads_to_the_option_that_can_change_it(demo: Store, tab: Tab) -> None:
    tab.show(1024, 900)
    tab.open(report_of(demo, "mos-preferences"))
    tab.ask("document.querySelector('[data-sheet]').scrollIntoView({ behavior: 'instant' })")
    tab.until("document.querySelector('[data-sheet]').dataset.open === 'yes'")
    tab.ask("[...document.querySelectorAll('tbody a')].find((one) => one.textContent === 'score_out_of_scale').click()")
    assert "sources.scale = [1.0, 5.0]" in tab.ask("document.querySelector(':target').textContent")
    tab.ask("[...document.querySelectorAll('tbody a')].find((one) => one.textContent === 'chimes/ratings.csv').click()")
    assert "01ea1519a823c9a743ba" in tab.ask("document.querySelector(':target').textContent")


def test_constant_data_is_said(tab: Tab, tmp_path: Path) -> None:
    figure = Histogram("Retries", ((0.0, 0.0, 1200),), unit="retries")
    page = tmp_path / "report.html"
    page.write_text(render_report(MANIFEST, STORY, Page((Section("S", (figure,)),))), encoding="utf-8")
    tab.open(page)
    assert "All 1,200 values are 0 retries." in tab.ask("document.body.innerText")
    assert tab.ask("document.querySelectorAll('.columns').length") == 0


def test_the_policy_refuses_what_is_not_in_the_page(tab: Tab, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(render_report(MANIFEST, STORY, HOSTILE_PAGE), encoding="utf-8")
    tab.open(page)
    tab.ask("document.body.append(Object.assign(document.createElement('script'), { textContent: 'window.bad = 1' }))")
    assert tab.ask("window.bad") is None
    refused = tab.ask("fetch('http://127.0.0.1:9/').then(() => 'went', (error) => String(error))")
    assert refused != "went"
    assert any("Content Security Policy" in json.loads(said)["entry"]["text"] for said in tab.complaints)
