"""Load and run the DuckDB queries, one statement a file; a leading comment states the grain of the result."""

import glob
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from earmark.schemas.errors import StoreError
from earmark.schemas.machine import memory_bytes, processors
from earmark.schemas.tables import R
from earmark.tasks.store.parquet import row_schema, to_table

MEMORY_LIMIT = f"{min(2500, memory_bytes() * 5 // 8 // 10**6)}MB"
"""Leaves room for Arrow and the interpreter below 4 GiB, or below the limit of a smaller container."""
MOST_THREADS = 20  # DuckDB asks for 125 MB each; its JSON reader takes 32 MiB of them at its start


@cache
def query(name: str) -> str:
    """Return the text of a query from the folder of its code.

    Args:
        name: `mos_preferences/ratings` is `tasks/mos_preferences/ratings.sql`; without such a room, the first
            part names an installed package containing the file.
    """
    ours = resources.files("earmark.tasks").joinpath(f"{name}.sql")
    package, _, below = name.partition("/")
    return (ours if ours.is_file() else resources.files(package).joinpath(f"{below}.sql")).read_text("utf-8")


def connect(spill: Path) -> duckdb.DuckDBPyConnection:
    """Return an in-memory DuckDB, spilling into `spill` beyond `MEMORY_LIMIT`. On a machine of many cores it uses
    `MOST_THREADS` of them: the memory for more would exceed the limit."""
    return duckdb.connect(
        config={
            "memory_limit": MEMORY_LIMIT,
            "threads": min(processors(), MOST_THREADS),
            "temp_directory": str(spill),
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }
    )


def exactly(path: Path) -> str:
    """Return a user's path for DuckDB's readers with `*`, `?` and `[` escaped, since they take them for patterns. A
    store's path holds none of these."""
    return glob.escape(str(path))


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(path: Path | str) -> str:
    """Return a path as an SQL string, for statements without parameters."""
    return "'" + str(path).replace("'", "''") + "'"


@contextmanager
def readable(*versions: str) -> Iterator[None]:
    """Turn a library's error on the files of `CORPUS@vN` into one line; a full disk is not a fault of these files.

    Raises:
        StoreError: a file is damaged.
    """
    try:
        yield
    except (duckdb.Error, pa.ArrowInvalid, OSError, UnicodeDecodeError, RuntimeError) as error:
        if isinstance(error, duckdb.IOException) or getattr(error, "errno", None) is not None:
            raise
        if isinstance(error, RuntimeError) and "nanobind" not in str(error):  # DuckDB's on a text that is no UTF-8
            raise
        said = str(error).splitlines()[0].rstrip(": ")
        named = " and ".join(dict.fromkeys(versions))
        raise StoreError(f"{named}: {said}; see: earmark inspect verify {versions[-1]}") from None


def view_parquet(
    connection: duckdb.DuckDBPyConnection, name: str, files: Sequence[Path], empty: pa.Schema | None = None
) -> None:
    """Create a view of Parquet files. `empty` has its columns without files; columns that files lack are null."""
    if files:
        names, later = ", ".join(map(literal, files)), ""
        known = pq.read_schema(files[0]).names if empty else ()
        if added := [field for field in empty or () if field.name not in known]:
            later = quoted(f"{name.strip(chr(34))} later")
            connection.register(later.strip('"'), pa.schema(added).empty_table())
            later = f" UNION ALL BY NAME FROM {later}"
        connection.execute(f"CREATE VIEW {name} AS FROM read_parquet([{names}], hive_partitioning = false){later}")
    else:
        assert empty is not None
        connection.register(name, empty.empty_table())


def create_table(connection: duckdb.DuckDBPyConnection, name: str, columns: str, rows: Sequence[Sequence[Any]]) -> None:
    """Create or replace a table of a few rows; `columns` are in `row_schema`'s notation."""
    connection.register("given", to_table(row_schema(columns), rows))
    connection.execute(f"CREATE OR REPLACE TABLE {name} AS FROM given")
    connection.unregister("given")


def rows_of(
    connection: duckdb.DuckDBPyConnection, row: type[R], sql: str, params: Mapping[str, object] | None = None
) -> list[R]:
    """Return the rows of a query as rows of a type.

    Raises:
        TypeError: the query's columns are not the type's keys.
    """
    table = connection.sql(sql, params=dict(params or {})).to_arrow_table()
    if set(table.schema.names) != set(row.__annotations__):
        raise TypeError(f"{row.__name__}: expected columns {sorted(row.__annotations__)}, found {table.schema.names}")
    rows: list[R] = table.to_pylist()
    return rows


def by_split(
    connection: duckdb.DuckDBPyConnection, sql: str, params: Mapping[str, object] | None = None, batch: int = 100_000
) -> Callable[[str], pa.RecordBatchReader]:
    """Return a function from split to its rows, for `Stage.write_splits`; the query gets `$split` beside `params`."""
    return lambda split: connection.sql(sql, params={**(params or {}), "split": split}).to_arrow_reader(batch)
