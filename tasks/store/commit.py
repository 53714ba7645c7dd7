"""Commit a version in five phases, each from values to values: redact, check, compare, render, seal."""

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
from pydantic import ValidationError

from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import StoreError
from earmark.schemas.machine import processors
from earmark.schemas.registry import load
from earmark.schemas.tables import REJECTS, UNSPLIT, Table
from earmark.schemas.toml import first_fault
from earmark.tasks.store.card import render_card, split_order
from earmark.tasks.store.diff import Change, diff_tables
from earmark.tasks.store.explain import write_rejects
from earmark.tasks.store.figures import Page
from earmark.tasks.store.files import link_over, sha256_file, sync, write_text
from earmark.tasks.store.licences import model_terms, sources_behind, terms_of, unmet_licences
from earmark.tasks.store.lineage import without_withdrawn
from earmark.tasks.store.manifest import (
    CARD,
    MANIFEST,
    PAGES,
    REPORT,
    RULES,
    FileEntry,
    Manifest,
    Parent,
    Step,
    claimant_of,
    schema_digest,
)
from earmark.tasks.store.parquet import file_entry
from earmark.tasks.store.report import render_report
from earmark.tasks.store.sql import connect, quoted, readable
from earmark.tasks.store.staging import SPILL, Stage, sweep
from earmark.tasks.store.versions import Version
from earmark.tasks.store.view_configs import card_of, card_parts
from earmark.tasks.store.withdrawals import Withdrawal, bring_withdrawals, marks_for, names_for, withdrawals


def check_tables(
    corpus: str,
    tables: Sequence[Table],
    written: Mapping[str, Mapping[str, Sequence[Path]]],
    steps: Sequence[Step],
    spill: Path,
) -> None:
    """Check all written tables of a corpus, by table and split, and the accounts of its steps."""
    known = {table.name for table in tables}
    if not {table.name for table in tables if not table.optional} <= set(written) <= known:
        raise StoreError(f"{corpus}: expected tables {sorted(known)}, found {sorted(written)}")
    counts = {
        name: sum(pq.read_metadata(path).num_rows for paths in splits.values() for path in paths)
        for name, splits in written.items()
    }
    check_accounts(steps, counts)
    with connect(spill) as connection:
        for table in tables:
            if table.name in written:
                check_table(connection, table, written[table.name])
        check_rejects(connection, written[REJECTS.name][UNSPLIT], steps)


def check_accounts(steps: Sequence[Step], rows: Mapping[str, int]) -> None:
    """Check that every item entering a step was kept, rejected or dropped, and that none appeared in between."""
    kept = {step.name: step.kept for step in steps}
    for step in steps:
        out = step.kept + sum(step.rejected.values()) + sum(step.dropped.values())
        if step.entered != out:
            raise StoreError(f"step {step.name}: {step.entered} {step.unit} entered, {out} came out or were rejected")
        came = sum(kept[name] for name in step.follows)
        if step.follows and step.entered != came:
            before = ", ".join(step.follows)
            raise StoreError(f"step {step.name}: {step.entered} {step.unit} entered, but {before} kept {came}")
        if step.table is not None and step.kept != rows.get(step.table, 0):
            found = rows.get(step.table, 0)
            raise StoreError(f"step {step.name}: kept {step.kept} {step.unit}, table {step.table} has {found} rows")


def check_rejects(connection: duckdb.DuckDBPyConnection, files: Sequence[Path], steps: Sequence[Step]) -> None:
    """Check the rows of the `rejects` table against the steps' counts."""
    counted: Counter[tuple[str, str]] = Counter()
    for step in steps:
        for reason, count in step.rejected.items():
            counted[step.stage, reason] += count
    query = f"SELECT stage, reason, count(*) FROM {_rows('files')} GROUP BY ALL"
    listed = {
        (stage, reason): n for stage, reason, n in connection.execute(query, {"files": [*map(str, files)]}).fetchall()
    }
    for stage, reason in sorted(counted.keys() | listed.keys()):
        expected, found = counted[stage, reason], listed.get((stage, reason), 0)
        if expected != found:
            raise StoreError(f"rejects: stage {stage} counted {expected} '{reason}', the table lists {found}")


def check_table(connection: duckdb.DuckDBPyConnection, table: Table, files: Mapping[str, Sequence[Path]]) -> None:
    """Check a written table's schema, required values, unique key and separation of splits."""
    names = [str(path) for paths in files.values() for path in paths]
    for path in names:
        if not pq.read_schema(path).equals(table.schema, check_metadata=True):
            raise StoreError(f"table {table.name}: {Path(path).name} does not have the published schema")
    counts = ", ".join(f"count(*) - count({quoted(name)})" for name in table.required)
    row = connection.execute(f"SELECT {counts} FROM {_rows('files')}", {"files": names}).fetchall()[0]
    for name, nulls in zip(table.required, row, strict=True):
        if nulls:
            raise StoreError(f"table {table.name}: column {name} is required, {nulls} rows are null")
    if table.key:
        _check_key(connection, table, names)
    for column in table.exclusive:
        for split, other in combinations(sorted(files), 2):
            shared = connection.execute(
                f"""SELECT {quoted(column)} FROM {_rows("here")} WHERE {quoted(column)} IS NOT NULL
                    INTERSECT SELECT {quoted(column)} FROM {_rows("there")} ORDER BY ALL LIMIT 1""",
                {"here": [*map(str, files[split])], "there": [*map(str, files[other])]},
            ).fetchall()
            if shared:
                raise StoreError(f"table {table.name}: {column} {shared[0][0]!r} is in both {split} and {other}")


def _rows(parameter: str) -> str:
    """Return a parameter's files as an SQL relation; a store below `split=x/` must not add a column from its path."""
    return f"read_parquet(${parameter}, hive_partitioning = false)"


def _check_key(connection: duckdb.DuckDBPyConnection, table: Table, names: list[str]) -> None:
    """Compare the numbers of rows and distinct keys, by 64-bit hash first: exact, and small in memory. Equal keys have
    equal hashes, so as many hashes as rows prove the keys unique; only otherwise are keys compared."""
    key, rows = ", ".join(map(quoted, table.key)), _rows("files")
    counted = f"SELECT count(*), count(DISTINCT hash({key})) FROM {rows}"
    count, hashes = connection.execute(counted, {"files": names}).fetchall()[0]
    if count == hashes:
        return
    repeated = f"SELECT {key}, count(*) FROM {rows} GROUP BY {key} HAVING count(*) > 1 ORDER BY ALL LIMIT 1"
    for *values, count in connection.execute(repeated, {"files": names}).fetchall():
        shown = ", ".join(f"{name}={value!r}" for name, value in zip(table.key, values, strict=True))
        raise StoreError(f"table {table.name}: the key {shown} stands in {count} rows, expected one")


@dataclass(frozen=True)
class Made:
    """Facts of a build about its version, beside the tables."""

    corpus: Corpus  # its tables and the card's words
    config: dict[str, Any]  # the config as recorded
    inputs: dict[str, str]  # SHA-256 of every input file, by its name in the tables
    code: str  # digest of the build's code
    libraries: dict[str, str]  # versions of libraries that decide the bytes
    parents: tuple[Parent, ...] = ()  # versions of other corpora, used as inputs
    prompts: dict[str, str] = field(default_factory=dict)  # digest by `name@version`
    models: tuple[str, ...] = ()  # the models asked
    sections: dict[str, str] = field(default_factory=dict)  # further sections of the card, Markdown by heading
    # returns the report's sections once every table is staged; it also gets the changes
    page: Callable[[Stage, Manifest, Sequence[Change]], Page] = lambda stage, manifest, changes: Page()
    rules: int = RULES  # number of the rules behind the rows
    commits: dict[str, str] = field(default_factory=dict)  # commits of inputs on the Hub, as in the manifest
    access: dict[str, Any] = field(default_factory=dict)  # `extra_gated_…` of the card: terms that a pulled version had


@dataclass(frozen=True)
class Draft:
    """Staged tables without withdrawn rows: the result of `redact`."""

    stage: Stage  # its `version` folder holds the staying rows
    made: Made
    steps: tuple[Step, ...]  # accounts of the staying rows
    known: tuple[Withdrawal, ...]  # the store's withdrawals when it was made
    applied: tuple[str, ...]  # those of the corpus, as in the manifest


@dataclass(frozen=True)
class TableComparison:
    """A draft's files beside the newest version: the result of `compare`."""

    files: tuple[FileEntry, ...]  # of the draft, without pages
    before: Version | None  # the newest version
    same: bool = False  # whether the draft would repeat it
    changes: tuple[Change, ...] = ()  # of rows, by table and split; none for tables with identical files


@dataclass(frozen=True)
class RenderedPages:
    """A version's texts: the result of `render`."""

    manifest: Manifest  # it lists the pages too
    pages: Mapping[str, str]  # by file name


def commit(stage: Stage, made: Made) -> Version:
    """Turn the staged tables into the corpus's next version, without withdrawn rows.

    Withdrawals are read again just before the rename; if they changed during checks, hashing and upload, or another
    machine committed in between, the commit begins anew. Later ones are not among `applied_withdrawals`.

    If all tables equal the newest version's byte by byte and its terms of publication are the same, commit nothing,
    return that version and remember the key beside it.

    Raises:
        StoreError: a check failed; the store is unchanged and the staged steps are kept.
    """
    store, corpus = stage.store, stage.corpus
    write_rejects(stage, made.corpus)
    while True:
        store.refresh(corpus)
        draft = redact(stage, made, withdrawals(store.root))
        files = check(draft)
        draft = with_unmet(draft)
        comparison = compare(draft, files, store.newest(corpus))
        before = comparison.before
        if before is not None and comparison.same:
            store.require_whole(before)
            store.remember_key(before, stage.build_key)
            sweep(store, corpus, keep=None)
            return before
        name = store.claim(corpus, claimant_of(stage.build_key, draft.applied), before)
        if name is not None and (version := seal(draft, render(draft, comparison, name), before)) is not None:
            return version


def redact(stage: Stage, made: Made, known: Sequence[Withdrawal]) -> Draft:
    """Leave out withdrawn rows; the staged files stay unchanged."""
    steps, whole = stage.steps(), stage
    if marks := marks_for(known, stage.corpus):
        stage, steps = without_withdrawn(whole, made.corpus.tables, steps, marks, partial(recompute, made))
        if stage is not whole:  # the build's own sections may mention withdrawn rows
            made = replace(made, sections=dict(load(made.corpus.card)(stage)) if made.corpus.card else {})
    return Draft(stage, made, tuple(steps), tuple(known), names_for(known, stage.corpus))


def recompute(made: Made, stage: Stage) -> Sequence[Step]:
    """Rewrite tables computed from others (`Table.counted`) after some of their rows left.

    A corpus with such tables names `recount="earmark.tasks.<room>.<module>:recount"` in `Corpus`. That function gets
    the stage, without withdrawn rows, and the build's config. It reads nothing else, and returns the steps with changed
    accounts. Without withdrawals it would write the same bytes.

    Raises:
        StoreError: the config is of an earlier release.
    """
    corpus = made.corpus
    if corpus.recount is None:
        return ()
    try:
        config = corpus.config.model_validate(made.config, context={"file": "manifest", "recorded": True})
    except ValidationError as error:
        raise StoreError(
            f"{corpus.name}: the version's config is of an earlier release ({': '.join(first_fault(error))}); build "
            "the corpus again: the build leaves out what was withdrawn"
        ) from None
    steps: Sequence[Step] = load(corpus.recount)(stage, config)
    return steps


def with_unmet(draft: Draft) -> Draft:
    """Say in a note of the last step which licences hold nothing back."""
    lines = unmet_lines(draft.made, draft.stage)
    if not lines or not draft.steps:
        return draft
    *steps, last = draft.steps
    return replace(
        draft, steps=(*steps, last.model_copy(update={"notes": tuple(dict.fromkeys((*last.notes, *lines)))}))
    )


def unmet_lines(made: Made, stage: Stage) -> list[str]:
    """Return lines about licences that fit no staged row, and no source or model of the config and its parents."""
    behind, models, store = set[str](), {*made.models}, stage.store
    for parent in made.parents if made.config.get("licences") else ():
        version = store.find(f"{parent.corpus}@{parent.version}")
        behind |= sources_behind(version, store)
        models |= model_terms(version, store).keys()
    return [one.line for one in unmet_licences(made.config, models, behind, made.corpus.tables, stage.tables())]


def check(draft: Draft) -> tuple[FileEntry, ...]:
    """Check tables, keys, splits and row accounts; return the entries of all files but pages, in the manifest's order.

    Raises:
        StoreError: a check failed.
    """
    stage, tables, written = draft.stage, draft.made.corpus.tables, draft.stage.tables()
    check_tables(stage.corpus, tables, written, draft.steps, stage.work / SPILL)
    folder, order = stage.version, {table.name: index for index, table in enumerate(tables)}
    by_path = {path: (name, split) for name, splits in written.items() for split, ps in splits.items() for path in ps}
    unlisted = {folder / name for name in (MANIFEST, *PAGES)}
    paths = [path for path in folder.rglob("*") if path.is_file() and path not in unlisted]
    with ThreadPoolExecutor(processors()) as pool:  # most of it hashes, which keeps no thread waiting
        entries = pool.map(lambda path: file_entry(path, folder, *by_path.get(path, (None, None))), paths)
    return tuple(sorted(entries, key=lambda entry: (order.get(entry.table or "", len(order)), entry.path)))


def compare(draft: Draft, files: tuple[FileEntry, ...], before: Version | None) -> TableComparison:
    """Compare a draft with the newest version; make files that both hold hard links to that version's.

    The draft repeats the version if the files are the same, and so are the manifest's fields for publishing,
    withdrawals and known faults.
    """
    if before is None:
        return TableComparison(files, None)
    made, old, tables = draft.made, before.manifest, draft.made.corpus.tables
    if (
        list(files) == [entry for entry in old.files if entry.path not in PAGES]
        and old.config.get("licences") == made.config.get("licences")
        and [parent for parent in old.parents if parent.corpus != old.corpus] == list(made.parents)
        and old.models == made.models
        and old.rules == made.rules
        and old.schemas == {table.name: schema_digest(table) for table in tables}
        and all(one.has_met(old) for one in draft.known)
    ):
        return TableComparison(files, before, same=True)
    paths, folder = {entry.sha256: before.folder / entry.path for entry in old.files}, draft.stage.version
    shared = [
        entry
        for entry in files
        if (path := paths.get(entry.sha256)) and path.is_file() and not path.samefile(folder / entry.path)
    ]  # `check` has read those that are links already, as of a withdrawal
    with ThreadPoolExecutor(processors()) as pool:  # a damaged file must not take a sound one's place
        found = pool.map(lambda entry: sha256_file(paths[entry.sha256]), shared)
        for entry in [entry for entry, sha256 in zip(shared, found, strict=True) if sha256 == entry.sha256]:
            link_over(paths[entry.sha256], folder / entry.path)
    changed = [
        table
        for table in tables
        if [one.sha256 for one in files if one.table == table.name] != [one.sha256 for one in old.entries(table.name)]
    ]
    with readable(f"{before.corpus}@{before.name}"):
        changes = diff_tables(changed, before.table_files(), draft.stage.tables(), draft.stage.work / SPILL)
    return TableComparison(files, before, changes=changes)


def render(draft: Draft, comparison: TableComparison, name: str) -> RenderedPages:
    """Render the manifest and the pages of a version of this name."""
    made, before = draft.made, comparison.before
    rows: dict[str, Counter[str]] = {}
    rejects = Counter[str]()
    for entry in comparison.files:
        if entry.table and entry.split:
            rows.setdefault(entry.table, Counter())[entry.split] += entry.rows or 0
    for step in draft.steps:
        rejects.update(step.rejected)
    lineage = (before.as_parent(),) if before else ()
    manifest = Manifest(
        rules=made.rules,
        corpus=draft.stage.corpus,
        version=name,
        build_key=draft.stage.build_key,
        parents=(*lineage, *made.parents),
        inputs=made.inputs,
        commits=made.commits,
        config=made.config,
        prompts=made.prompts,
        schemas={table.name: schema_digest(table) for table in made.corpus.tables},
        models=made.models,
        model_terms=terms_of(made.models, made.config.get("licences") or {}),
        code=made.code,
        libraries=made.libraries,
        steps=draft.steps,
        rejects=dict(rejects),
        rows={table: {split: splits[split] for split in split_order(list(splits))} for table, splits in rows.items()},
        files=comparison.files,
        applied_withdrawals=draft.applied,
    )
    corpus, changes = made.corpus, comparison.changes
    card = render_card(
        manifest,
        corpus.tables,
        corpus.story,
        before.manifest if before else None,
        made.sections,
        changes,
        hides_places=corpus.hides_places,
    )
    if made.access:
        facts, body = card_parts(card)
        card = card_of(made.access | facts, body)
    report = render_report(manifest, corpus.story, made.page(draft.stage, manifest, changes))
    pages = {CARD: card, REPORT: report}
    entries = [
        FileEntry(path=path, sha256=hashlib.sha256(text.encode()).hexdigest(), bytes=len(text.encode()))
        for path, text in pages.items()
    ]
    return RenderedPages(manifest.model_copy(update={"files": (*manifest.files, *entries)}), pages)


def seal(draft: Draft, rendering: RenderedPages, before: Version | None) -> Version | None:
    """Write pages and manifest and turn the staged folder into a version; return None if rows were withdrawn since.

    The manifest is the last file, and the rename makes the version; a kill before it leaves a staging folder. Behind a
    URL, the files and then the manifest are put there first.
    """
    store, folder, manifest = draft.stage.store, draft.stage.version, rendering.manifest
    final = store.folder(manifest.corpus) / manifest.version
    for name, text in rendering.pages.items():
        write_text(folder / name, text)
    for part in [path for path in folder.rglob("*") if path.is_dir()]:
        sync(part)  # file names must be durable before the manifest lists them
    write_text(folder / MANIFEST, manifest.to_json())
    if store.remote is not None:
        store.remote.send(folder, manifest, before.manifest if before else None)
        bring_withdrawals(store.root, store.remote)
    if names_for(withdrawals(store.root), manifest.corpus) != draft.applied:
        if store.remote is not None:
            store.remote.discard(manifest.corpus, manifest.version)
        return None
    if store.remote is not None:
        store.remote.conclude(folder, manifest)
        if final.is_dir():
            shutil.rmtree(final)  # a reader has just downloaded the manifest
    folder.rename(final)
    sync(final.parent)
    sweep(store, manifest.corpus, keep=None)
    return Version(manifest.corpus, final)
