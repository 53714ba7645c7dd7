"""Implement `earmark inspect sql`: query versions by SQL."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Annotated

import typer

from earmark.flows.command.options import JsonOption, StoreOption, open_store, option, print_json
from earmark.schemas.unseen import on_terminal


def sql(
    statement: Annotated[str, typer.Argument(metavar="SELECT", help="DuckDB's SQL; a table is `'CORPUS@vN'.TABLE`.")],
    out: Annotated[Path | None, option("--out -o FILE", "Write all rows to .csv or .parquet.")] = None,
    limit: Annotated[int, option("--limit -n N", "Print N rows at most.", min=1)] = 40,
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
            print(f"wrote {out}")
        elif as_json:
            rows = select(open_store(store), statement, lambda rows, _: rows.to_arrow_table(), allow_files=allow_files)
            print_json(rows.to_pylist())
        else:
            with redirect_stdout(StringIO()) as shown:
                show = lambda rows, _: rows.show(max_rows=limit)  # noqa: E731
                select(open_store(store), statement, show, allow_files=allow_files)
            print(on_terminal(shown.getvalue()), end="")
    except KeyboardInterrupt as stop:
        ended = interrupted(stop, "nothing was changed")
        print(ended, file=sys.stderr, flush=True)
        os._exit(ended.code)  # DuckDB may be in uninterruptible code, and Python's own end waits for it
