"""Implement `earmark inspect`: look into versions."""

from __future__ import annotations

from typing import Annotated

import typer

from earmark.flows.command.options import JsonOption, StoreOption, VersionArgument, open_store, option, print_json
from earmark.flows.command.sql_cli import sql
from earmark.flows.command.view_cli import view
from earmark.schemas.errors import StoreError

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

    place = open_store(store)
    before, after = place.find(old), place.find(new)
    if before.corpus != after.corpus:
        raise StoreError(f"expected two versions of one corpus, found {before.corpus} and {after.corpus}")
    changes, listed, values = [], [], list[Cell]()
    columns: dict[tuple[str, str], tuple[int, Cell]] = {}
    for table in find_corpus(before.corpus).tables:
        with duckdb.connect() as connection:
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
    from earmark.tasks.store.explain import explain as find_accounts

    version = open_store(store).find(corpus)
    accounts = find_accounts(version, find_corpus(version.corpus).tables, row)
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
    version = place.find(corpus)
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
