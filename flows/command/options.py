"""What several commands share: options, arguments, and how they print JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from earmark.tasks.store.versions import Store

StoreOption = Annotated[
    str | None,
    typer.Option(
        metavar="DIR", help="The store: a folder or s3://bucket/prefix. Default: EARMARK_STORE, else data/store."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
CorpusArgument = Annotated[str, typer.Argument(help="The corpus; `earmark list` shows all.")]
VersionArgument = Annotated[
    str, typer.Argument(metavar="CORPUS[@vN]", help="The corpus; its newest version, or version N with @vN.")
]
ConfigOption = Annotated[Path, typer.Option("--config", "-c", metavar="FILE", help="The build config, a TOML file.")]
LimitOption = Annotated[int | None, typer.Option(min=1, help="Read only the first N rows of each source.")]
OutFolderOption = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="DIR", help="The folder to write; it must be empty or not exist.")
]
AllowRejectsOption = Annotated[
    bool,
    typer.Option(
        "--allow-rejects", help="Commit even if too many input rows were rejected or the main table is empty."
    ),
]


def print_json(value: Any) -> None:
    """Print a value as JSON; what JSON does not know, such as a date, as text."""
    print(json.dumps(value, indent=1, ensure_ascii=False, default=str))


def open_store(where: str | None) -> Store:
    """The store of `--store`; its module is imported only now, so that `--help` answers at once."""
    from earmark.tasks.store import versions

    return versions.open_store(where)
