"""`earmark init`: a config from a file, to check and to change."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.flows.command.options import CorpusArgument, JsonOption, print_json

if TYPE_CHECKING:
    from earmark.tasks.importers.guessing import Guess


def init(
    corpus: CorpusArgument,
    table: Annotated[Path, typer.Option("--from", metavar="FILE", help="The list: text, JSON lines or Parquet.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Default: CORPUS.toml.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the config.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a config for a file as its owner publishes it, and print what was guessed.

    Of a table of rated clips (`mos-preferences`): columns, scale, header and delimiter, whatever they are called. For
    `human-preferences`, `captions`, `instrumentals` and `instruction-rubrics`: which layout the file is in. For
    `music-prompts` a list of tracks, for `pseudo-preferences` one of generations, with prompts beside it, for
    `score-questions` a dump's submissions, with its comments beside them.

    **Examples:** `earmark init mos-preferences --from ratings.csv` · `earmark init captions --from autotagging.tsv`
    """
    from earmark.flows.command.init_layouts import guess_config
    from earmark.schemas.errors import ConfigError
    from earmark.schemas.mos_preferences import CORPUS
    from earmark.tasks.build.registry import find_corpus
    from earmark.tasks.store.files import write_text

    known = find_corpus(corpus).name
    path = out or Path(f"{corpus}.toml")
    if path.exists() and not force:
        raise ConfigError(f"{path} exists already; replace it with --force, or choose another with --out")
    if not table.is_file():
        raise ConfigError(f"--from {table}: expected a file, found {'a folder' if table.is_dir() else 'none'}")
    if known == CORPUS.name:
        text, facts, lines = _of_ratings(table, path)
    else:
        fit = guess_config(known, table, path, _name(table))
        text, facts = fit.text, {"format": fit.layout, "rows": fit.rows, "refused": fit.refused}
        lines = [f"looked at {fit.rows + fit.refused:,} rows: {fit.rows:,} are in the layout {fit.layout}"]
        lines += [f"not in it: {fit.refused:,}, such as {fit.fault}"] if fit.refused else []
        lines += ["check who is asked, and every line with a comment"]
    write_text(path, text)
    if as_json:
        print_json({"config": str(path), **facts})
        return
    print(*lines, sep="\n")
    print(f"wrote {path}; next: earmark build {corpus} --config {path} --dry-run")


def _of_ratings(table: Path, path: Path) -> tuple[str, dict[str, Any], list[str]]:
    """Config, facts and words of a table of rated clips."""
    import tomllib

    from earmark.schemas.config import parse_config
    from earmark.schemas.mos_preferences import MosPreferences
    from earmark.tasks.importers.guessing import guess_table

    guess = guess_table(table)
    text = config_text(guess, table, path)
    parse_config(MosPreferences, tomllib.loads(text), path)
    return text, {"rows": guess.rows, "columns": guess.columns, "scale": guess.scale}, guesses(guess)


def _name(table: Path) -> str:
    """A source's name after a file's."""
    return re.sub(r"[^a-z0-9]+", "-", table.name.partition(".")[0].lower()).strip("-") or "source"


def _folder_of(clip: str, beside: Path) -> Path | None:
    """Where a clip of a table lies: beside the table or in a folder there; None where it is not found."""
    if not clip or len(clip) > 200 or Path(clip).is_absolute() or ".." in Path(clip).parts:
        return None
    try:
        folders = sorted(path for path in beside.iterdir() if path.is_dir())
    except PermissionError:  # to look for clips is a convenience; the table itself can be read
        folders = []
    folders, names = [beside, *folders], (clip, f"{clip}.wav")
    return next((one for one in folders if any(os.path.isfile(one / name) for name in names)), None)  # noqa: PTH113


def guesses(guess: Guess) -> list[str]:
    """What was guessed, a line each."""
    columns = ", ".join(f"{what} = {column}" for what, column in guess.columns.items())
    mark = {",": "comma", "\t": "tab", ";": "semicolon", " ": "space"}.get(guess.delimiter, guess.delimiter)
    form = f"; delimiter: {mark}; header: {'none' if guess.header else 'the first row'}" if mark else ""
    return [
        f"looked at {guess.rows:,} rows{form}",
        f"columns: {columns}" + (f"; not used: {', '.join(guess.unused)}" if guess.unused else ""),
        f"ratings from {guess.seen[0]:g} to {guess.seen[1]:g}: scale {guess.scale[0]:g} to {guess.scale[1]:g}",
    ]


def config_text(guess: Guess, table: Path, config: Path) -> str:
    """The config, with a comment wherever something was guessed."""

    def cell(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    written = os.path.relpath(table, config.absolute().parent)
    name, folder = _name(table), _folder_of(guess.examples[guess.columns["file"]], table.parent)
    lines = [
        f"# Guessed by `earmark init` from {guess.rows:,} rows of a table: check every line.",
        'corpus = "mos-preferences"',
        f'{"" if folder else "# "}audio = "index"   # measures the clips; exports and players in the report need them',
        "",
        "[[sources]]",
        f"name = {cell(name)}",
        'format = "table"',
        f"files = {{ train = {cell(written)} }}   # a file a split: train, validation, test, ood",
        f"scale = [{guess.scale[0]:g}, {guess.scale[1]:g}]   # ratings there: {guess.seen[0]:g} to {guess.seen[1]:g}",
        '# split = "by-content"   # shares out one file over the splits, by what is said or sung',
        f"audio_root = {cell(os.path.relpath(folder, config.absolute().parent))}   # where the first clip lies"
        if folder is not None and folder.resolve() != config.absolute().parent.resolve()
        else '# audio_root = "clips"   # where the clips lie, if not beside this config',
    ]
    if guess.delimiter and not guess.usual:
        lines.append(f"delimiter = {cell(guess.delimiter)}")
    if guess.header:
        lines.append(f"header = {cell(list(guess.header))}   # the list has none")
    if guess.file_name:
        lines.append(f"# file_name = '{guess.file_name}'   # would take systems from file names")
    lines += ["", "[sources.columns]"]
    for what, column in guess.columns.items():
        example = "".join(one if one.isprintable() else "?" for one in guess.examples[column][:60])
        lines.append(f"{what} = {cell(column)}   # such as {example}")
    if guess.unused:
        lines.append("# not used: " + "".join(c if c.isprintable() else "?" for c in ", ".join(guess.unused)))
    return "\n".join(lines) + "\n"
