"""Nothing paid is lost: the ledger and the versions of the release before, in the hands of this one."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import load_dataset
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.flows.command.running import demo_config
from earmark.flows.music_prompts import build
from earmark.schemas.config import Licence
from earmark.schemas.music_prompts import MusicPrompts
from earmark.schemas.reasons import current_word
from earmark.schemas.tables import REJECTS
from earmark.schemas.toml import parse_config, read_toml
from earmark.tasks.annotation.prompts import PACKAGED, packaged, read_lock
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.release.withdrawal import search, withdraw
from earmark.tasks.store.diff import changed_rows, diff_table
from earmark.tasks.store.licences import Redaction, Terms
from earmark.tasks.store.lineage import lineage
from earmark.tasks.store.versions import Store, Version, verify
from earmark.tasks.store.withdrawals import Kind
from tests.before import compare
from tests.before.fixture import LEDGER, before, older, paid, seed, unpack
from tests.builds import restate, rows_of, traces
from tests.release.publications import Publications
from tests.runner import run_flow
from tests.servers.hub import HubServer

State = Callable[[Path, Iterable[str]], Store]


def change(version: Version, table: str, split: str, other: Callable[[pa.Table], pa.Table]) -> None:
    """Write other rows into a table's only file of a split; of them the manifest says the size alone."""
    (path,) = [version.folder / e.path for e in version.manifest.files if (e.table, e.split) == (table, split)]
    pq.write_table(other(pq.ParquetFile(path).read()), path)
    restate(version)


def with_first(table: pa.Table, **values: object) -> pa.Table:
    """A table whose first row has other values."""
    first, *others = table.to_pylist()
    return pa.Table.from_pylist([{**first, **values}, *others], table.schema)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The store of the release's demo. No test may change it."""
    return unpack(tmp_path_factory.mktemp("before"))


@pytest.mark.slow
def test_no_demo_asks_a_model_what_the_ledger_of_the_release_answers(old: Store, built_demo: Path) -> None:
    assert len(paid(old.root)["attempts"]) > 700
    assert compare.asked(built_demo, old.root) == []


@pytest.mark.slow
@pytest.mark.parametrize("corpus", compare.HOUSE)
def test_a_demo_has_the_rows_of_the_release(old: Store, built_demo: Path, corpus: str) -> None:
    lines = list(compare.compare(before(old, corpus), Store(built_demo).find(corpus)))
    assert len(lines) >= len(before(old, corpus).manifest.rows) > 1
    assert [line for _, found in lines for line in found] == []


def test_the_comparison_sees_what_differs(old: Store, tmp_path: Path) -> None:
    was = before(old, "captions")
    now = Version("captions", tmp_path / "v1")
    shutil.copytree(was.folder, now.folder)
    change(now, "captions", "train", lambda rows: with_first(rows, tags=None))
    change(now, "raw", "full", lambda rows: rows.append_column("mood", [["calm"] * len(rows)]))
    change(now, "tag_coverage", "full", lambda rows: rows.slice(1))
    change(now, "rejects", "full", lambda rows: with_first(rows, detail="in other words").sort_by("reason"))
    lines = dict(compare.compare(was, now))
    told = {line.split()[1].strip(":"): (line, found) for line, found in lines.items()}
    assert told["raw"] == ("captions raw: 24 rows, equal; new columns: mood", [])
    assert told["rejects"] == ("captions rejects: 8 rows, equal", [])
    assert told["tag_coverage"][1] == ["captions tag_coverage full: expected 22 rows, found 21"]
    (fault,) = told["captions"][1]
    assert fault.startswith("captions captions train: tags of row 0: expected [")
    change(now, "rejects", "full", lambda rows: with_first(rows, line=99))
    assert len(dict(compare.compare(was, now))["captions rejects: 8 rows, differs"]) == 2


def test_a_diff_takes_a_word_of_before_for_the_reason_in_its_place(old: Store, tmp_path: Path) -> None:
    was = before(old, "human-preferences")
    now = Version("human-preferences", tmp_path / "v1")
    shutil.copytree(was.folder, now.folder)
    words = [row["reason"] for row in rows_of(was, "rejects")]
    current = [current_word(word) for word in words]
    assert words != current

    def renamed(rows: pa.Table) -> pa.Table:
        return rows.set_column(rows.schema.get_field_index("reason"), "reason", pa.array(current))

    change(now, "rejects", "full", renamed)
    with duckdb.connect() as connection:
        (counts,) = diff_table(connection, REJECTS, was, now)
        assert (counts.same, counts.added, counts.removed, counts.changed) == (len(words), 0, 0, 0)
        change(now, "rejects", "full", lambda rows: with_first(rows, reason="adult"))
        (counts,) = diff_table(connection, REJECTS, was, now)
        assert (counts.added, counts.removed) == (1, 1)


@pytest.mark.slow
def test_a_request_that_was_not_paid_is_seen(old: Store, tmp_path: Path) -> None:
    seed(tmp_path)
    with closing(sqlite3.connect(tmp_path / LEDGER)) as ledger:
        ((gone,),) = ledger.execute("SELECT min(id) FROM requests WHERE model = 'builtin:music-caption-1'").fetchall()
        ledger.execute("DELETE FROM attempts WHERE request_id = ?", (gone,))
        ledger.execute("DELETE FROM requests WHERE id = ?", (gone,))
        ledger.commit()
    compare.build(["captions"], tmp_path)
    assert compare.asked(tmp_path, old.root) == [
        "ledger: requests: 1 rows are new, 1 are gone",
        "ledger: attempts: 1 rows are new, 1 are gone",
    ]


@pytest.mark.slow
def test_the_strict_writers_words_of_before_still_find_their_answers(tmp_path: Path) -> None:
    """Version 2 adds a paragraph. Without it the file is the one that the lock has, and as own words asks nothing."""
    new = packaged("music-prompt-strict").text
    start, end = (new.index(words) for words in ("\nEvery word that names", "{% if shots %}\nThe example"))
    words = (new[:start] + new[end:]).replace("version: 2", "version: 1", 1)
    assert hashlib.sha256(words.encode()).hexdigest() == read_lock(PACKAGED)["music-prompt-strict@1"]
    (tmp_path / "strict.md").write_text(words, "utf-8")
    seed(tmp_path / "store")
    path = demo_config("music-prompts")
    values = {**read_toml(path), "asks": {"music-prompt-strict": str(tmp_path / "strict.md")}}
    version = run_flow(build, parse_config(MusicPrompts, values, path), tmp_path / "store")
    assert paid(version.folder.parents[1])["requests"] == paid(seed(tmp_path / "old").root)["requests"]
    was = before(older(tmp_path / "older"), "music-prompts")
    keys = [[row["request_key"] for row in rows_of(v, "prompts")] for v in (version, was)]
    assert keys[0] == keys[1] != []


@pytest.fixture(scope="module")
def oldest(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Versions from before the release. No test may change them."""
    return older(tmp_path_factory.mktemp("older"))


@pytest.mark.parametrize("made", ["old", "oldest"])
@pytest.mark.parametrize("corpus", compare.HOUSE)
def test_a_version_of_the_release_and_of_before_it_is_whole_and_loads(
    made: str, corpus: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    version = before(request.getfixturevalue(made), corpus)
    assert verify(version) == []
    for table, splits in version.manifest.rows.items():
        loaded = load_dataset(str(version.folder), table, cache_dir=str(tmp_path))
        assert {split: len(rows) for split, rows in loaded.items()} == splits
        files = f"{version.folder / table}/*.parquet"
        count = f"SELECT count(*) FROM read_parquet('{files}', hive_partitioning = false)"
        assert duckdb.execute(count).fetchall() == [(sum(splits.values()),)]


@pytest.mark.slow
@pytest.mark.parametrize("corpus", compare.HOUSE)
def test_a_version_of_the_release_is_compared_with_a_new_one(old: Store, built_demo: Path, corpus: str) -> None:
    new = Store(built_demo).find(corpus)
    with duckdb.connect() as connection:
        for table in find_corpus(corpus).tables:
            counted = diff_table(connection, table, before(old, corpus), new)
            rows = sum(new.manifest.rows.get(table.name, {}).values())
            if rows and table.name not in before(old, corpus).manifest.rows:  # a new table
                assert sum(change.added for change in counted) == rows
            elif table.name not in (compare.REJECTS, *compare.MEANT.get(corpus, {})):  # details of rejects may differ
                assert sum(change.same for change in counted) == rows
                assert list(changed_rows(connection, table)) == []


# What is withdrawn from each corpus: its kind, and the table and column that name it.
WITHDRAWN: dict[str, tuple[Kind, str, str]] = {
    "captions": ("clip", "captions", "heard_sha256"),
    "human-preferences": ("annotator", "votes", "annotator"),
    "instruction-rubrics": ("clip", "samples", "clip_sha256"),
    "instrumentals": ("clip", "tracks", "mix_sha256"),
    "mos-preferences": ("clip", "critiques", "clip_sha256"),
    "music-prompts": ("prompt", "prompts", "prompt_id"),
    "pseudo-preferences": ("clip", "clips", "clip_sha256"),
    "score-questions": ("annotator", "sources", "author_id"),
}


@pytest.fixture(scope="module")
def press(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HubServer, Publications]]:
    """A Hub, and what publishes to it in processes of their own."""
    folder = tmp_path_factory.mktemp("hub")
    with HubServer(folder / "hub") as hub, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", hub.endpoint)
        patch.setenv("HF_HOME", str(folder / "home"))
        patch.setenv("HF_HUB_DISABLE_XET", "1")
        with Publications(folder / "press") as publications:
            yield hub, publications


@pytest.mark.slow
@pytest.mark.parametrize("state", [unpack, older])
@pytest.mark.parametrize("corpus", compare.HOUSE)
def test_a_version_of_the_release_and_of_before_it_is_published_and_withdrawn_from(
    state: State, corpus: str, press: tuple[HubServer, Publications], tmp_path: Path
) -> None:
    hub, publications = press
    store, repo = state(seed(tmp_path).root, (corpus,)), f"{state.__name__}/{corpus}"
    was = before(store, corpus)
    told = publications.run(tmp_path, corpus, repo, allow_builtin=True)
    assert "fault" not in told, told
    assert {file.path for file in was.manifest.files if file.table} < hub.files(repo, "v1").keys()

    kind, table, column = WITHDRAWN[corpus]
    value = next(row[column] for row in rows_of(was, table) if row[column])
    known = {corpus: find_corpus(corpus)}
    withdraw(store, known, search(store, known, kind, value), "asked for")
    now = store.find(corpus)
    assert (now.name, verify(now), verify(was)) == ("v2", [], [])
    assert traces(was, [value]) != traces(now, [value]) == []
    ended = CliRunner().invoke(
        app, ["inspect", "diff", f"{corpus}@v1", f"{corpus}@v2", "--json", "--store", str(tmp_path)]
    )
    assert ended.exit_code == 0, ended.output
    assert table in {count["table"] for count in json.loads(ended.stdout)["counts"] if count["removed"]}


@pytest.mark.slow
def test_rejects_of_before_the_release_leave_with_an_annotator_that_their_details_name(tmp_path: Path) -> None:
    """They have no column that says what they are about; nor do they get one in the version that a withdrawal makes."""
    name = "human-preferences"
    store, known = older(seed(tmp_path).root, (name,)), {name: find_corpus(name)}
    details = [row["detail"] for row in rows_of(before(store, name), "rejects")]
    authors = [detail.rpartition("annotator ")[2] for detail in details if "annotator " in detail]
    for number, who in enumerate(sorted(set(authors))[:2], 2):
        was = store.find(name)
        withdraw(store, known, search(store, known, "annotator", who), "asked for")
        now = store.find(name)
        assert (now.name, verify(now)) == (f"v{number}", [])
        assert traces(now, [who]) == []
        assert len(rows_of(was, "rejects")) - len(rows_of(now, "rejects")) == authors.count(who) > 0


@pytest.mark.parametrize("corpus", compare.HOUSE)
def test_a_version_of_the_release_is_published_without_a_closed_source(old: Store, corpus: str, tmp_path: Path) -> None:
    version = before(old, corpus)
    tables = find_corpus(corpus).tables
    with lineage(tables, version.table_files()) as rows:
        sources = sorted(rows.sources())
    terms = {name: Licence(redistribute="none" if name == sources[0] else "all") for name in sources}
    part = Redaction(version, tables, Terms(terms))
    for table in tables:
        rejects = table.name == compare.REJECTS
        columns = ["file"] if rejects else [ref.column for ref in table.refs if ref.kind == "source"]
        for split in version.manifest.rows.get(table.name, {}) if columns else ():
            for path in part.write(tmp_path / "part", table, split):
                cells = pq.ParquetFile(path).read(columns=columns).to_pylist()
                of = {(value or "").partition("/")[0] if rejects else value for row in cells for value in row.values()}
                assert of <= set(sources[1:])
