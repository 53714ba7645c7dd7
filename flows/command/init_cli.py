"""Implement `earmark init`: propose a config from a file, to check and to change."""

import re
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from earmark.flows.command.options import CorpusArgument, JsonOption, open_store, option, print_json

FOLDERS = "pseudo-preferences"  # the corpus built from a folder of systems


def init(
    corpus: CorpusArgument,
    table: Annotated[Path | None, option("--from FILE", "The list: text, JSON, Parquet; or a folder.")] = None,
    out: Annotated[Path | None, option("--out -o FILE", "The config. Default: CORPUS.toml.")] = None,
    force: Annotated[bool, option("--force", "Replace the config.")] = False,
    encoding: Annotated[str, option("NAME", "The encoding of a list of ratings, if not UTF-8.")] = "",
    schema: Annotated[bool, option("--schema", "Print the config's JSON Schema; write nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a config for a file as its owner publishes it; print what was guessed, and what a build would do with it.

    Of a table of rated clips (`mos-preferences`): columns, scale, header and delimiter. A column is the rating if it is
    called so and no other is; else the numeric columns stand as choices, and the command ends with 1. For
    `human-preferences`, `captions`, `instrumentals` and `instruction-rubrics`: which layout the file is in. For
    `music-prompts` a list of tracks, for `pseudo-preferences` one of generations, with prompts beside it, or a folder
    of systems (`sysA/0001.wav`) with a table of prompts in it, for `score-questions` a dump's submissions, with its
    comments beside them.

    With `#:schema ./FILE` as its first line, editors complete and check a config (Even Better TOML, Taplo).

    **Examples:**

    `earmark init mos-preferences --from ratings.csv`

    `earmark init mos-preferences --schema > mos-preferences.schema.json`
    """
    from earmark.flows.command.console import tell
    from earmark.flows.command.ending import command
    from earmark.flows.command.init_layouts import propose_folder, propose_layout
    from earmark.flows.command.init_ratings import propose, require_sure
    from earmark.flows.command.previewing import end_with_preview
    from earmark.schemas.annotation import Declarations
    from earmark.schemas.config import RUNS_WITH
    from earmark.schemas.errors import ConfigError
    from earmark.schemas.mos_preferences import CORPUS
    from earmark.tasks.importers.sniffing import require_table
    from earmark.tasks.pipeline.registry import find_corpus
    from earmark.tasks.store.files import write_text

    found = find_corpus(corpus)
    known = found.name
    if schema:
        form, models = found.config.model_json_schema(), Declarations.model_json_schema()
        form["properties"]["models"] |= models["properties"]["models"]
        form["$defs"] |= models["$defs"]
        for key in RUNS_WITH:
            del form["properties"][key]
        for part in form["$defs"].values():  # files have no roles of 1.0.0, unlike deployments
            if part.pop("if", None):
                part |= part.pop("else")
        print_json({"$schema": "https://json-schema.org/draft/2020-12/schema", **form})
        return
    if table is None:
        raise typer.BadParameter("give --from FILE, or --schema", param_hint="--from")
    path = out or Path(f"{corpus}.toml")
    if not (table.is_file() or (known == FOLDERS and table.is_dir())):
        raise ConfigError(f"--from {table}: expected a file, found {'a folder' if table.is_dir() else 'none'}")
    if path.exists() and not force:
        raise ConfigError(f"{path} exists already; replace it with --force, or choose another with --out")
    if encoding and known != CORPUS.name:
        raise ConfigError(f"--encoding: expected with {CORPUS.name} alone, found with {known}; save the file as UTF-8")
    if known == FOLDERS and table.is_dir():
        proposal = propose_folder(table, path)
    else:
        require_table(table)
        rated = partial(propose, encoding=_encoding(encoding))
        proposal = (rated if known == CORPUS.name else partial(propose_layout, known))(table, path, _name(table))
    write_text(path, proposal.text)
    if as_json:
        print_json({"config": str(path), **proposal.facts, "doubts": proposal.doubts})
    else:
        tell(*proposal.lines)
    require_sure(proposal, path)
    if not as_json:
        place = open_store(None)
        end_with_preview(corpus, path, place)
        tell(f"wrote {path}; next: {command(place, 'build', corpus, '--config', path, '--dry-run')}")


def _encoding(name: str) -> str:
    from earmark.schemas.errors import ConfigError
    from earmark.schemas.rating_sources import require_encoding

    try:
        return require_encoding(name) if name else name
    except ValueError as error:
        raise ConfigError(f"--encoding: {error}") from None


def _name(table: Path) -> str:
    return re.sub(r"[^a-z0-9]+", "-", table.name.partition(".")[0].lower()).strip("-")[:64].strip("-") or "source"
