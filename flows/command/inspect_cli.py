"""Implement `earmark inspect`: look into versions."""

import os
import sys
import tempfile
from collections import Counter
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.flows.command.options import JsonOption, StoreOption, VersionArgument, open_store, option, print_json
from earmark.schemas.errors import InputError, StoreError
from earmark.schemas.unseen import on_terminal

if TYPE_CHECKING:
    import duckdb


def view(
    corpus: VersionArgument,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 0,
    store: StoreOption = None,
) -> None:
    """Look through all rows of a version in a browser: filter, sort, listen, compare with another version.

    The page is for this machine alone, at a link that no other user can guess.

    **Example:** `earmark inspect view mos-preferences@v2`
    """
    import secrets

    from earmark.flows.command.local_server import serve_locally
    from earmark.flows.command.viewing import make_view_app
    from earmark.tasks.pipeline.registry import find_corpus

    place = open_store(store)
    version = place.fetch(place.find(corpus))
    token = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="earmark-") as spill:
        app = make_view_app(version, find_corpus(version.corpus), place, token, Path(spill))
        named = f"{version.corpus} {version.name}"
        serve_locally(app, port, lambda address: f"{named}: {address}/{token}/ on this machine; Ctrl-C ends")


def sql(
    statement: Annotated[str, typer.Argument(metavar="SELECT", help="DuckDB's SQL; a table is `'CORPUS@vN'.TABLE`.")],
    out: Annotated[Path | None, option("--out -o FILE", "Write all rows to .csv or .parquet.")] = None,
    limit: Annotated[
        int | None, option("--limit -n N", "Print N rows at most. Default: 40; all as JSON.", min=1)
    ] = None,
    allow_files: Annotated[bool, option("--allow-files", "Read files of this machine: `FROM 'mine.csv'`.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Select rows from versions with SQL, across versions and corpora. Nothing is changed.

    **Examples:**

    `earmark inspect sql "SELECT split, count(*) FROM 'mos-preferences'.pairs GROUP BY ALL"`

    `earmark inspect sql "FROM 'mos-preferences@v2'.ratings ANTI JOIN 'mos-preferences@v1'.ratings USING (sample_id)"`

    `earmark inspect sql "SELECT reason, count(*) AS rows FROM 'captions'.rejects GROUP BY ALL" --out reasons.csv`
    """
    from earmark.flows.command.ending import interrupted
    from earmark.tasks.store.select import select, write_rows

    try:
        if out is not None:
            select(open_store(store), statement, partial(write_rows, path=out), allow_files=allow_files)
            print_json({"file": str(out)}) if as_json else print(f"wrote {out}")
        elif as_json:
            print_json(select(open_store(store), statement, partial(_listed, limit=limit), allow_files=allow_files))
        else:
            with redirect_stdout(StringIO()) as shown:
                show = lambda rows, _: rows.show(max_rows=limit or 40)  # noqa: E731
                select(open_store(store), statement, show, allow_files=allow_files)
            print(on_terminal(shown.getvalue()), end="")
    except KeyboardInterrupt as stop:
        ended = interrupted(stop, "nothing was changed")
        print(ended, file=sys.stderr, flush=True)
        os._exit(ended.code)  # DuckDB may be in uninterruptible code, and Python's own end waits for it


def _listed(rows: "duckdb.DuckDBPyRelation", _: Path, limit: int | None) -> list[dict[str, Any]]:
    """Return rows as dictionaries."""
    for name, times in Counter(rows.columns).items():
        if times > 1:
            raise InputError(
                f"sql --json: expected each column's name once, found '{name}' {times} times: name them by AS"
            )
    listed: list[dict[str, Any]] = (rows if limit is None else rows.limit(limit)).to_arrow_table().to_pylist()
    return listed


app = typer.Typer(help="Look into versions and compare them.", no_args_is_help=True, rich_markup_mode="markdown")
for _command in (view, sql):
    app.command()(_command)


@app.command()
def diff(
    old: VersionArgument,
    new: VersionArgument,
    rows: Annotated[bool, option("--rows", "List each changed row too.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count the rows added, removed and changed from one version to another, by table and split.

    **Example:** `earmark inspect diff mos-preferences@v1 mos-preferences@v2 --rows`
    """
    import duckdb

    from earmark.flows.command import console
    from earmark.tasks.pipeline.registry import find_corpus
    from earmark.tasks.store.diff import Cell, changed_rows, changed_values, diff_table
    from earmark.tasks.store.sql import readable

    place = open_store(store)
    before, after = place.find(old), place.find(new)
    if before.corpus != after.corpus:
        raise StoreError(f"expected two versions of one corpus, found {before.corpus} and {after.corpus}")
    changes, listed, values = [], [], list[Cell]()
    columns: dict[tuple[str, str], tuple[int, Cell]] = {}
    for table in find_corpus(before.corpus).tables:
        with readable(*(f"{one.corpus}@{one.name}" for one in (before, after))), duckdb.connect() as connection:
            changes += diff_table(connection, table, before, after)
            if any(one.table == table.name and one.changed for one in changes):
                for cell in changed_values(connection, table, before, after):
                    count, example = columns.get((cell.table, cell.column), (0, cell))
                    columns[cell.table, cell.column] = count + 1, example
                    values += [cell] if rows else []
            if rows:
                listed += [{"table": table.name, **row} for row in changed_rows(connection, table)]
    if as_json:
        counts = [vars(change) for change in changes]
        of_columns = [{**example._asdict(), "changed": count} for count, example in columns.values()]
        each = {"rows": listed, "values": [one._asdict() for one in values]} if rows else {}
        print_json({"counts": counts, "columns": of_columns, **each})
    else:
        console.show_diff(before, after, changes, columns.values(), listed, values)


@app.command()
def explain(
    corpus: VersionArgument,
    row: Annotated[str, typer.Argument(help="A row's key, a reject's item, or a file's name in the input list.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the path of a row or reject from its input file and line through each step.

    **Example:** `earmark inspect explain mos-preferences 4e7f0a1b2c3d4e5f`
    """
    from dataclasses import asdict

    from earmark.flows.command import console
    from earmark.tasks.pipeline.registry import find_corpus
    from earmark.tasks.store.explain import MOST
    from earmark.tasks.store.explain import explain as find_accounts

    version = open_store(store).find(corpus)
    accounts = find_accounts(version, find_corpus(version.corpus).tables, row)
    for table, count in Counter(account.table for account in accounts).items():
        if count == MOST:
            line = f"note: the first {MOST} such rows of {table}; there may be more: earmark inspect sql shows all"
            print(line, file=sys.stderr)
    if as_json:
        print_json([{**asdict(account), "through": [s.model_dump() for s in account.through]} for account in accounts])
    else:
        console.show_accounts(version, accounts)


@app.command()
def verify(corpus: VersionArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Compare each file of a version with its hash in the manifest, and list known faults that may affect it.

    **Examples:** `earmark inspect verify mos-preferences` · `earmark inspect verify mos-preferences@v2`
    """
    from earmark.flows.command import console
    from earmark.tasks.release.known_faults import lines_about
    from earmark.tasks.store.versions import verify as find_faults

    place = open_store(store)
    version = place.find(corpus, fetch=False)  # a damaged object cannot be downloaded, only named
    faults = place.remote.faults(version.manifest) if place.remote else find_faults(version)
    known = lines_about(place, version)
    count = len(version.manifest.files)
    if as_json:
        facts = {"corpus": version.corpus, "version": version.name, "files": count, "faults": faults}
        print_json({**facts, "known_faults": known})
    else:
        for line in known:
            console.tell(f"known fault: {line}")
        for fault in faults:
            console.tell(fault)
        if not faults:
            console.tell(f"{version.corpus} {version.name}: all {count} files are as committed")
    if faults:
        named = "the file named above" if len(faults) == 1 else f"the {len(faults)} files named above"
        raise StoreError(f"{version.corpus} {version.name} differs from what was committed: see {named}")
