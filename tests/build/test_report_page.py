"""Each demo corpus's report, in a real Chromium."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from earmark.tasks.build.registry import corpora
from earmark.tasks.store.report import render_report
from earmark.tasks.store.versions import Store
from tests.browser import Tab, chromium
from tests.store.test_report import HOSTILE_PAGE, MANIFEST, STORY

pytestmark = pytest.mark.slow

# Cells whose text stands on more lines than it has words of at most 12 letters: words were broken.
BROKEN_CELLS = """[...document.querySelectorAll('td, th')].filter((cell) => {
  const words = cell.textContent.trim().split(/[\\s_/.-]+/);
  if (words.some((word) => word.length > 12)) return false;
  return cell.clientHeight > (words.length + 1) * 1.55 * parseFloat(getComputedStyle(cell).fontSize) + 12;
}).map((cell) => cell.textContent)"""
WITHOUT_SOUND = {"music-prompts", "score-questions"}


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """A browser for all tests."""
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def demo(built_demo: Path) -> Store:
    """A store with every demo corpus."""
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
    for width, scheme in ((1200, "light"), (390, "dark")):
        tab.show(width, 900, scheme)
        tab.open(page)
        assert tab.ask("document.documentElement.scrollWidth") <= width, "the page scrolls sideways"
        papers.add(tab.ask("getComputedStyle(document.body).backgroundColor"))
        assert tab.ask(BROKEN_CELLS) == []
        assert_filters_filter(tab)
        assert_keyboard_reaches(tab)
        if corpus not in WITHOUT_SOUND:
            assert_players_play(tab)
        assert tab.complaints == []
        assert asked_for(tab) == []
    assert len(papers) == 2, "light and dark look the same"


def assert_players_play(tab: Tab) -> None:
    """Every player knows its length; the first goes forward; its spectrogram is drawn; starting another stops it."""
    assert tab.ask("document.querySelectorAll('audio').length") > 1
    tab.until("[...document.querySelectorAll('audio')].every((one) => one.error || one.readyState >= 1)")
    assert tab.ask("[...document.querySelectorAll('audio')].every((one) => !one.error && one.duration > 0)")
    tab.ask("document.querySelector('audio').play()")
    tab.until("document.querySelector('audio').currentTime > 0.05")
    tab.ask("document.querySelectorAll('audio')[1].play()")
    assert tab.ask("document.querySelector('audio').paused")
    tab.ask("document.querySelectorAll('audio')[1].pause()")
    tab.ask("document.querySelector('canvas').scrollIntoView({ behavior: 'instant' })")
    tab.until("document.querySelector('canvas').dataset.drawn === 'yes'")


def assert_filters_filter(tab: Tab) -> None:
    """Each value of each filter leaves exactly the rows that have it, and the count says so."""
    found = tab.ask(
        """[...document.querySelectorAll("form.filters")].flatMap((form) => {
          const rows = [...form.parentElement.querySelectorAll(".rows > li")];
          return [...form.querySelectorAll("select")].flatMap((select) => [...select.options].map((option) => {
            select.value = option.value;
            select.dispatchEvent(new Event("change", { bubbles: true }));
            const shown = rows.filter((row) => row.checkVisibility());
            const told = Number(form.querySelector("output b").textContent);
            const name = select.dataset.filter;
            const meant = rows.filter((row) => !option.value || JSON.parse(row.dataset.tags)[name] === option.value);
            const right = shown.length === meant.length && shown.every((row) => meant.includes(row));
            const said = { name, value: option.value, all: rows.length, shown: shown.length, told, right };
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
    assert any(said["shown"] < said["all"] for said in found)


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


def test_hostile_text_does_nothing(tab: Tab, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(render_report(MANIFEST, STORY, HOSTILE_PAGE), encoding="utf-8")
    tab.open(page)
    assert tab.ask("document.images.length") == 0
    assert tab.ask("document.scripts.length") == 2
    assert "<script>alert(1)</script>" in tab.ask("document.querySelector('h3').textContent")
    assert asked_for(tab) == []
    assert tab.complaints == []


def test_the_policy_refuses_what_is_not_in_the_page(tab: Tab, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(render_report(MANIFEST, STORY, HOSTILE_PAGE), encoding="utf-8")
    tab.open(page)
    tab.ask("document.body.append(Object.assign(document.createElement('script'), { textContent: 'window.bad = 1' }))")
    assert tab.ask("window.bad") is None
    refused = tab.ask("fetch('http://127.0.0.1:9/').then(() => 'went', (error) => String(error))")
    assert refused != "went"
    assert any("Content Security Policy" in json.loads(said)["entry"]["text"] for said in tab.complaints)
