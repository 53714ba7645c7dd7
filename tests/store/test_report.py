"""The pages of a version: what outsiders' texts cannot do to them, and what other tools make of them."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import mlcroissant
import pytest

from earmark.schemas.corpus import Story
from earmark.tasks.store.figures import Bars, Browser, Clip, Grid, Histogram, Page, Row, Section, round_width
from earmark.tasks.store.manifest import Manifest, Step
from earmark.tasks.store.report import filters_of, render_report
from earmark.tasks.store.versions import Version
from tests.builds import build_version, read_config
from tests.conftest import ROOT

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"' onload=alert(3) {{ 7 * 7 }}"
STORY = Story(title="A title", summary="", method=(), main_table="rows", references=(), limits=())
MANIFEST = Manifest(
    corpus="rows", version="v1", build_key="", inputs={}, config={}, code="", libraries={}, rejects={}, files=(),
    rows={"rows": {"train": 3}},
    steps=(Step(name=HOSTILE, place=1, unit=HOSTILE, entered=3, kept=1, rejected={HOSTILE: 1}, dropped={HOSTILE: 1},
                notes=(HOSTILE,)),),
)  # fmt: skip
SHA256 = "ab" * 32
ROWS = (
    Row(
        HOSTILE, {HOSTILE: HOSTILE, "split": "train"}, {HOSTILE: HOSTILE}, {HOSTILE: HOSTILE}, (Clip(HOSTILE, SHA256),)
    ),
    Row("two", {HOSTILE: "x", "split": "train"}, clips=(Clip("gone", None),)),
)
FIGURES = (
    Bars(HOSTILE, ((HOSTILE, 2.0),), says=HOSTILE),
    Histogram(HOSTILE, ((0.0, 1.0, 3), (1.0, 2.0, 0))),
    Histogram("empty", ()),
    Grid(HOSTILE, (HOSTILE, "share"), ((HOSTILE, 0.5), (None, None)), ("share",)),
    Browser(HOSTILE, ROWS, 3),
)
HOSTILE_PAGE = Page((Section(HOSTILE, FIGURES, HOSTILE),), {SHA256: b"mp3"})


class Seen(HTMLParser):
    """The elements of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def of(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of all elements of a kind."""
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """A version of the demo of `mos-preferences`, with critiques and clips."""
    return build_version(read_config(ROOT / "data/demo/mos-preferences.toml"), tmp_path_factory.mktemp("store"))


def test_text_from_outside_stays_text() -> None:
    text = render_report(MANIFEST, STORY, HOSTILE_PAGE)
    page = Seen(text)
    assert [set(script) for script in page.of("script")] == [{"type", "id"}, set()]
    assert page.of("img") == []
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert "alert(1)" in text
    assert "49" not in text
    tags = [json.loads(str(item["data-tags"])) for item in page.of("li") if "data-tags" in item]
    assert tags == [dict(row.tags) for row in ROWS]


def test_ids_are_unique_and_every_label_leads_somewhere() -> None:
    sections = tuple(Section(title, ()) for title in ("Same words", "Same words?", "Sounds", "Main"))
    page = Seen(render_report(MANIFEST, STORY, Page(sections)))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    aimed = [str(link["href"])[1:] for link in page.of("a")] + [
        str(part["aria-labelledby"]) for part in page.of("section")
    ]
    assert set(aimed) <= set(ids)


def test_missing_sound_is_said() -> None:
    text = render_report(MANIFEST, STORY, HOSTILE_PAGE)
    assert text.count("Audio not embedded.") == 1
    assert len(Seen(text).of("audio")) == 1


def test_a_filter_that_tells_nothing_apart_is_left_out() -> None:
    assert filters_of(Browser("", ROWS, 3)) == {HOSTILE: sorted([HOSTILE, "x"])}


@pytest.mark.parametrize(("least", "width"), [(0.0, 1.0), (0.9, 1.0), (0.11, 0.2), (3, 5), (51, 100), (2e-7, 2e-7)])
def test_bins_have_round_widths(least: float, width: float) -> None:
    assert round_width(least) == width


@pytest.mark.slow
def test_a_version_names_its_pages(built: Version) -> None:
    assert [entry.path for entry in built.manifest.files][-3:] == ["README.md", "report.html", "croissant.json"]
    for name in ("report.html", "croissant.json"):
        assert str(ROOT) not in (built.folder / name).read_text("utf-8")


def test_the_report_holds_sound_and_a_sample(built: Version) -> None:
    page = Seen((built.folder / "report.html").read_text("utf-8"))
    assert len(page.of("audio")) > 50
    assert all(str(audio["data-sound"]) for audio in page.of("audio"))
    rows = [json.loads(str(item["data-tags"])) for item in page.of("li") if "data-tags" in item]
    assert {row["dataset"] for row in rows if "category" in row} == {"bvcc", "chimes", "vmc23"}
    assert {row["reason"] for row in rows if "reason" in row} == set(built.manifest.rejects)


@pytest.mark.slow
def test_croissant_reads_every_row(built: Version) -> None:
    dataset = mlcroissant.Dataset(jsonld=str(built.folder / "croissant.json"))
    assert not dataset.metadata.ctx.issues.errors
    held = {record_set.id: len(list(dataset.records(record_set.id))) for record_set in dataset.metadata.record_sets}
    assert held == {table: sum(splits.values()) for table, splits in built.manifest.rows.items()}
    assert not (Path(built.folder) / "croissant.json").read_text("utf-8").count("NaN")


def test_backticks_become_code_and_what_they_hold_stays_text() -> None:
    section = Section("s", (), "see `pairs.min_gap`, `<b>x</b>` and one ` alone")
    page = render_report(MANIFEST, STORY, Page((section,)))
    assert "see <code>pairs.min_gap</code>, <code>&lt;b&gt;x&lt;/b&gt;</code> and one ` alone" in page
