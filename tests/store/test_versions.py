"""Versions: what a commit proves, what makes two builds the same, what readers find."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.errors import InputError, StoreError
from earmark.schemas.mos_preferences import CORPUS, RATINGS, MosPreferences
from earmark.schemas.tables import REJECTS, Table
from earmark.tasks.exports.rows import view_columns
from earmark.tasks.mos_preferences.sources import plan_build
from earmark.tasks.pipeline.inputs import build_key
from earmark.tasks.pipeline.registry import find_corpus
from earmark.tasks.store.commit import check_accounts, check_rejects, check_table
from earmark.tasks.store.explain import explain
from earmark.tasks.store.files import link_over, replacing
from earmark.tasks.store.manifest import Manifest, Step, read_manifest, schema_digest
from earmark.tasks.store.staging import STAGING, staging, sweep
from earmark.tasks.store.versions import MANIFEST, Store, Version, open_store, verify
from tests.builds import build_version, config_of, contents_of, rows_of
from tests.importers import layouts

NAME = CORPUS.name


def lists(folder: Path) -> Path:
    """A folder with lists of two sources, some of whose rows are faulty."""
    layouts.table(folder / "t.csv")
    layouts.vmc23(folder / "vmc23")
    with (folder / "t.csv").open("a") as file:
        file.write("bad.wav,99,s,p,t,3\n")
    return folder


def config(folder: Path, **values: Any) -> MosPreferences:
    """A build over those lists."""
    table = {"name": "one", "format": "table", "files": {"train": "t.csv"}, "columns": layouts.TABLE_COLUMNS}
    values.setdefault("quotas", {"vmc23": {"ood": 50}})
    return config_of(folder, table, {"name": "vmc23", "format": "vmc23", "root": "vmc23", "split": "ood"}, **values)


TABLES = [table for table in CORPUS.tables if not table.optional]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Version]:
    """Lists and a version of them, which no test may change."""
    folder = lists(tmp_path_factory.mktemp("shared"))
    return folder, build_version(config(folder), folder / "store")


def key_of(built: MosPreferences, store: Path) -> str:
    """The build key that a config would have."""
    return plan_build(built, Store(store)).build_key


@pytest.mark.slow
def test_two_builds_are_byte_identical(shared: tuple[Path, Version], tmp_path: Path) -> None:
    again = build_version(config(lists(tmp_path / "moved")), tmp_path / "elsewhere")
    assert contents_of(again.folder) == contents_of(shared[1].folder)
    assert {"README.md", MANIFEST} < set(contents_of(again.folder))


@pytest.mark.slow
def test_manifest_says_what_is_there(shared: tuple[Path, Version]) -> None:
    version = shared[1]
    manifest = version.manifest
    assert Manifest.model_validate_json(manifest.to_json()) == manifest
    assert verify(version) == []
    assert {entry.path for entry in manifest.files} == set(contents_of(version.folder)) - {MANIFEST}
    for table in TABLES:
        assert sum(manifest.rows[table.name].values()) == len(rows_of(version, table.name))
    assert manifest.rejects == {"score_out_of_scale": 1, "clean_reference": 1}
    assert {(row["file"], row["line"], row["reason"]) for row in rows_of(version, "rejects")} == {
        ("one/t.csv", 42, "score_out_of_scale"),
        ("vmc23/track3_answer.txt", 41, "clean_reference"),
    }
    text = (version.folder / MANIFEST).read_text() + (version.folder / "README.md").read_text()
    assert str(shared[0]) not in text


@pytest.mark.slow
def test_same_things_are_up_to_date(shared: tuple[Path, Version], tmp_path: Path) -> None:
    folder = lists(tmp_path)
    first = build_version(config(folder), folder / "store")
    before = {path: path.stat().st_mtime_ns for path in first.folder.rglob("*")}
    assert build_version(config(folder), folder / "store") == first
    assert before == {path: path.stat().st_mtime_ns for path in first.folder.rglob("*")}
    assert [version.name for version in Store(folder / "store").versions(NAME)] == ["v1"]


def test_build_key_knows_what_decides_the_rows(shared: tuple[Path, Version], tmp_path: Path) -> None:
    folder = lists(tmp_path / "a")
    key = key_of(config(folder), tmp_path)
    assert key == shared[1].manifest.build_key
    assert key_of(config(lists(tmp_path / "b")), tmp_path) == key
    assert key_of(config(folder, quotas={"vmc23": {"ood": 50}}, seed=17, audio="none"), tmp_path) == key
    others = [{"seed": 18}, {"quotas": {"vmc23": {"ood": 51}}}, {"pairs": {"min_gap": 0.5}}]
    changed = [key_of(config(folder, **values), tmp_path) for values in others]
    changed.append(key_of(config(folder).model_copy(update={"limit": 10}), tmp_path))
    raw = (folder / "vmc23/track1_answer.txt").read_bytes()
    (folder / "vmc23/track1_answer.txt").write_bytes(raw.replace(b"AD_test_00", b"AD_test_01", 1))
    changed.append(key_of(config(folder), tmp_path))
    assert len({key, *changed}) == len(changed) + 1


def test_build_key_knows_schemas_code_and_prompts() -> None:
    fields = [RATINGS.schema.field(0).with_metadata({b"description": b"x", b"required": b"true"}), *RATINGS.schema][:2]
    other = dataclasses.replace(RATINGS, row=None, schema=pa.schema(fields))
    tables = [[RATINGS], [other], [dataclasses.replace(RATINGS, key=("file",))]]
    keys = {build_key({"a": 1, "b": 2}, {}, held, "code", {}) for held in tables}
    keys |= {build_key({}, {}, [RATINGS], "other code", {}), build_key({}, {}, [RATINGS], "code", {"p@1": "0"})}
    assert len(keys) == 5
    assert build_key({"b": 2, "a": 1}, {}, [RATINGS], "code", {}) == build_key(
        {"a": 1, "b": 2}, {}, [RATINGS], "code", {}
    )
    assert schema_digest(RATINGS) != schema_digest(other)


def test_tmhint_folders_are_inputs(tmp_path: Path) -> None:
    layouts.tmhint_qi(tmp_path / "t", audio=True)
    built = config_of(tmp_path, {"name": "t", "format": "tmhint-qi", "root": "t"})
    before = key_of(built, tmp_path / "store")
    clip = next((tmp_path / "t/test").iterdir())
    clip.rename(tmp_path / "t/train" / clip.name)
    assert key_of(built, tmp_path / "store") != before


@pytest.mark.slow
def test_next_version_links_what_did_not_change(tmp_path: Path) -> None:
    folder = lists(tmp_path)
    first = build_version(config(folder), folder / "store")
    second = build_version(config(folder, seed=18), folder / "store")
    assert second.name == "v2"
    same = {
        path
        for path, raw in contents_of(second.folder).items()
        if path.endswith(".parquet") and contents_of(first.folder).get(path) == raw
    }
    assert any(path.startswith("ratings/ood") for path in same)
    assert any(path.startswith("rejects/") for path in same)
    assert all((first.folder / path).samefile(second.folder / path) for path in same)
    assert not (first.folder / MANIFEST).samefile(second.folder / MANIFEST)
    lineage = second.manifest.parents[0]
    assert (lineage.version, lineage.digest) == ("v1", first.manifest.digest())
    assert verify(first) == verify(second) == []


@pytest.mark.slow
def test_a_damaged_file_of_the_version_before_takes_no_sound_ones_place(tmp_path: Path) -> None:
    folder = lists(tmp_path)
    first = build_version(config(folder), folder / "store")
    (table,) = first.files("rejects")
    raw = bytearray(table.read_bytes())
    raw[len(raw) // 2] ^= 1
    table.write_bytes(raw)
    second = build_version(config(folder, seed=18), folder / "store")
    assert second.name == "v2"
    assert len(verify(first)) == 1
    assert verify(second) == []
    assert second.files("ratings", "ood")[0].samefile(first.files("ratings", "ood")[0])


@pytest.mark.slow
def test_forced_rebuild_with_the_same_bytes_adds_nothing(tmp_path: Path) -> None:
    folder = lists(tmp_path)
    first = build_version(config(folder), folder / "store")
    held = contents_of(first.folder)
    assert build_version(config(folder), folder / "store", force=True) == first
    assert [path.name for path in (folder / "store" / NAME).iterdir() if path.name != ".lock"] == ["v1"]
    assert contents_of(first.folder) == held


@pytest.mark.slow
def test_folder_that_lost_its_manifest_is_no_version_and_no_obstacle(tmp_path: Path) -> None:
    folder = lists(tmp_path)
    first = build_version(config(folder), folder / "store")
    (first.folder.with_name("v2") / "pairs").mkdir(parents=True)
    second = build_version(config(folder, seed=18), folder / "store")
    assert second.name == "v3"
    assert [version.name for version in Store(folder / "store").versions(NAME)] == ["v1", "v3"]


@pytest.mark.slow
def test_stale_staging_is_swept(tmp_path: Path) -> None:
    folder = lists(tmp_path)
    stale = folder / "store" / NAME / STAGING / "0123456789abcdef"
    (stale / "version/pairs").mkdir(parents=True)
    (stale / "version/pairs/.train-00000.tmp").touch()
    build_version(config(folder), folder / "store")
    assert not stale.parent.exists()
    stale.mkdir(parents=True)
    build_version(config(folder), folder / "store")  # up to date; the next build cleans up all the same
    assert not stale.parent.exists()


def test_half_swept_staging_is_not_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    with staging(store, NAME, "a" * 64, say=print) as stage:
        stage.record(Step(name="import", place=1, unit="rows", entered=1, kept=1))
    monkeypatch.setattr("shutil.rmtree", lambda path: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        sweep(store, NAME, keep=None)
    monkeypatch.undo()
    with staging(store, NAME, "a" * 64, say=print) as stage:
        assert stage.steps() == []
        assert [path.name for path in stage.folder.parent.iterdir()] == [stage.folder.name]


def test_half_written_files_of_a_resumed_build_are_removed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with staging(store, NAME, "a" * 64, say=print) as stage:
        stage.record(Step(name="import", place=1, unit="rows", entered=1, kept=1))
        (stage.version / "audio").mkdir()
        (stage.version / "audio/.x.wav.12.tmp").touch()
        (stage.version / ".README.md.12.tmp").touch()
    with staging(store, NAME, "a" * 64, say=print) as stage:
        assert [step.name for step in stage.steps()] == ["import"]
        assert not [path for path in stage.version.rglob("*") if path.is_file()]


def test_linking_again_leaves_no_second_name(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "b").write_text("x")
    for _ in range(2):
        link_over(tmp_path / "a", tmp_path / "b")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
        assert (tmp_path / "a").samefile(tmp_path / "b")


@pytest.mark.slow
def test_store_without_hard_links_keeps_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    folder = lists(tmp_path)
    build_version(config(folder), folder / "store")
    assert verify(build_version(config(folder, seed=18), folder / "store")) == []


def test_replacing_is_all_or_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with pytest.raises(StoreError), replacing(tmp_path / "a") as path:
        _fail(path.write_text("half"))
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("a", "old")]


def hold(store: Path, ready: Any, done: Any) -> None:
    """Hold a corpus's lock until told otherwise."""
    with staging(Store(store), NAME, "b" * 64, say=print):
        ready.set()
        done.wait(60)


def test_second_build_waits(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    ready, done = context.Event(), context.Event()
    holder = context.Process(target=hold, args=(tmp_path, ready, done))
    holder.start()
    try:
        assert ready.wait(60)
        said: list[str] = []

        def let_go(line: str) -> None:
            said.append(line)
            done.set()

        with staging(Store(tmp_path), NAME, "a" * 64, say=let_go) as stage:
            assert said == [f"waiting for another build of {NAME} (process {holder.pid}) to end"]
            assert [path.name for path in stage.folder.parent.iterdir()] == ["a" * 16]
    finally:
        done.set()
        holder.join()


@pytest.fixture
def copy(tmp_path: Path) -> Version:
    """A version that a test may damage."""
    return build_version(config(lists(tmp_path)), tmp_path / "store")


def test_an_explanation_that_stops_at_its_most_rows_says_so(
    shared: tuple[Path, Version], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["inspect", "explain", NAME, "bad.wav", "--store", str(shared[0] / "store")]
    assert CliRunner().invoke(app, words).stderr == ""
    monkeypatch.setattr("earmark.tasks.store.explain.MOST", 1)
    assert "the first 1 such rows of rejects; there may be more" in CliRunner().invoke(app, words).stderr


@pytest.mark.slow
def test_a_difference_of_rejects_is_listed_as_theirs(tmp_path: Path) -> None:
    folder = lists(tmp_path)
    build_version(config(folder), folder / "store")
    with (folder / "t.csv").open("a") as file:
        file.write("worse.wav,98,s,p,t,3\n")
    build_version(config(folder), folder / "store")
    words = ["inspect", "diff", f"{NAME}@v1", f"{NAME}@v2", "--rows", "--json", "--store", str(folder / "store")]
    listed = json.loads(CliRunner().invoke(app, words).stdout)["rows"]
    assert [(row["table"], row["what"], row["dropped_from"]) for row in listed] == [("rejects", "added", "ratings")]


@pytest.mark.slow
def test_verify_finds_every_damage(copy: Version) -> None:
    table = next((copy.folder / "pairs").glob("*.parquet"))
    raw = bytearray(table.read_bytes())
    raw[len(raw) // 2] ^= 1
    table.write_bytes(raw)
    (copy.folder / "README.md").unlink()
    (copy.folder / "ratings/extra.parquet").touch()
    for name in (".DS_Store", "pairs/.DS_Store", "pairs/Thumbs.db", "desktop.ini"):
        (copy.folder / name).write_bytes(b"of a file manager")
    faults = verify(copy)
    assert len(faults) == 3
    assert faults[0].startswith(f"pairs/{table.name}: expected SHA-256 ")
    assert faults[1] == "README.md: missing"
    assert faults[2] == "ratings/extra.parquet: not named in the manifest"
    table.write_bytes(raw[:-1])
    assert f"pairs/{table.name}: expected {len(raw)} bytes, found {len(raw) - 1}" in verify(copy)


@pytest.mark.slow
def test_damaged_manifest_is_one_line(copy: Version) -> None:
    path = copy.folder / MANIFEST
    whole = json.loads(path.read_text())
    for text in ("", "{", "[]", json.dumps({**whole, "extra": 1}), json.dumps({**whole, "files": 3})):
        path.write_text(text)
        with pytest.raises(StoreError, match=r"^[^\n]* is not a valid manifest: [^\n]*$"):
            read_manifest(path)
    path.write_text(json.dumps({**whole, "format": 2, "what_a_later_release_adds": 1}))
    with pytest.raises(StoreError, match="expected format 1, found 2: a later release of Earmark reads it"):
        read_manifest(path)
    path.unlink()
    with pytest.raises(StoreError, match="not a committed version"):
        read_manifest(path)
    assert Store(copy.folder.parents[1]).versions(NAME) == []


@pytest.mark.slow
def test_a_version_renamed_by_hand_is_refused(copy: Version) -> None:
    copy.folder.rename(copy.folder.with_name("v7"))
    renamed = Store(copy.folder.parents[1]).find(NAME)
    with pytest.raises(StoreError, match=f"expected the manifest of {NAME} v7, found that of {NAME} v1"):
        renamed.files("pairs")


def test_find_names_what_is_there(shared: tuple[Path, Version]) -> None:
    store = Store(shared[0] / "store")
    assert store.find(NAME) == store.find(f"{NAME}@v1") == shared[1]
    assert store.corpora() == [NAME]
    for spec, message in ((f"{NAME}@v2", "found: v1"), ("captions", f"corpora there: {NAME}"), ("a@b@c", "expected")):
        with pytest.raises(StoreError, match=message):
            store.find(spec)
    with pytest.raises(StoreError, match="has no table 'none'"):
        shared[1].files("none")


# A hand-made violation for each check of a commit.

Written = dict[str, list[Path]]


def written(folder: Path, table: Table, **splits: list[dict[str, Any]]) -> Written:
    """A table's files, a split a file."""
    files = {}
    for split, rows in splits.items():
        files[split] = [folder / f"{split}.parquet"]
        pq.write_table(pa.Table.from_pylist(rows, table.schema), files[split][0])
    return files


def rating(clip: str, split: str, **values: Any) -> dict[str, Any]:
    """A sound row of `ratings`."""
    row = dict.fromkeys(RATINGS.schema.names)
    facts = {"sample_id": clip, "dataset": "one", "split": split, "file": clip, "mos": 3.0, "source_file": "l"}
    return {**row, **facts, "scale_min": 1.0, "scale_max": 5.0, "source_line": 1, **values}


def test_sound_table_passes(tmp_path: Path) -> None:
    files = written(tmp_path, RATINGS, train=[rating("a", "train")], test=[rating("b", "test")])
    check_table(duckdb.connect(), RATINGS, files)


VIOLATIONS: list[tuple[str, dict[str, list[dict[str, Any]]], str]] = [
    (
        "null",
        {"train": [rating("a", "train"), rating("b", "train", mos=None)]},
        "column mos is required, 1 rows are null",
    ),
    ("key", {"train": [rating("a", "train"), rating("a", "train")]}, "the key sample_id='a' stands in 2 rows"),
    ("split", {"train": [rating("a", "train")], "test": [rating("a", "test")]}, "sample_id"),
    (
        "audio",
        {"ood": [rating("a", "ood", clip_sha256="f")], "test": [rating("b", "test", clip_sha256="f")]},
        "clip_sha256 'f' is in both ood and test",
    ),
]


@pytest.mark.parametrize(("splits", "message"), [row[1:] for row in VIOLATIONS], ids=[row[0] for row in VIOLATIONS])
def test_violation_stops_the_commit(tmp_path: Path, splits: dict[str, Any], message: str) -> None:
    with pytest.raises(StoreError, match=message) as caught:
        check_table(duckdb.connect(), RATINGS, written(tmp_path, RATINGS, **splits))
    assert str(caught.value).startswith("table ratings: ")


def test_clip_in_two_splits_stops_the_commit(tmp_path: Path) -> None:
    table = dataclasses.replace(RATINGS, key=())
    files = written(tmp_path, table, train=[rating("a", "train")], test=[rating("a", "test")])
    with pytest.raises(StoreError, match="sample_id 'a' is in both test and train"):
        check_table(duckdb.connect(), table, files)


def test_other_schema_stops_the_commit(tmp_path: Path) -> None:
    bare = pa.schema([field.remove_metadata() for field in RATINGS.schema])
    pq.write_table(pa.Table.from_pylist([rating("a", "train")], bare), tmp_path / "train.parquet")
    with pytest.raises(StoreError, match=r"train\.parquet does not have the published schema"):
        check_table(duckdb.connect(), RATINGS, {"train": [tmp_path / "train.parquet"]})


def step(name: str = "b", **values: Any) -> Step:
    """An account that adds up."""
    facts = {"place": 2, "unit": "rows", "stage": "b", "entered": 3, "kept": 2, "rejected": {"bad": 1}}
    return Step.model_validate({"name": name, **facts, **values})


ACCOUNTS: list[tuple[list[Step], str]] = [
    ([step(entered=4)], "4 rows entered, 3 came out or were rejected"),
    ([step(dropped={"quota": 1})], "3 rows entered, 4 came out"),
    ([step("a"), step(follows=("a",))], "step b: 3 rows entered, but a kept 2"),
    ([step(table="ratings")], "kept 2 rows, table ratings has 5 rows"),
    ([step(table="pairs")], "table pairs has 0 rows"),
]


@pytest.mark.parametrize(("steps", "message"), ACCOUNTS, ids=[row[1] for row in ACCOUNTS])
def test_accounts_that_do_not_add_up(steps: list[Step], message: str) -> None:
    with pytest.raises(StoreError, match=message):
        check_accounts(steps, {"ratings": 5})


def test_rejects_that_disagree_with_the_accounts(tmp_path: Path) -> None:
    row = {"table": "ratings", "item": "x", "stage": "b", "reason": "bad", "detail": "d", "file": "f", "line": 1}
    one, other = ([row], [{**row, "reason": "worse"}])
    files = written(tmp_path, REJECTS, one=one, two=one + one, other=other, none=[])
    check_rejects(duckdb.connect(), files["one"], [step()])
    for name in ("two", "other", "none"):
        with pytest.raises(StoreError, match="rejects: stage b counted"):
            check_rejects(duckdb.connect(), files[name], [step()])


@pytest.mark.slow
def test_failed_check_leaves_the_store_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = lists(tmp_path)
    first = build_version(config(folder), folder / "store")
    held = contents_of(first.folder)
    monkeypatch.setattr("earmark.tasks.store.commit.check_tables", _fail)
    with pytest.raises(StoreError, match="as told"):
        build_version(config(folder, seed=18), folder / "store")
    monkeypatch.undo()
    assert [version.name for version in Store(folder / "store").versions(NAME)] == ["v1"]
    assert contents_of(first.folder) == held
    assert build_version(config(folder, seed=18), folder / "store").name == "v2"


def _fail(*_: object) -> None:
    raise StoreError("as told")


def test_an_input_that_changes_during_the_build_commits_nothing(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("f,m\na,1\nb,2\n", encoding="utf-8")
    values = {"name": "one", "format": "table", "files": {"test": "t.csv"}, "columns": {"file": "f", "mos": "m"}}
    config = config_of(tmp_path, values)
    plan = plan_build(config, open_store(str(tmp_path / "store")))
    (tmp_path / "t.csv").write_text("f,m\na,1\nb,3\n", encoding="utf-8")
    with plan.stage() as stage, pytest.raises(InputError, match=r"one/t\.csv changed during the build"):
        plan.commit(stage)
    assert open_store(str(tmp_path / "store")).versions(config.corpus) == []


@pytest.mark.slow
def test_a_reader_names_a_shard_that_is_cut_or_gone(copy: Version) -> None:
    path, *others = copy.files("pairs")
    content = path.read_bytes()
    corpus, view = find_corpus(NAME), find_corpus(NAME).views[0]
    (copy.folder / "README.md").write_text("a page is no data\n")
    store = Store(copy.folder.parents[1])
    assert store.with_key(NAME, copy.manifest.build_key) == copy
    path.unlink()  # it may be a link
    for left, found in ((None, "no file"), (content[:-100], f"{len(content) - 100:,}")):
        if left is not None:
            path.write_bytes(left)
        said = (
            f"{path}: expected {len(content):,} bytes, as the manifest says, found {found}; see: earmark inspect verify"
        )
        for read in (
            lambda: copy.files("pairs"),
            copy.table_files,
            lambda: view_columns(copy, corpus, view),
            lambda: explain(copy, corpus.tables, "x"),
            lambda: store.with_key(NAME, copy.manifest.build_key),
        ):
            with pytest.raises(StoreError, match=re.escape(said)):
                read()
    assert copy.files_there("pairs") == [path, *others]
