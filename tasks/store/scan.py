"""Search all text to be published for secrets and personal data; findings never show the text found."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from earmark.schemas.errors import ConfigError
from earmark.schemas.tables import Table
from earmark.tasks.store.hub_tree import PublishedFile
from earmark.tasks.store.sql import quoted

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
