"""The pages of a version: what outsiders' texts cannot do to them, and what other tools make of them."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Annotated, TypedDict

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.schemas.corpus import Story
from earmark.schemas.tables import Table
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.pipeline.report import (
    MOST_SHEET_BYTES,
    as_cell,
    beside_section,
    histogram,
    make_sheet,
    table_sheets,
    values_at,
)
from earmark.tasks.release.withdrawal import search, withdraw
from earmark.tasks.store.diff import Change
from earmark.tasks.store.figures import (
    AudioPlayer,
    Bars,
    Browser,
    Histogram,
    Page,
    Row,
    Section,
    Sheet,
    round_width,
    ticks,
)  # fmt: skip
from earmark.tasks.store.manifest import Manifest, Step
from earmark.tasks.store.report import axes_of, filters_of, render_report
from earmark.tasks.store.result_table import ResultTable, percent
from earmark.tasks.store.versions import Store, Version
from tests.builds import build_version, read_config
from tests.conftest import ROOT
from tests.pages import data_of

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
        HOSTILE,
        {HOSTILE: HOSTILE, "split": "train"},
        {HOSTILE: HOSTILE},
        {HOSTILE: HOSTILE},
        (AudioPlayer(HOSTILE, SHA256),),
    ),
    Row("two", {HOSTILE: "x", "split": "train"}, clips=(AudioPlayer("gone", None),)),
)
FIGURES = (
    Bars(HOSTILE, ((HOSTILE, 2.0),), says=HOSTILE),
    Histogram(HOSTILE, ((0.0, 1.0, 3), (1.0, 2.0, 0))),
    Histogram("empty", ()),
    ResultTable(HOSTILE, (HOSTILE, percent("share")), ((HOSTILE, 0.5), (None, None))),
    Browser(HOSTILE, ROWS, 3),
    Sheet(HOSTILE, (HOSTILE, "n"), ((HOSTILE, "b", *"a" * 60), (None, 10, *range(60))), 99, {HOSTILE: {"b": "main"}}),
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


@pytest.fixture
def built(demo_store: Store) -> Version:
    """A version of the demo of `mos-preferences`, with critiques and clips."""
    return demo_store.find("mos-preferences@v1")


def test_text_from_outside_stays_text() -> None:
    text = render_report(MANIFEST, STORY, HOSTILE_PAGE)
    page = Seen(text)
    assert [set(script) for script in page.of("script")] == [{"type", "id"}, set()]
    assert page.of("img") == []
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert "alert(1)" in text
    assert "alert(3) 49" not in text
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


def test_decimal_points_of_a_column_stand_below_each_other() -> None:
    grid = ResultTable("Means", ("a name", "mean"), (("one", None), ("two", 12), ("three", 3.25), ("four", 1234.5)))
    text = render_report(MANIFEST, STORY, Page((Section("S", (grid,)),)))
    for cell in ("–", "12.00", "3.25", "1,234.50"):
        assert f'<td class="n">{cell}</td>' in text
    assert '<th scope="col" class="n">mean</th>' in text, "the heading of numbers is theirs though the first is missing"


@pytest.mark.slow
def test_a_pairs_card_says_why_its_clip_is_chosen_in_figures_that_agree(built: Version) -> None:
    cards = (built.folder / "report.html").read_text("utf-8").split("<li data-tags=")[1:]
    shown = 0
    for card in cards:
        if (gap := re.search("<dt>gap</dt><dd>([0-9.]+) points", card)) is None:
            continue
        chosen, rejected = (float(re.findall(f">{side}, MOS ([0-9.]+)<", card)[0]) for side in ("chosen", "rejected"))
        assert float(gap[1]) == pytest.approx(chosen - rejected, abs=1e-9)
        shown += "chance that the chosen clip is better</dt>" in card
    assert shown > 0


@pytest.mark.slow
def test_what_an_option_sets_is_said_once_in_sentences(built: Version) -> None:
    text = (built.folder / "report.html").read_text("utf-8")
    assert ".;" not in text
    cells = [cell for cell in re.findall("<td>([^<]+[.])</td>", text) if ". " in cell]
    for cell in cells:
        sentences = cell.rstrip(".").split(". ")
        assert len(sentences) == len(set(sentences)), cell


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
    assert [entry.path for entry in built.manifest.files][-2:] == ["README.md", "report.html"]
    assert str(ROOT) not in (built.folder / "report.html").read_text("utf-8")


def test_the_report_holds_sound_and_a_sample(built: Version) -> None:
    page = Seen((built.folder / "report.html").read_text("utf-8"))
    assert len(page.of("audio")) > 50
    assert all(str(audio["data-sound"]) for audio in page.of("audio"))
    rows = [json.loads(str(item["data-tags"])) for item in page.of("li") if "data-tags" in item]
    assert {row["dataset"] for row in rows if "category" in row} == {"bvcc", "chimes", "vmc23"}


def test_the_report_holds_the_tables_rows_and_leads_from_rejects_to_options_and_inputs(built: Version) -> None:
    text = (built.folder / "report.html").read_text("utf-8")
    ids = {attributes["id"] for _, attributes in Seen(text).elements if "id" in attributes}
    rejects, *tables = data_of(text)["sheets"]
    rows = {name: sum(splits.values()) for name, splits in built.manifest.rows.items()}
    assert sorted(len(sheet["values"][0]) for sheet in tables) == sorted(
        rows[name] for name in rows if name != "rejects"
    )
    held = dict(zip(rejects["columns"], rejects["values"], strict=True))
    assert {name: held["reason"].count(name) for name in set(held["reason"])} == built.manifest.rejects
    assert rejects["columns"][:3] == ["reason", "file", "line"]
    assert set(rejects["links"]["reason"]) == set(held["reason"])
    assert {one for one in held["file"] if one} == set(rejects["links"]["file"]) <= set(built.manifest.inputs)
    assert {aim for links in rejects["links"].values() for aim in links.values()} <= ids
    assert "sources.scale = [1.0, 5.0]" in text
    assert {f"#reason-{name}" for name in built.manifest.rejects} <= {link.get("href") for link in Seen(text).of("a")}


def table_of(sql: str) -> duckdb.DuckDBPyConnection:
    """A database with the table `t`."""
    db = duckdb.connect()
    db.execute(f"CREATE TABLE t AS {sql}")
    return db


@pytest.mark.slow
@given(st.lists(st.floats(-1e6, 1e6).map(lambda value: round(value, 3)), min_size=1, max_size=50))
def test_bins_hold_each_number_and_end_where_numbers_end(values: list[float]) -> None:
    found = histogram(table_of(f"SELECT unnest({values}::DOUBLE[]) AS x"), "t", "x", "x")
    assert sum(count for _, _, count in found.bins) == len(values)
    low, high = found.bins[0][0], found.bins[-1][1]
    width = found.bins[0][1] - low
    assert low - 1e-6 * width <= min(values)
    assert max(values) <= high + 1e-6 * width
    if len(set(values)) == 1:
        assert found.bins == ((values[0], values[0], len(values)),)
    else:
        assert high - max(values) < width * (1 + 1e-6)
        counted = np.histogram(values, [*(one[0] - 1e-9 * width for one in found.bins), high + 1e-9 * width])[0]
        assert [one[2] for one in found.bins] == counted.tolist()


NUMBERS = st.lists(st.one_of(st.integers(-40, 40), st.floats(-40, 40).map(lambda x: round(x, 2))), max_size=30)


@pytest.mark.slow
@given(NUMBERS, NUMBERS)
def test_the_version_before_is_counted_in_the_same_bins(now: list[float], was: list[float]) -> None:
    db = table_of(f"SELECT unnest({now}::DOUBLE[]) AS x")
    db.execute(f'CREATE VIEW "before t" AS SELECT unnest({[str(one) for one in was]}::VARCHAR[]) AS x')  # another type
    found = histogram(db, "t", "x", "x")
    if not now or not was:
        assert found.before == ()
        return
    if len(set(now + was)) == 1:
        assert (found.bins, found.before) == (((now[0], now[0], len(now)),), (len(was),))
        return
    edges = [*(one[0] - 1e-9 for one in found.bins), found.bins[-1][1] + 1e-9]
    for values, counts in ((now, [one[2] for one in found.bins]), (was, found.before)):
        assert list(np.histogram(values, edges)[0]) == list(counts)


def test_a_version_stands_beside_the_one_before() -> None:
    """Rows that came, left and changed by split, also of tables and splits that one of them lacks."""
    old = MANIFEST.model_copy(update={"rows": {"rows": {"train": 5, "ood": 2}}, "rejects": {"a": 1}})
    new = MANIFEST.model_copy(update={"version": "v2", "rows": {"rows": {"train": 4, "test": 3}, "more": {"full": 1}}})
    counts = [("rows", "train", 1, 2, 1, 2), ("rows", "test", 3, 0, 0, 0), ("rows", "ood", 0, 2, 0, 0)]
    counts.append(("more", "full", 1, 0, 0, 0))
    changes = [Change(*one) for one in counts]
    section = beside_section(new, old, changes)
    rows, rejects = section.figures
    assert isinstance(rows, ResultTable)
    assert isinstance(rejects, ResultTable)
    assert (section.title, rows.columns[2:4], rejects.rows) == ("Beside v1", ("v1", "v2"), (("a", 1, 0),))
    assert set(rows.rows) == {
        *{("rows", "train", 5, 4, 1, 2, 1), ("rows", "test", 0, 3, 3, 0, 0)},
        *{("rows", "ood", 2, 0, 0, 2, 0), ("more", "full", 0, 1, 1, 0, 0)},
    }
    for _, _, was, now, added, removed, _ in rows.rows:
        assert was + added - removed == now  # type: ignore[operator]


@pytest.mark.slow
def test_a_report_draws_the_version_before_unless_rows_were_withdrawn_since(tmp_path: Path) -> None:
    config = read_config(ROOT / "data/demo/mos-preferences-audio.toml")
    build_version(config, tmp_path)
    build_version(config.model_copy(update={"pairs": config.pairs.model_copy(update={"min_gap": 1.5})}), tmp_path)
    store, known = Store(tmp_path), {"mos-preferences": find_corpus("mos-preferences")}
    files = [str(path) for path in store.find("mos-preferences").files("ratings")]
    (clip,) = duckdb.sql("SELECT min(clip_sha256) FROM read_parquet($1)", params=[files]).fetchall()[0]
    withdraw(store, known, search(store, known, "clip", clip), "asked for")
    pages = [(one.folder / "report.html").read_text("utf-8") for one in store.versions("mos-preferences")]
    assert ['class="was"' in page for page in pages] == [False, True, False]
    assert [f"Beside v{number}<" in page for number, page in enumerate(pages)] == [False, True, True]


@pytest.mark.parametrize(
    ("sql", "low", "high", "counts"),
    [
        ("SELECT unnest([1.0, 3.5, 5.0]::DOUBLE[]) AS x", 1.0, 5.0, 3),  # a scale's last point is no bin of its own
        ("SELECT unnest([0, 1, 1, 4]) AS x", -0.5, 4.5, 4),  # a bar stands over its whole number
        ("SELECT unnest([0, 100]) AS x", -0.5, 104.5, 2),
    ],
)
def test_where_axes_end(sql: str, low: float, high: float, counts: int) -> None:
    found = histogram(table_of(sql), "t", "x", "x")
    assert (found.bins[0][0], found.bins[-1][1], sum(one[2] for one in found.bins)) == (low, high, counts)
    assert all(not found.whole or value.is_integer() for value, _ in axes_of(found)["x"])


@given(st.floats(-1e6, 1e6), st.floats(0.001, 1e6), st.integers(2, 12))
def test_ticks_are_few_and_lie_where_their_values_do(low: float, length: float, most: int) -> None:
    found = ticks(low, low + length, most)
    assert len(found) <= most
    for value, place in found:
        assert -1e-6 <= place <= 1 + 1e-6
        assert math.isclose(low + place * length, value, abs_tol=1e-6 * (abs(low) + length))


def test_the_upward_axis_ends_above_the_highest_bar() -> None:
    for highest in (1, 2, 34, 999, 1_000_000):
        axes = axes_of(Histogram("", ((0, 1, highest), (1, 2, 0))))
        assert axes["y"][0] == (0, 0)
        assert axes["y"][-1] == (axes["most"], 1)
        assert highest <= axes["most"] < 3 * highest
        assert len(axes["y"]) <= 5


@pytest.mark.parametrize(
    ("value", "cell"),
    [(None, None), (True, True), (2**53, str(2**53)), (1.23456789, 1.23457), (math.nan, "nan"), (["a", "b"], "a, b"),
     ("x" * 500, "x" * 240 + "…"), ([1, 2], "1, 2")],
)  # fmt: skip
def test_cells_are_json_of_few_letters(value: object, cell: object) -> None:
    assert as_cell(value) == cell


@pytest.mark.parametrize(
    ("key", "values"),
    [("a.b", ["1", "2"]), ("c", ["x"]), ("d", []), ("a", []), ("c.b", []), ("no.where", []), ("e", ["[1.0, 5.0]"])],
)
def test_what_a_config_says_under_a_key(key: str, values: list[str]) -> None:
    config = {"a": [{"b": 1}, {"b": 2}, {"b": 1}, {}], "c": "x", "d": None, "e": [1.0, 5.0]}
    assert values_at(config, key) == values


class Numbered(TypedDict):
    """Rows."""

    name: Annotated[str, "A name."]
    n: Annotated[int, "A number."]


LONG = Table("t", row=Numbered, key=("name",))


@pytest.mark.slow
def test_a_page_has_a_most_size_and_the_rows_in_it_are_a_sample_by_hash() -> None:
    """Rows that nothing compresses fill the tables' share of a page, and no more; the page stays below 5 MB."""
    noise = "string_agg(md5((i * 7 + j)::VARCHAR), '' ORDER BY j) AS name"
    db = table_of(f"SELECT {noise}, i AS n FROM range(20000) a(i), range(7) b(j) GROUP BY i")
    names = [f"t{number}" for number in range(8)]
    for name in names:
        db.execute(f"CREATE VIEW {name} AS SELECT * FROM t")
    corpus = replace(find_corpus("captions"), tables=tuple(replace(LONG, name=name) for name in names))
    sheets = table_sheets(db, corpus, MOST_SHEET_BYTES)
    size = len(render_report(MANIFEST, STORY, Page((sheets,))).encode())
    assert MOST_SHEET_BYTES / 3 < size < MOST_SHEET_BYTES + 100_000
    rows = tuple(Row(f"row {place}", {}, texts={str(part): "x" * 100_000 for part in range(4)}) for place in range(60))
    page = Page((sheets, Section("Rows", (Browser("rows", rows, 60),))))
    assert len(render_report(MANIFEST, STORY, page).encode()) < 5_000_000
    (sheet,) = {(one.columns, one.values[:1][0][:50], one.total) for one in sheets.figures if isinstance(one, Sheet)}
    everything = [name for (name,) in db.execute("SELECT name FROM t").fetchall()]
    assert list(sheet[1]) == sorted(everything, key=lambda name: hashlib.md5(name.encode()).hexdigest())[:50]


def test_reasons_take_turns_in_a_sheet_and_its_bytes_have_no_date() -> None:
    db = table_of("SELECT i::VARCHAR AS name, (i > 0)::INT AS n FROM range(20000) r(i)")
    sheet = make_sheet(db, LONG, 1_000_000, by="n", first=("n",))
    assert sheet.columns == ("n", "name")
    assert set(sheet.values[0][:2]) == {0, 1}
    assert (len(sheet.values[0]), sheet.total) == (5000, 20000)
    assert base64.b64decode(sheet.packed)[4:8] == bytes(4)


def test_backticks_become_code_and_what_they_hold_stays_text() -> None:
    section = Section("s", (), "see `pairs.min_gap`, `<b>x</b>` and one ` alone")
    page = render_report(MANIFEST, STORY, Page((section,)))
    assert "see <code>pairs.min_gap</code>, <code>&lt;b&gt;x&lt;/b&gt;</code> and one ` alone" in page
