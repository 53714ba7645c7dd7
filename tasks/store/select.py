"""People's own SQL over versions: `'mos-preferences@v3'.pairs` is that version's table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from earmark.schemas.errors import InputError
from earmark.tasks.store.files import replacing
from earmark.tasks.store.sql import connect, quoted, view_parquet
from earmark.tasks.store.versions import Store

_NAMED = re.compile(r"""(?P<quote>['"])(?P<spec>[a-z][a-z0-9-]*(?:@v\d+)?)(?P=quote)\s*\.(?=\s*["\w])""")


def select(store: Store, statement: str, spill: Path) -> duckdb.DuckDBPyRelation:
    """What a SELECT gives over versions of a store; nothing is read before the relation is.

    Args:
        statement: DuckDB's SQL. `'CORPUS'.TABLE` is a table of the newest version, `'CORPUS@vN'.TABLE` of another, in
            single or double quotes; versions and corpora may be joined.

    Raises:
        InputError: it is not one SELECT, or DuckDB refuses it.
        StoreError: there is no such version.
    """
    known = set(store.corpora())
    names = {match["spec"] for match in _NAMED.finditer(statement) if _is_version(match, known)}
    versions = {name: store.find(name) for name in sorted(names)}
    connection = connect(spill)
    for name, version in versions.items():
        connection.execute(f"CREATE SCHEMA {quoted(name)}")
        for table in version.manifest.rows:
            view_parquet(connection, f"{quoted(name)}.{quoted(table)}", version.files(table))
    sql = _NAMED.sub(lambda match: f"{quoted(match['spec'])}." if match["spec"] in versions else match[0], statement)
    with refused():
        kinds = [one.type for one in connection.extract_statements(sql)]
        if kinds != [duckdb.StatementType.SELECT]:
            kind = kinds[0].name if len(kinds) == 1 else f"{len(kinds)} statements"
            raise InputError(f"sql: expected one SELECT, found {kind}; versions are never changed, --out writes a file")
        return connection.sql(sql)


def write_rows(rows: duckdb.DuckDBPyRelation, path: Path) -> None:
    """Write rows to CSV or Parquet, by the file's ending; the file appears whole or not at all.

    Raises:
        InputError: the ending is another, or the query fails on a row.
    """
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(f"--out: expected a name in .csv or .parquet, found '{path.name}'")
    with replacing(path) as new, refused():
        if path.suffix == ".csv":
            rows.to_csv(str(new), header=True)
        else:
            rows.to_parquet(str(new), compression="zstd")


@contextmanager
def refused() -> Iterator[None]:
    """Say in one line what DuckDB has against a query, whenever it finds that out.

    Raises:
        InputError: instead of DuckDB's error.
    """
    try:
        yield
    except duckdb.Error as error:
        what, _, _ = str(error).partition("\n\nLINE ")
        hint = "; a corpus stands in quotes: FROM 'mos-preferences'.pairs" if 'near "-"' in what else ""
        raise InputError(f"sql: {' '.join(what.split())}{hint}") from None


def _is_version(match: re.Match[str], known: set[str]) -> bool:
    """Single quotes before a dot can be nothing else; double quotes may be anyone's alias."""
    return match["quote"] == "'" or "@" in match["spec"] or match["spec"] in known
