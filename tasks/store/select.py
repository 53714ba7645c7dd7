"""Run users' SQL over versions: `'mos-preferences@v3'.pairs` is a table of this version. A statement may be a
stranger's: it reads versions but no other files or network, unless files are allowed. A stop ends it at any moment."""

import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import duckdb

from earmark.schemas.errors import InputError
from earmark.tasks.store.files import replacing
from earmark.tasks.store.sql import connect, literal, quoted, readable, view_parquet
from earmark.tasks.store.versions import Store

_NAMED = re.compile(r"""(['"])([a-z][a-z0-9-]*(?:@v\d+)?)\1\s*\.(?=\s*["\w])""")
STOPPED_S = 3.0  # time for a stopped query to end; built-in functions on a huge value check no stop
_SHUT = "file system operations are disabled"  # DuckDB's message for a statement reading a file

Result = TypeVar("Result")


def select(
    store: Store, statement: str, use: Callable[[duckdb.DuckDBPyRelation, Path], Result], *, allow_files: bool = False
) -> Result:
    """Run a SELECT over versions of a store in a thread and return `use` of its rows; a stop of the caller ends it.

    Args:
        statement: DuckDB's SQL. `'CORPUS'.TABLE` is a table of the newest version, `'CORPUS@vN'.TABLE` of another, in
            single or double quotes; versions and corpora may be joined.
        use: called with the lazy rows and a folder writable by DuckDB.
        allow_files: whether the statement may read files of this machine.

    Raises:
        InputError: the statement is not a single SELECT, or DuckDB refuses it.
        StoreError: a version does not exist.
    """
    with tempfile.TemporaryDirectory(prefix="earmark-", ignore_cleanup_errors=True) as spill:
        connection = connect(Path(spill))
        found: list[Result] = []
        faults: list[BaseException] = []

        def work() -> None:
            try:
                with refused():
                    found.append(use(_relation(connection, store, statement, Path(spill), allow_files), Path(spill)))
            except BaseException as error:  # noqa: BLE001 - the caller raises it
                faults.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            thread.join()
        except BaseException:
            until = time.monotonic() + STOPPED_S
            while thread.is_alive() and time.monotonic() < until:
                connection.interrupt()  # repeated, since a query only beginning would miss it
                thread.join(0.05)
            raise
        if faults:
            raise faults[0]
        return found[0]


def _relation(
    connection: duckdb.DuckDBPyConnection, store: Store, statement: str, spill: Path, allow_files: bool
) -> duckdb.DuckDBPyRelation:
    known = set(store.corpora())
    names = {match[2] for match in _NAMED.finditer(statement) if _is_version(match, known)}
    versions = {name: store.find(name) for name in sorted(names)}
    files: list[Path] = []
    for name, version in versions.items():
        connection.execute(f"CREATE SCHEMA {quoted(name)}")
        for table in version.manifest.rows:
            files += version.files(table)
            with readable(f"{version.corpus}@{version.name}"):
                view_parquet(connection, f"{quoted(name)}.{quoted(table)}", version.files(table))
                connection.sql(f"FROM {quoted(name)}.{quoted(table)}")  # reads the names of its columns
    connection.execute("SET python_enable_replacements = false")  # Python variables are not tables
    if not allow_files:
        connection.execute(f"SET allowed_paths = [{', '.join(map(literal, files))}]")
        connection.execute(f"SET allowed_directories = [{literal(spill)}]")  # for spilling and for `write_rows`
        connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    sql = _NAMED.sub(lambda match: f"{quoted(match[2])}." if match[2] in versions else match[0], statement)
    kinds = [one.type for one in connection.extract_statements(sql)]
    if kinds != [duckdb.StatementType.SELECT]:
        kind = kinds[0].name if len(kinds) == 1 else f"{len(kinds)} statements"
        raise InputError(f"sql: expected one SELECT, found {kind}; versions are never changed, --out writes a file")
    return connection.sql(sql)


def write_rows(rows: duckdb.DuckDBPyRelation, spill: Path, path: Path) -> None:
    """Write rows to CSV or Parquet, by the file's ending, whole or not at all.

    Raises:
        InputError: the ending is unknown, or the query fails on a row.
    """
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(f"--out: expected a name in .csv or .parquet, found '{path.name}'")
    with replacing(path) as new:
        written = spill / "rows"  # DuckDB may have no access outside of this folder
        if path.suffix == ".csv":
            rows.to_csv(str(written), header=True)
        else:
            rows.to_parquet(str(written), compression="zstd")
        shutil.copyfile(written, new)


@contextmanager
def refused() -> Iterator[None]:
    """Turn DuckDB's errors, early or late, into one line.

    Raises:
        InputError: instead of DuckDB's error.
    """
    try:
        yield
    except duckdb.Error as error:
        what, _, _ = str(error).partition("\n\nLINE ")
        hint = "; a corpus stands in quotes: FROM 'mos-preferences'.pairs" if 'near "-"' in what else ""
        if _SHUT in what or re.search(r"Table with name \S*[./]\S* does not exist", what):
            hint = "; --allow-files lets it read files of this machine"
        raise InputError(f"sql: {' '.join(what.split())}{hint}") from None


def _is_version(match: re.Match[str], known: set[str]) -> bool:
    """Return whether a match names a version: single quotes always do, double quotes may mark any alias."""
    quote, spec = match.groups()
    return quote == "'" or "@" in spec or spec in known
