"""Keep the ledger in PostgreSQL, for builds on several machines."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any

from earmark.schemas.errors import MissingExtraError
from earmark.tasks.annotation.errors import LedgerError
from earmark.tasks.annotation.ledger_rows import Row, migrations, shown

MIGRATION_LOCK = 0x6561726D61726B
"""Advisory lock for migrations; the letters of `earmark`."""


class PostgresDriver:
    """PostgreSQL through psycopg. Statements of a transaction go out as a pipeline, without a round trip each."""

    inline = False

    def __init__(self, url: str, *, reading: bool = False) -> None:
        try:
            import psycopg
        except ImportError:
            raise MissingExtraError("a ledger in PostgreSQL", "scale") from None
        self.conflicts: tuple[type[Exception], ...] = (
            psycopg.errors.DeadlockDetected,
            psycopg.errors.SerializationFailure,
        )
        self._psycopg: Any = psycopg
        try:
            self._connection: Any = psycopg.connect(url, autocommit=True, application_name="earmark")
            if reading:
                self._begin_reading()
                return
            self._connection.execute("SET synchronous_commit = on")
            self._migrate()
        except psycopg.Error as error:
            raise LedgerError(f"ledger {shown(url)}: cannot be opened: {_line(error)}") from None
        self._open = ExitStack()

    def begin(self) -> None:
        """Start a transaction and a pipeline."""
        self._open = ExitStack()
        self._open.enter_context(self._connection.pipeline())
        self._connection.execute("BEGIN")

    def commit(self) -> None:
        """End both; return when the server has made it durable."""
        self._connection.execute("COMMIT")
        self._open.close()

    def rollback(self) -> None:
        """Undo it. The server has already ended a transaction with a failed statement, and refused later statements."""
        with suppress(self._psycopg.errors.PipelineAborted):
            self._open.close()
        self._connection.rollback()

    def run(self, sql: str, values: Sequence[Any] = ()) -> None:
        self._connection.execute(_dialect(sql), values)

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return list(self._connection.execute(_dialect(sql), values).fetchall())

    def rows_in(self, sql: str, values: Sequence[Any]) -> list[Row]:
        """Return the rows of a query with `IN {values}`, as one array."""
        return self.rows(sql.replace("IN {values}", "= ANY(?)"), (list(values),)) if values else []

    def committed(self, sql: str) -> list[Row]:
        """Return the rows of a query; all statements of this driver run in one thread, whole transactions at a time."""
        return self.rows(sql)

    def committed_in(self, sql: str, values: Sequence[Any]) -> list[Row]:
        """Return the rows of a query with `IN {values}`, as one array."""
        return self.rows_in(sql, values)

    def now(self) -> float:
        """Return seconds since 1970 by the server's clock, shared by all machines."""
        return float(self.rows("SELECT extract(epoch FROM clock_timestamp())")[0][0])

    def size_bytes(self) -> int:
        """Return the bytes of the ledger's tables and indexes."""
        tables = "('texts', 'runs', 'requests', 'attempts', 'batches', 'batch_requests')"
        query = f"SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_class WHERE relname IN {tables}"
        return int(self.rows(f"{query} AND relkind = 'r' AND pg_table_is_visible(oid)")[0][0])

    def vacuum(self) -> None:
        for table in ("texts", "requests", "attempts", "batches", "batch_requests"):
            self._connection.execute(f"VACUUM (ANALYZE) {table}".encode())

    def close(self) -> None:
        self._connection.close()

    def _begin_reading(self) -> None:
        """Have the server refuse changes; without a ledger, read an empty temporary ledger of this connection."""
        if self.rows("SELECT to_regclass('ledger_schema')")[0][0] is None:
            self.run("SET search_path = pg_temp")
            self._migrate()
        self.run("SET default_transaction_read_only = on")

    def _migrate(self) -> None:
        with self._connection.transaction():
            self.run("SELECT pg_advisory_xact_lock(?)", (MIGRATION_LOCK,))
            self.run("CREATE TABLE IF NOT EXISTS ledger_schema (number INTEGER PRIMARY KEY)")
            applied = {number for (number,) in self.rows("SELECT number FROM ledger_schema")}
            for number, sql in migrations("postgres"):
                if number not in applied:
                    self._connection.execute(sql.encode())
                    self.run("INSERT INTO ledger_schema VALUES (?)", (number,))


def _dialect(sql: str) -> bytes:
    return sql.replace("?", "%s").encode()


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
