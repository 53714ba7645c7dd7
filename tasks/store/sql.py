"""The DuckDB queries, one statement a file; each begins with a comment that states the grain of its result."""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from earmark.tasks.store.parquet import row_schema, to_table

MEMORY_LIMIT = "2500MB"  # leaves room for Arrow and the interpreter below 4 GiB
MOST_THREADS = 20  # DuckDB asks for 125 MB each; its reader of JSON takes 32 MiB of them before it has read a line


@cache
def query(name: str) -> str:
    """The text of a query, which lies beside the code that runs it.

    Args:
        name: `mos_preferences/ratings` is `tasks/mos_preferences/ratings.sql`; where there is no such room, the first
            part is an installed package, whose file it is.
    """
    ours = resources.files("earmark.tasks").joinpath(f"{name}.sql")
    package, _, below = name.partition("/")
    return (ours if ours.is_file() else resources.files(package).joinpath(f"{below}.sql")).read_text("utf-8")


def connect(spill: Path) -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB that spills into the given folder rather than grow past `MEMORY_LIMIT`.

    On a machine of many cores it uses `MOST_THREADS` of them: with more, what they take each would exceed the limit.
    """
    connection = duckdb.connect(
        config={
            "memory_limit": MEMORY_LIMIT,
            "temp_directory": str(spill),
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }
    )
    (threads,) = connection.execute("SELECT current_setting('threads')").fetchall()[0]
    connection.execute(f"SET threads = {min(threads, MOST_THREADS)}")
    return connection


def exactly(path: Path) -> str:
    """A path of someone's own by which DuckDB's readers find that file alone: they take `*`, `?` and `[` for patterns.

    A store's path holds none of these.
    """
    return glob.escape(str(path))


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(path: Path | str) -> str:
    """A path as an SQL string, for the statements that take no parameters."""
    return "'" + str(path).replace("'", "''") + "'"


def view_parquet(
    connection: duckdb.DuckDBPyConnection, name: str, files: Sequence[Path], empty: pa.Schema | None = None
) -> None:
    """Make a view of Parquet files; `empty` are its columns if there are none. Those that files of an earlier release
    lack are null."""
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
    """Make a table of a few rows, or replace it; its columns as `row_schema` reads them."""
    connection.register("given", to_table(row_schema(columns), rows))
    connection.execute(f"CREATE OR REPLACE TABLE {name} AS FROM given")
    connection.unregister("given")


def by_split(
    connection: duckdb.DuckDBPyConnection, sql: str, params: Mapping[str, object] | None = None, batch: int = 100_000
) -> Callable[[str], pa.RecordBatchReader]:
    """The rows of a split, for `Stage.write_splits`; the query gets `$split` beside its other parameters."""
    return lambda split: connection.sql(sql, params={**(params or {}), "split": split}).to_arrow_reader(batch)
