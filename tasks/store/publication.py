"""Select the files to publish: a version unchanged, or a smaller copy with a note if licences hold parts back."""

import hashlib
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from earmark.schemas.config import Licence
from earmark.schemas.errors import ConfigError, HubError
from earmark.schemas.tables import Table
from earmark.tasks.store.card import content_mark, with_licences, without_sections
from earmark.tasks.store.files import place, sha256_file, write_text
from earmark.tasks.store.hub import PublishedFile
from earmark.tasks.store.licences import (
    Redaction,
    TableLoss,
    Terms,
    licences_of,
    model_terms,
    sources_behind,
    unheard,
    unmet_licences,
)
from earmark.tasks.store.manifest import CARD, PAGES, REPORT, FileEntry, Manifest
from earmark.tasks.store.parquet import file_entry
from earmark.tasks.store.result_table import ResultTable
from earmark.tasks.store.sql import quoted
from earmark.tasks.store.staging import locked
from earmark.tasks.store.versions import MANIFEST, Store, Version
from earmark.tasks.store.view_configs import PublishedView, card_of, card_parts, card_with_views, with_card

FOLDER, LOCK = ".publish", ".publish.lock"
_GATED = re.compile(r"^extra_gated_\w+:.*\n(?:[ \t].*\n|\n)*", re.MULTILINE)
EMBEDS = (b"<audio ", b"<img ")  # unambiguous: the report escapes texts of rows


MakeViews: TypeAlias = Callable[[Version, set[str]], tuple[PublishedView, ...]]


@dataclass(frozen=True)
class Bundle:
    """A version's published part."""

    version: Version  # the version
    manifest: Manifest  # the published manifest
    entries: tuple[PublishedFile, ...]  # the files, including the published manifest
    lost: Mapping[str, TableLoss]  # losses by table
    licences: Mapping[str, Licence]  # the terms by source
    # whether the card differs from the version's own, by evaluations, licences of its sources and parents, or as a
    # part's: an earlier release may have published the same tables with another one
    recarded: bool = False
    # terms of the models behind it and its parents
    model_terms: Mapping[str, str] = field(default_factory=dict)
    views: tuple[PublishedView, ...] = ()  # further configs

    @property
    def held_rows(self) -> dict[str, int]:
        """Return the numbers of rows held back by table."""
        return {name: sum(loss.rows.values()) for name, loss in self.lost.items() if any(loss.rows.values())}

    @property
    def held_audio(self) -> dict[str, int]:
        """Return the numbers of clips held back by table or view."""
        tables = {name: sum(loss.audio.values()) for name, loss in self.lost.items()}
        return {name: held for name, held in (tables | {one.config: one.held for one in self.views}).items() if held}


@contextmanager
def bundled(
    version: Version,
    tables: Sequence[Table],
    store: Store,
    *,
    audio: bool,
    say: Callable[[str], None],
    evaluations: str = "",
    views: MakeViews | None = None,
    gate: Mapping[str, Any] | None = None,
) -> Iterator[Bundle]:
    """Yield the files to publish; copy only changed ones, and remove the copies after the block.

    Args:
        say: called once if another publication of the corpus must end first.
        evaluations: a further section of the card, absent from the version's own.
        views: writes views beside the publishable part of a version, from the clips free to leave.
        gate: facts of the card about what readers must agree to or say, `extra_gated_…`.

    Raises:
        HubError: nothing is left to publish, or a licence that was to hold rows back fits none.
        StoreError: a parent version is missing.
    """
    licences = licences_of(version, store)
    parent = store.folder(version.corpus)
    with locked(parent / LOCK, f"publication of {version.corpus}", say):
        folder = parent / FOLDER / version.name
        shutil.rmtree(folder.parent, ignore_errors=True)
        try:
            redaction = Redaction(version, tables, Terms(licences, audio, unheard(version, store)))
            lost = {
                name: loss
                for name, loss in redaction.lost.items()
                if any(redaction.touches(name, split) for split in version.manifest.rows[name])
            }
            closed = [file for file in _loose(version) if file.path not in redaction.files]
            if lost or closed:
                manifest = _copy(version, redaction, lost, folder)
            elif _sounds(version) and not redaction.all_audible:
                files = version.manifest.files  # the report's audio may not leave, though all rows may
                manifest = version.manifest.model_copy(update={"files": tuple(f for f in files if f.path != REPORT)})
            else:
                manifest = version.manifest
            terms = model_terms(version, store)
            models, behind = {*version.manifest.models, *terms}, sources_behind(version, store)
            for line, to_hold in unmet_licences(version.manifest.config, models, behind, tables, version.table_files()):
                if to_hold:
                    raise HubError(
                        f"{version.corpus} {version.name}: {line}; mend the config, or take it out, and build again"
                    )
            card = _place(version, folder, CARD).read_text("utf-8")
            told = with_licences(card, licences, behind, models)
            if told != card:
                manifest = with_card(manifest, folder, told)
            if evaluations:
                manifest = _evaluated(version, manifest, folder, evaluations)
            made = views(_separate(version, manifest, folder), redaction.free_clips()) if views else ()
            if made:
                manifest = _with_views(manifest, folder, made)
            if gate:
                card = _place(version, folder, CARD).read_text("utf-8")
                manifest = with_card(manifest, folder, _with_terms(card, gate))
            manifest = manifest.model_copy(update={"applied_withdrawals": ()})  # they stay in the store
            if manifest != version.manifest:
                write_text(folder / MANIFEST, manifest.to_json())
            entries = tuple(_entries(version, manifest, folder))
            recarded = bool(evaluations or lost or closed) or told != card
            yield Bundle(version, manifest, entries, lost, licences, recarded, terms, made)
        finally:
            shutil.rmtree(folder.parent, ignore_errors=True)


def _loose(version: Version) -> list[FileEntry]:
    """Return a version's files other than tables and pages: audio named by rows."""
    return [file for file in version.manifest.files if file.table is None and file.path not in PAGES]


def _sounds(version: Version) -> bool:
    """Return whether the report holds clips or images, possibly more than the tables."""
    path = version.folder / REPORT
    return path.is_file() and any(mark in path.read_bytes() for mark in EMBEDS)


def _evaluated(version: Version, manifest: Manifest, folder: Path, section: str) -> Manifest:
    """Write a card with `section` before its tables; return the manifest with this card."""
    before, mark, after = _place(version, folder, CARD).read_text("utf-8").partition("## Tables\n")
    return with_card(manifest, folder, f"{before}{section}\n{mark}{after}")


def _separate(version: Version, manifest: Manifest, folder: Path) -> Version:
    """Complete the folder of a publication's copies to a version of its own."""
    for entry in manifest.files:
        if not (folder / entry.path).is_file():
            place(version.path(entry), folder / entry.path)
    write_text(folder / MANIFEST, manifest.to_json())
    return Version(version.corpus, folder)


def _with_views(manifest: Manifest, folder: Path, views: Sequence[PublishedView]) -> Manifest:
    card = card_with_views((folder / CARD).read_text("utf-8"), views)
    files = tuple(file for view in views for file in view.files)
    return with_card(manifest, folder, card).model_copy(update={"views": files})


def _with_terms(card: str, gate: Mapping[str, Any]) -> str:
    """Return a card with these terms, in place of those that a pulled version's card has."""
    terms = yaml.safe_dump(dict(gate), sort_keys=False, allow_unicode=True)
    head, _, body = card.removeprefix("---\n").partition("\n---\n")
    own = _GATED.sub("", f"{head}\n")
    return f"---\n{terms}{own}---\n{body}"


def _entries(version: Version, manifest: Manifest, folder: Path) -> Iterator[PublishedFile]:
    for file in (*manifest.files, *manifest.views):
        yield PublishedFile(file.path, _place(version, folder, file.path), file.sha256, file.bytes)
    source = _place(version, folder, MANIFEST)
    yield PublishedFile(MANIFEST, source, sha256_file(source), source.stat().st_size)


def _place(version: Version, folder: Path, path: str) -> Path:
    """Return the path of a file's copy, or of the version's own file if unchanged."""
    return folder / path if (folder / path).is_file() else version.folder / path


def _copy(version: Version, redaction: Redaction, lost: Mapping[str, TableLoss], folder: Path) -> Manifest:
    """Write changed files, Parquet and card; return their manifest. Pages about the rows of the whole version
    (`report.html`) are not published with a part."""
    files: list[FileEntry] = []
    rows: dict[str, dict[str, int]] = {}
    for name, table in redaction.tables.items():
        for split in version.manifest.rows[name]:
            if redaction.touches(name, split):
                paths = redaction.write(folder, table, split)
                entries = [file_entry(path, folder, name, split) for path in paths]
            else:
                entries = list(version.manifest.entries(name, split))
            files += entries
            if entries:
                rows.setdefault(name, {})[split] = sum(entry.rows or 0 for entry in entries)
    if not any(any(splits.values()) for splits in rows.values()):
        raise HubError(f"{version.corpus} {version.name}: the licences hold every row back; nothing is left to publish")
    files += [file for file in _loose(version) if file.path in redaction.files]
    card = (version.folder / CARD).read_text("utf-8")
    part = version.manifest.model_copy(update={"rows": rows, "files": tuple(files)})
    write_text(folder / CARD, _card_of_part(card, version, lost, part, redaction.figures_held))
    return part.model_copy(update={"files": (*files, file_entry(folder / CARD, folder))})


def _card_of_part(
    card: str,
    version: Version,
    lost: Mapping[str, TableLoss],
    part: Manifest,
    figures_held: bool,
) -> str:
    """Return the card of a part: its YAML lists only published files, its first section the losses.

    Args:
        part: the part's tables.
        figures_held: whether to leave out the corpus's sections, for their figures are also of a closed source.
    """
    facts, body = card_parts(card)
    facts.pop("dataset_info", None)
    facts.pop("size_categories", None)  # it was the whole version's
    rows = part.rows
    facts["configs"] = [
        config
        | {
            "description": content_mark(entry.sha256 for entry in part.files if entry.table == config["config_name"]),
            "data_files": [file for file in config["data_files"] if file["split"] in rows[config["config_name"]]],
        }
        for config in facts["configs"]
        if config["config_name"] in rows
    ]
    columns = ("table", "split", "rows here", "rows held back", "clips held back")
    losses = tuple(
        (name, split, rows.get(name, {}).get(split, 0), loss.rows.get(split, 0), loss.audio.get(split, 0))
        for name, loss in lost.items()
        for split in version.manifest.rows[name]
        if loss.touches(split)
    )
    says = (
        f"This is a part of {version.corpus} {version.name}: licences, or the choice to publish no audio, keep the "
        "rest back. The figures in the other sections are those of the whole version."
    )
    if figures_held:
        says += " Tables and sections of figures are left out: rows that are held back went into them."
        body = without_sections(body)
    before, mark, after = body.partition("\n## ")
    held_back = f"## Held back\n\n{ResultTable('Held back', columns, losses, says).markdown()}"
    return card_of(facts, f"{before}\n{held_back}\n{mark}{after}")


TEXT_ENDINGS = (".md", ".json", ".html", ".txt", ".csv", ".jsonl", ".yaml", ".toml")
ROWS = 2_000
_EMBEDDED = re.compile(r"(?<=;base64,)[A-Za-z0-9+/=]+")  # a page's embedded images and clips


class TextScanner(Protocol):
    """Interface of the search rules, implemented in `tasks/text`."""

    @property
    def hint(self) -> str:
        """Return an RE2 pattern matching every text with a finding."""

    def findings(self, text: str) -> Iterable[tuple[str, str]]:
        """Return kind and value of all parts of a text unfit for publication."""


@dataclass(frozen=True)
class Finding:
    """A finding unfit for publication."""

    where: str  # table, column and row; or file and line
    kind: str  # its kind of content
    mark: str  # first digits of its SHA-256, for a reviewed list to allow it

    def __str__(self) -> str:
        return f"{self.where}: {self.kind} [{self.mark}]"


def scan(
    entries: Sequence[PublishedFile],
    tables: Sequence[Table],
    scanner: TextScanner,
    allowed: Mapping[str, str],
    advance: Callable[[int], None],
) -> Iterator[Finding]:
    """Yield all findings in the files of a publication, except those on the reviewed list."""
    keys = {table.name: table.key for table in tables}
    with duckdb.connect() as connection:
        for entry in entries:
            table = entry.path.partition("/")[0]
            found = (
                _in_table(connection, entry.source, table, keys.get(table, ()), scanner)
                if entry.path.endswith(".parquet")
                else _in_text(entry, scanner)
            )
            yield from (finding for finding in found if finding.mark not in allowed)
            for kind, value in scanner.findings(entry.path):
                yield Finding("the name of a file", kind, _mark(value))
            advance(1)


def read_allowed(path: Path) -> dict[str, str]:
    """Read a reviewed list: a mark and its reason on each line; `#` begins a comment.

    Raises:
        ConfigError: the file cannot be read, or a line is not a mark with a reason.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        mark, _, reason = line.strip().partition(" ")
        if len(mark) != 16 or not reason.strip():
            raise ConfigError(f"{path}, line {number}: expected the 16 digits of a finding and a reason")
        found[mark] = reason.strip()
    return found


def _in_table(
    connection: duckdb.DuckDBPyConnection, path: Path, table: str, key: Sequence[str], scanner: TextScanner
) -> Iterator[Finding]:
    """Yield a table's findings: RE2 preselects rows, Python searches these few."""
    schema = pq.read_schema(path)
    texts = [field.name for field in schema if _has_text(field.type)]
    if not texts:
        return
    columns = [_text_of(schema.field(name)) for name in texts]
    might = " OR ".join(f"regexp_matches({column}, $hint)" for column in columns)
    shown = ", ".join([*(f"CAST({quoted(name)} AS VARCHAR)" for name in key), "file_row_number", *columns])
    cursor = connection.execute(
        f"SELECT {shown} FROM read_parquet($file, hive_partitioning = false, file_row_number = true) WHERE {might}",
        {"file": str(path), "hint": scanner.hint},
    )
    while rows := cursor.fetchmany(ROWS):
        for row in rows:
            for name, text in zip(texts, row[len(key) + 1 :], strict=True):
                for kind, value in scanner.findings(text or ""):
                    yield Finding(f"{table}.{name}, {_row(row, key, path, scanner)}", kind, _mark(value))


def _row(row: Sequence[Any], key: Sequence[str], path: Path, scanner: TextScanner) -> str:
    """Return a row's name: its key, or its number if the key has findings itself."""
    named = [f"{name} {value}" for name, value in zip(key, row, strict=False)]
    if not named or any(True for _ in scanner.findings(" ".join(named))):
        return f"row {row[len(key)] + 1:,} of {path.name}"
    return " ".join(named)


def _in_text(entry: PublishedFile, scanner: TextScanner) -> Iterator[Finding]:
    if not entry.path.endswith(TEXT_ENDINGS):
        return
    with entry.source.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            for kind, value in scanner.findings(_EMBEDDED.sub("", line)):
                yield Finding(f"{entry.path}, line {number:,}", kind, _mark(value))


def _has_text(type_: pa.DataType) -> bool:
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return True
    if pa.types.is_dictionary(type_):
        return _has_text(type_.value_type)
    return any(_has_text(type_.field(index).type) for index in range(type_.num_fields))


def _text_of(field: pa.Field) -> str:
    name = quoted(field.name)
    if pa.types.is_struct(field.type) and "bytes" in [part.name for part in field.type]:
        return f"{name}.path"
    return name if pa.types.is_string(field.type) else f"CAST({name} AS VARCHAR)"


def _mark(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()[:16]
