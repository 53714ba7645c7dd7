"""Define options and arguments shared by commands, and JSON printing."""

from __future__ import annotations

import codecs
import inspect
import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

if TYPE_CHECKING:
    from earmark.tasks.store.result_table import ResultPage
    from earmark.tasks.store.versions import Store


def option(spec: str, use: str, **more: Any) -> Any:
    """Return an option with its help text; `spec` has its names and its value, such as `--limit -n N`.

    Without names the parameter's name counts; with names and no value it is a flag.
    """
    names = [word for word in spec.split() if word.startswith("-")]
    value = " ".join(word for word in spec.split() if word not in names)
    return typer.Option(*names, metavar=value or ("" if names else None), help=use, **more)


StoreOption = Annotated[str | None, option("DIR", "A folder or URL. Default: EARMARK_STORE, else data/store.")]
JsonOption = Annotated[bool, option("--json", "Print JSON for scripts.")]
CorpusArgument = Annotated[str, typer.Argument(help="The corpus; `earmark list` shows all.")]
VersionArgument = Annotated[
    str, typer.Argument(metavar="CORPUS[@vN]", help="The corpus's newest version, or version N with @vN.")
]
ConfigOption = Annotated[Path, option("--config -c FILE", "The build config, a TOML file.")]
VersionConfigOption = Annotated[Path | None, option("--config -c FILE", "Use the version of this build config.")]
ProbedConfigOption = Annotated[Path | None, option("--config -c FILE", "Ask this config's models tiny requests.")]
LimitOption = Annotated[int | None, option("--limit -n N", "Read N rows of each source.", min=1)]
PartOption = Annotated[
    int | None, option("--limit -n N", "Use N samples (whole triplets), by a hash of their ids.", min=1)
]
EachLimitOption = Annotated[int | None, option("--limit -n N", "Use N rows of each split.", min=1)]
AnnotatorOption = Annotated[str | None, option("--annotator -a SPEC", "The model, such as openai:gpt-audio.")]
_NEW_FOLDER = typer.Option("--out", "-o", metavar="DIR", help="The folder to write; it must be empty or not exist.")
OutOption = Annotated[Path, _NEW_FOLDER]
OutFolderOption = Annotated[Path | None, _NEW_FOLDER]
RecordOption = Annotated[Path | None, option("--out -o DIR", "The folder for results. Default: in the store.")]
ForceOption = Annotated[bool, option("--force", "Replace what an earlier call wrote to --out.")]
BaseUrlOption = Annotated[str | None, option("URL", "The server's address, including /v1.")]
SettingsOption = Annotated[Path | None, option("FILE", "The model's options, a TOML file: budget_usd, prices, …")]
AudioRootOption = Annotated[list[Path] | None, option("DIR", "Look for moved clips in this folder too.")]
AskNothingOption = Annotated[bool, option("--dry-run", "Show the requests and their cost; send nothing.")]
AllowRejectsOption = Annotated[bool, option("--allow-rejects", "Commit despite too many rejects or no row.")]


def _keep(keep: bool) -> bool:
    if not keep:
        os.environ["EARMARK_KEEP_S"] = "0"
    return keep


KeepOption = Annotated[
    bool, option("--keep/--no-keep", "Leave Prefect's server for the next build; see EARMARK_KEEP_S.", callback=_keep)
]


def is_unicode() -> bool:
    """Return whether standard output takes every character. Where it does not, others are escaped: in JSON by its own
    escapes."""
    return codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"


def print_json(value: Any) -> None:
    """Print a value as JSON; types unknown to JSON, such as dates, become text, and non-finite numbers null."""
    print(json.dumps(_finite(value), indent=1, ensure_ascii=not is_unicode(), default=str))


def print_record(
    record: tuple[Any, Path], page: Callable[[Any], ResultPage], as_json: bool, holds: str = "tables"
) -> None:
    """Print a record as JSON, or its page and its folder, with a word on what the folder holds."""
    facts, folder = record
    if as_json:
        print_json({**facts, "folder": str(folder)})
    else:
        from earmark.flows.command.console import print_page

        print_page(page(facts), f"{holds} in {folder}")


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the fields of its parameter `given`, a dataclass, as options of their own."""
    kind = get_type_hints(command)["given"]
    shared = inspect.signature(kind, eval_str=True).parameters
    own = inspect.signature(command, eval_str=True).parameters
    parameters = sorted(
        [*(one for one in own.values() if one.name != "given"), *shared.values()],
        key=lambda one: one.default is not inspect.Parameter.empty,
    )

    @wraps(command)
    def called(**values: Any) -> None:
        given = kind(**{name: values.pop(name) for name in shared})
        command(**values, given=given)

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in parameters}
    return called


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def open_store(where: str | None) -> Store:
    """Open the store of `--store`; import its module only now, so that `--help` answers at once."""
    from earmark.tasks.store import versions

    return versions.open_store(where)
