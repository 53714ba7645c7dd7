"""What `earmark inspect view` asks of a version: against pandas, and by words that want to be SQL."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from earmark.schemas.errors import InputError
from earmark.schemas.tables import REJECTS
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.pipeline.report import as_cell
from earmark.tasks.store.explain import hide_places
from earmark.tasks.store.shelf import ANYWHERE, OPERATIONS, Filter, Shelf
from earmark.tasks.store.staging import staging
from earmark.tasks.store.versions import Store, Version, open_store
from tests.builds import build_version, read_config
from tests.conftest import ROOT

TABLES = find_corpus("mos-preferences").tables


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    """A version of the audio demo, whose other version has fewer pairs."""
    root = tmp_path_factory.mktemp("store")
    config = read_config(ROOT / "data/demo/mos-preferences-audio.toml")
    build_version(config.model_copy(update={"pairs": config.pairs.model_copy(update={"min_gap": 1.5})}), root)
    return Shelf(build_version(config, root), TABLES, root)


def other(shelf: Shelf) -> Store:
    return Store(shelf.version.folder.parent.parent)


def frame(shelf: Shelf, table: str, version: str | None = None) -> pd.DataFrame:
    """A table as pandas reads it."""
    found = other(shelf).find(f"mos-preferences@{version or shelf.version.name}")
    return pd.concat([pd.read_parquet(path) for path in found.files(table)], ignore_index=True)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(
    column=st.sampled_from(["category", "split", "mos_gap", "gap_decile", "chosen_id", "chosen_mos_se"]),
    operation=st.sampled_from(sorted(OPERATIONS)),
    value=st.sampled_from(["same_source", "train", "1", "0.5", "ALTO", "alto", "%", "", "'"]),
    order=st.sampled_from([None, "mos_gap", "chosen_id", "chosen_mos_se"]),
    rising=st.booleans(),
    first=st.integers(0, 30),
)
def test_pages_are_those_of_pandas(
    shelf: Shelf, column: str, operation: str, value: str, order: str | None, rising: bool, first: int
) -> None:
    rows = frame(shelf, "pairs")
    try:
        number = float(value)
    except ValueError:
        number = None  # type: ignore[assignment]
    texts = [None if pd.isna(one) else str(one) for one in rows[column]]
    if operation in ("is at least", "is at most") and number is None:
        with pytest.raises(InputError, match="expected a number"):
            shelf.page("rows pairs", [Filter(column, operation, value)], order, rising, first, 7)
        return

    def fits(text: str | None) -> bool:
        if text is None:
            return operation in ("is empty", "is not")
        try:
            own = float(text)
        except ValueError:
            own = None  # type: ignore[assignment]
        held = {text}
        if column in ("mos_gap", "chosen_mos_se") and own is not None and number is not None:
            held |= {f"{own:.6g}", *([value] if number in (own, float(f"{own:.6g}")) else [])}  # 2 for 2.0, as shown
        return {
            "contains": any(value.lower() in one.lower() for one in held), "is": value in held,
            "is not": value not in held, "is empty": False,
            "is at least": None not in (own, number) and own >= number,
            "is at most": None not in (own, number) and own <= number,
        }[operation]  # fmt: skip

    meant = rows[[fits(text) for text in texts]].sort_values("pair_id")
    if order:
        meant = meant.sort_values(order, ascending=rising, kind="stable", na_position="last")
    page, total = shelf.page("rows pairs", [Filter(column, operation, value)], order, rising, first, 7)
    assert total == len(meant)
    assert [row["pair_id"] for row in page] == meant["pair_id"].iloc[first : first + 7].tolist()


@pytest.mark.slow
def test_a_number_is_found_as_the_page_shows_it(shelf: Shelf) -> None:
    gaps = frame(shelf, "pairs")["mos_gap_normalized"]
    whole, third = gaps[gaps % 1 == 0].iloc[0], gaps[gaps.map(lambda one: len(str(one)) > 12)].iloc[0]
    for value in (whole, third):
        shown = as_cell(value)
        typed = f"{shown:g}"  # as JavaScript writes it: 2, 0.333333
        alike = int((gaps.map(as_cell) == shown).sum())
        for operation, total in (("is", alike), ("is not", len(gaps) - alike)):
            wanted = Filter("mos_gap_normalized", operation, typed)
            assert shelf.page("rows pairs", [wanted], None, True, 0, 1)[1] == total
        assert shelf.page("rows pairs", [Filter(ANYWHERE, "contains", typed)], None, True, 0, 1)[1] >= alike


HOSTILE = ['pair_id" OR 1=1 --', "pair_id; DROP TABLE pairs", "1", "", "audio", "PAIR_ID", "{0}", "$value0"]


@pytest.mark.parametrize("words", HOSTILE)
def test_words_that_want_to_be_sql_are_no_columns_and_find_nothing(shelf: Shelf, words: str) -> None:
    for filters, order in (([Filter(words, "is", "x")], None), ([], words or "nowhere")):
        with pytest.raises(InputError, match="expected a column"):
            shelf.page("rows pairs", filters, order, True, 0, 5)
    with pytest.raises(InputError, match="expected one of contains"):
        shelf.page("rows pairs", [Filter("pair_id", words)], None, True, 0, 5)
    with pytest.raises(InputError, match="expected one of rows"):
        shelf.page(f"rows {words}", [], None, True, 0, 5)
    assert shelf.page("rows pairs", [Filter("pair_id", "is", words)], None, True, 0, 5) == ([], 0)


def test_what_differs_from_another_version(shelf: Shelf) -> None:
    """The rows that came, left and changed are those of the keys and values in pandas."""
    old = other(shelf).find("mos-preferences@v1")
    counts, relation = shelf.compare("pairs", old)
    was, now = (frame(shelf, "pairs", name).set_index("pair_id") for name in ("v1", "v2"))
    both = was.index.intersection(now.index)
    changed = {key for key in both if not was.loc[key].equals(now.loc[key])}
    meant = {"added": set(now.index) - set(was.index), "removed": set(was.index) - set(now.index), "changed": changed}
    rows, total = shelf.page(relation, [], None, True, 0, 10_000)
    for what, keys in meant.items():
        assert {row["pair_id"] for row in rows if row["what"] == what} == keys
        assert sum(getattr(one, what) for one in counts) == len(keys)
    assert total == sum(map(len, meant.values())) > 0
    key = sorted(changed)[0]
    before, after = shelf.both("pairs", old, {"pair_id": key})
    assert (before["gap_decile"], after["gap_decile"]) == (was.loc[key, "gap_decile"], now.loc[key, "gap_decile"])
    assert shelf.both("pairs", old, {"pair_id": sorted(meant["added"])[0]})[0] == {}


def test_a_pair_leads_to_its_two_clips(shelf: Shelf) -> None:
    rows, _ = shelf.page("rows pairs", [], None, True, 0, 5)
    clips = frame(shelf, "ratings").set_index("sample_id")["clip_sha256"]
    for row in rows:
        named = dict(shelf.clips_of("pairs", row))
        assert named == {name: clips[row[name]] for name in ("chosen_id", "rejected_id")}


@pytest.mark.slow
def test_a_clip_that_a_table_holds_is_given_only_if_it_still_is_that_file(built_demo: Path, tmp_path: Path) -> None:
    store = Store(built_demo)
    version = store.find("human-preferences")
    tables = find_corpus("human-preferences").tables
    shelf = Shelf(version, tables, tmp_path)
    rows, _ = shelf.page("rows clips", [Filter("clip_sha256", "contains", "")], None, True, 0, 3)
    assert "audio" not in rows[0]
    for row in rows:
        found = shelf.embedded(row["clip_sha256"])
        assert found is not None
        assert hashlib.sha256(found[1]).hexdigest() == row["clip_sha256"]
    assert shelf.embedded("0" * 64) is None
    assert shelf.embedded("x' OR true --") is None


def test_equal_rejects_show_the_places_of_all(tmp_path: Path) -> None:
    lines = [("x", "one/a.csv", 7), ("y", "one/a.csv", 5), ("x", "one/a.csv", 3), ("x", "two/b.csv", 3)]
    held = [("t", item, "read", "duplicate", "said", file, line, None) for item, file, line in lines]
    table = pa.Table.from_pylist([dict(zip(REJECTS.schema.names, row, strict=True)) for row in held], REJECTS.schema)
    with staging(open_store(str(tmp_path)), "c", "0" * 64, say=print) as stage:
        pq.write_table(hide_places(stage, table), tmp_path / "rejects.parquet")
    manifest = SimpleNamespace(build_key="0" * 64, rows={"rejects": {"all": 4}})
    made = SimpleNamespace(folder=tmp_path / "c/v1", manifest=manifest, files=lambda _: [tmp_path / "rejects.parquet"])
    shelf = Shelf(cast(Version, made), [REJECTS], tmp_path)
    rows, total = shelf.page("rows rejects", [Filter(ANYWHERE, "contains", "DUPLI")], None, True, 0, 9)
    assert total == 4
    found = {(row["item"], row["file"]): shelf.placed(row) for row in rows}
    places = {key: (row["file"], row["line"]) for key, row in found.items()}
    assert places == {
        ("x", "one"): (["one/a.csv", "one/a.csv"], [3, 7]),
        ("x", "two"): (["two/b.csv"], [3]),
        ("y", "one"): (["one/a.csv"], [5]),
    }
    assert shelf.page("rows rejects", [Filter(ANYWHERE, "contains", "two")], None, True, 0, 9)[1] == 1
