"""`earmark sql`: people's own questions to versions."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from earmark.flows.command.options import JsonOption, StoreOption, open_store, print_json


def sql(
    statement: Annotated[
        str, typer.Argument(metavar="SELECT", help="DuckDB's SQL; `'CORPUS@vN'.TABLE` is a version's table.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write all rows to a .csv or .parquet file.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Print at most so many rows.")] = 40,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Select rows from versions with SQL, across versions and corpora. Nothing is changed.

    **Examples:**

    `earmark sql "SELECT split, count(*) FROM 'mos-preferences'.pairs GROUP BY ALL"`

    `earmark sql "FROM 'mos-preferences@v2'.ratings ANTI JOIN 'mos-preferences@v1'.ratings USING (sample_id)"`

    `earmark sql "SELECT reason, count(*) AS rows FROM 'captions'.rejects GROUP BY ALL" --out reasons.csv`
    """
    from earmark.tasks.store.select import refused, select, write_rows

    with tempfile.TemporaryDirectory(prefix="earmark-") as spill, refused():
        rows = select(open_store(store), statement, Path(spill))
        if out is not None:
            write_rows(rows, out)
            print(f"wrote {out}")
        elif as_json:
            print_json(rows.to_arrow_table().to_pylist())
        else:
            rows.show(max_rows=limit)
