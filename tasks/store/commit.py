"""The commit: everything is checked, unchanged files are linked, the manifest is written last, the folder renamed."""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import StoreError
from earmark.schemas.registry import load
from earmark.schemas.tables import REJECTS, UNSPLIT, Table
from earmark.tasks.store.card import render_card, split_order
from earmark.tasks.store.checks import check_accounts, check_rejects, check_table
from earmark.tasks.store.diff import Change, diff_table
from earmark.tasks.store.figures import Page
from earmark.tasks.store.files import link_over, sync, write_text
from earmark.tasks.store.manifest import RULES, FileEntry, Manifest, Parent, Step, claimant_of, digest_of
from earmark.tasks.store.model_terms import terms_of
from earmark.tasks.store.parquet import file_entry
from earmark.tasks.store.places import hide_places
from earmark.tasks.store.redaction import without_withdrawn
from earmark.tasks.store.report import render_report
from earmark.tasks.store.sql import connect, query
from earmark.tasks.store.staging import SPILL, Stage, sweep
from earmark.tasks.store.versions import MANIFEST, Version
from earmark.tasks.store.withdrawals import bring_withdrawals, marks_for, names_for, withdrawals

PAGES = ("README.md", "report.html", "croissant.json")  # the last one in versions of releases before 1.0
"""What a version says of itself for people and indexers; made from its tables and manifest."""


@dataclass(frozen=True)
class Made:
    """What a build knows about its version beside the tables."""

    corpus: Corpus  # its tables and the card's words
    config: dict[str, Any]  # the config as recorded
    inputs: dict[str, str]  # SHA-256 of every input file, by its name in the tables
    code: str  # digest of the code that made it
    libraries: dict[str, str]  # versions of the libraries whose code decides the bytes
    parents: tuple[Parent, ...] = ()  # versions of other corpora that it was made from
    prompts: dict[str, str] = field(default_factory=dict)  # digest by `name@version`
    models: tuple[str, ...] = ()  # the models that were asked
    sections: dict[str, str] = field(default_factory=dict)  # further sections of the card, Markdown by heading
    # gives the report's sections once every table is staged, from what differs from the version before, too
    page: Callable[[Stage, Manifest, Sequence[Change]], Page] = lambda stage, manifest, changes: Page()
    rules: int = RULES  # by which the rows were made
    commits: dict[str, str] = field(default_factory=dict)  # of inputs on the Hub, as in the manifest


def commit(stage: Stage, made: Made) -> Version:
    """Turn the staged tables into the corpus's next version, without what was withdrawn.

    What is withdrawn while this checks, hashes and uploads is left out too: the withdrawals are read again just before
    the version is there, and if they are others, this begins anew. Later ones are not among `applied_withdrawals`.

    A build whose tables equal those of the newest version byte by byte, and that may be published on the same terms,
    commits nothing and returns that version; its key is remembered beside it.

    Raises:
        StoreError: a check failed; the store is unchanged and the staged steps are kept.
    """
    _write_rejects_table(stage, made.corpus)
    while True:
        if (version := _commit(stage, made)) is not None:
            return version


def _commit(stage: Stage, made: Made) -> Version | None:
    """One try of `commit`; None if something was withdrawn, or committed by another machine, meanwhile."""
    steps = stage.steps()
    stage.store.refresh(stage.corpus)
    known = withdrawals(stage.store.root)
    if marks := marks_for(known, stage.corpus):
        whole = stage
        stage, steps = without_withdrawn(whole, made.corpus.tables, steps, marks, partial(recompute, made))
        if stage is not whole:  # the build's own sections speak of what was withdrawn, too
            made = replace(made, sections=dict(load(made.corpus.card)(stage)) if made.corpus.card else {})
    written = stage.tables()
    _check(stage, made.corpus.tables, written, steps)
    stage.store.refresh(stage.corpus)
    before = stage.store.latest(stage.corpus)
    if before is not None:
        stage.store.fetch(before)
    entries = _list_files(stage, made.corpus.tables)
    if before is not None:
        _link_unchanged(stage, entries, before)
    if (
        before
        and entries == [entry for entry in before.manifest.files if entry.path not in PAGES]
        and _published_alike(before.manifest, made)
        and all(one.has_met(before.manifest) for one in known)
    ):
        stage.store.remember_key(before, stage.build_key)
        sweep(stage.store, stage.corpus, keep=None)
        return before
    manifest = _manifest(stage, made, steps, entries, before, names_for(known, stage.corpus))
    if _overtaken(stage, manifest.version, before):
        return None
    manifest = _write_pages(stage, made, manifest, before)
    for folder in [path for path in stage.version.rglob("*") if path.is_dir()]:
        sync(folder)  # the names of files are as durable as their bytes before the manifest speaks of them
    write_text(stage.version / MANIFEST, manifest.to_json())
    return _put(stage, manifest, before)


def _overtaken(stage: Stage, name: str, before: Version | None) -> bool:
    """Whether another machine committed a version after `before` was read: its tables may be the very same."""
    if name == f"v{before.number + 1 if before else 1}":
        return False
    stage.store.refresh(stage.corpus)
    latest = stage.store.latest(stage.corpus)
    return latest is not None and (before is None or latest.number > before.number)


def recompute(made: Made, stage: Stage) -> Sequence[Step]:
    """Write the tables anew that a corpus computes from others (`Table.counted`), where some of their rows left.

    A corpus with such tables names `recount="earmark.tasks.<room>.<module>:recount"` in `Corpus`. That function gets
    the stage, whose tables are without what was withdrawn, and the build's config. It reads nothing else, and returns
    the steps whose accounts are other ones now. Where nothing was withdrawn, it would write the same bytes.

    Raises:
        StoreError: the config is one of an earlier release.
    """
    corpus = made.corpus
    if corpus.recount is None:
        return ()
    try:
        config = corpus.config.model_validate(made.config, context={"file": "manifest", "recorded": True})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise StoreError(
            f"{corpus.name}: the version's config is of an earlier release ({where}: {first['msg']}); build the "
            "corpus again: the build leaves out what was withdrawn"
        ) from None
    steps: Sequence[Step] = load(corpus.recount)(stage, config)
    return steps


def _write_pages(stage: Stage, made: Made, manifest: Manifest, before: Version | None) -> Manifest:
    """Write what the version says of itself; the manifest with those files."""
    changes = _changes(stage, made.corpus.tables, manifest, before) if before else []
    pages = {
        "README.md": render_card(
            manifest,
            made.corpus.tables,
            made.corpus.story,
            before.manifest if before else None,
            made.sections,
            changes,
            hides_places=made.corpus.hides_places,
        ),
        "report.html": render_report(manifest, made.corpus.story, made.page(stage, manifest, changes)),
    }
    for name, text in pages.items():
        write_text(stage.version / name, text)
    entries = [file_entry(stage.version / name, stage.version) for name in pages]
    return manifest.model_copy(update={"files": (*manifest.files, *entries)})


def _put(stage: Stage, manifest: Manifest, before: Version | None) -> Version | None:
    """Make the staged folder a version, unless something was withdrawn since it was redacted."""
    if stage.store.remote is not None:
        stage.store.remote.send(stage.version, manifest, before.manifest if before else None)
        bring_withdrawals(stage.store.root, stage.store.remote)
    if names_for(withdrawals(stage.store.root), stage.corpus) != manifest.applied_withdrawals:
        if stage.store.remote is not None:
            stage.store.remote.discard(stage.corpus, manifest.version)
        return None
    if stage.store.remote is not None:
        stage.store.remote.conclude(stage.version, manifest)
    final = stage.store.folder(stage.corpus) / manifest.version
    if stage.store.remote is not None and final.is_dir():
        shutil.rmtree(final)  # a reader has just brought the manifest here
    stage.version.rename(final)
    sync(final.parent)
    sweep(stage.store, stage.corpus, keep=None)
    return Version(stage.corpus, final)


@dataclass(frozen=True)
class _Draft(Version):
    """A version whose manifest is not written yet."""

    draft: Manifest

    @property
    def manifest(self) -> Manifest:
        """The manifest as it will be, but for the pages."""
        return self.draft


def _changes(stage: Stage, tables: Sequence[Table], manifest: Manifest, before: Version) -> list[Change]:
    """What differs from the version before; tables whose files are the same are not read."""
    draft = _Draft(stage.corpus, stage.version, manifest)
    changes: list[Change] = []
    with connect(stage.work / SPILL) as connection:
        for table in tables:
            now, then = ([e.sha256 for e in one.entries(table.name)] for one in (manifest, before.manifest))
            if now != then:
                changes += diff_table(connection, table, before, draft)
    return changes


def _write_rejects_table(stage: Stage, corpus: Corpus) -> None:
    parts = [pq.ParquetFile(path).read() for path in stage.rejects()]
    rejects = pa.concat_tables([REJECTS.schema.empty_table(), *parts], promote_options="default")
    keys = [
        {"table": table.name, "kinds": [ref.kind for ref in table.refs if ref.column in table.key]}
        for table in corpus.tables
    ]
    with connect(stage.work / SPILL) as connection:
        connection.register("rejects", rejects.append_column("place", pa.array(range(len(rejects)))))
        connection.register("keys", pa.Table.from_pylist(keys))
        rejects = connection.sql(query("store/made_from")).to_arrow_table().select(REJECTS.schema.names)
    rejects = rejects.cast(REJECTS.schema)
    stage.write(REJECTS, UNSPLIT, [hide_places(stage, rejects) if corpus.hides_places else rejects])


def _check(
    stage: Stage, tables: Sequence[Table], written: dict[str, dict[str, list[Path]]], steps: Sequence[Step]
) -> None:
    known = {table.name for table in tables}
    needed = {table.name for table in tables if not table.optional}
    if not needed <= set(written) <= known:
        raise StoreError(f"{stage.corpus}: expected tables {sorted(known)}, found {sorted(written)}")
    counted = {
        name: sum(pq.read_metadata(path).num_rows for paths in splits.values() for path in paths)
        for name, splits in written.items()
    }
    check_accounts(steps, counted)
    with connect(stage.work / SPILL) as connection:
        for table in tables:
            if table.name in written:
                check_table(connection, table, written[table.name])
        check_rejects(connection, written[REJECTS.name][UNSPLIT], steps)


def _list_files(stage: Stage, tables: Sequence[Table]) -> list[FileEntry]:
    by_table = {
        path: (name, split) for name, splits in stage.tables().items() for split, ps in splits.items() for path in ps
    }
    order = {table.name: index for index, table in enumerate(tables)}
    paths = [
        path
        for path in stage.version.rglob("*")
        if path.is_file() and path.relative_to(stage.version).as_posix() not in (MANIFEST, *PAGES)
    ]
    entries = [file_entry(path, stage.version, *by_table.get(path, (None, None))) for path in paths]
    return sorted(entries, key=lambda entry: (order.get(entry.table or "", len(order)), entry.path))


def _published_alike(before: Manifest, made: Made) -> bool:
    """Whether what publishing, withdrawals and known faults ask of a manifest, beside the tables, would be the same."""
    parents = [parent for parent in before.parents if parent.corpus != before.corpus]
    return (
        before.config.get("licences") == made.config.get("licences")
        and parents == list(made.parents)
        and before.models == made.models
        and before.rules == made.rules
        and before.schemas == {table.name: schema_digest(table) for table in made.corpus.tables}
    )


def _link_unchanged(stage: Stage, entries: list[FileEntry], before: Version) -> None:
    """Replace every file whose bytes the version before already holds by a hard link to it."""
    paths = {entry.sha256: before.folder / entry.path for entry in before.manifest.files}
    for entry in entries:
        if entry.sha256 in paths and paths[entry.sha256].is_file():
            link_over(paths[entry.sha256], stage.version / entry.path)


def _manifest(
    stage: Stage,
    made: Made,
    steps: list[Step],
    entries: list[FileEntry],
    before: Version | None,
    applied_withdrawals: tuple[str, ...],
) -> Manifest:
    rows: dict[str, Counter[str]] = {}
    rejects = Counter[str]()
    for entry in entries:
        if entry.table and entry.split:
            rows.setdefault(entry.table, Counter())[entry.split] += entry.rows or 0
    for step in steps:
        for reason, count in step.rejected.items():
            rejects[reason] += count
    lineage = (Parent(corpus=stage.corpus, version=before.name, digest=before.manifest.digest()),) if before else ()
    return Manifest(
        rules=made.rules,
        corpus=stage.corpus,
        version=stage.store.next_name(stage.corpus, claimant_of(stage.build_key, applied_withdrawals)),
        build_key=stage.build_key,
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
        steps=tuple(steps),
        rejects=dict(rejects),
        rows={name: {split: splits[split] for split in split_order(list(splits))} for name, splits in rows.items()},
        files=tuple(entries),
        applied_withdrawals=applied_withdrawals,
    )


def schema_digest(table: Table) -> str:
    """SHA-256 of a table's schema with its descriptions, its key and how it is cut into files."""
    schema = hashlib.sha256(table.schema.serialize()).hexdigest()
    return digest_of([schema, list(table.key), list(table.exclusive), table.rows_per_group, table.rows_per_file])
