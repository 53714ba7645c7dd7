"""What several commands share: options, arguments, and how they print JSON."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from decimal import Decimal
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
_NEW_FOLDER = typer.Option("--out", "-o", metavar="DIR", help="The folder to write; it must be empty or not exist.")
OutOption = Annotated[Path, _NEW_FOLDER]
OutFolderOption = Annotated[Path | None, _NEW_FOLDER]
RecordOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="DIR", help="The folder for results. Default: one in the store."),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace what an earlier call wrote to --out.")]
BaseUrlOption = Annotated[str | None, typer.Option(metavar="URL", help="The server's address, including /v1.")]
SettingsOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A TOML file with the model's options, such as budget_usd, prices and hearing."),
]
AudioRootOption = Annotated[
    list[Path] | None, typer.Option(metavar="DIR", help="Also look in this folder for clips, such as moved ones.")
]
AskNothingOption = Annotated[bool, typer.Option("--dry-run", help="Show the requests and their cost; send nothing.")]
AllowRejectsOption = Annotated[
    bool,
    typer.Option(
        "--allow-rejects", help="Commit even if too many input rows were rejected or the main table is empty."
    ),
]


def _keep(keep: bool) -> bool:
    if not keep:
        os.environ["EARMARK_KEEP_S"] = "0"
    return keep


KeepOption = Annotated[
    bool,
    typer.Option(
        "--keep/--no-keep",
        callback=_keep,
        help="Leave Prefect's server for the next build: it ends after five minutes, or EARMARK_KEEP_S seconds.",
    ),
]


def print_json(value: Any) -> None:
    """Print a value as JSON; what JSON does not know, such as a date, as text, and no number as null."""
    print(json.dumps(_finite(value), indent=1, ensure_ascii=False, default=str))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def open_store(where: str | None) -> Store:
    """The store of `--store`; its module is imported only now, so that `--help` answers at once."""
    from earmark.tasks.store import versions

    return versions.open_store(where)
