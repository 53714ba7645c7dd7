"""Implement `earmark init mos-preferences`: propose a config for a published folder, or for a table by its columns."""

import os
import re
import tomllib
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from earmark.flows.command.respelling import toml, toml_key
from earmark.schemas.errors import EarmarkError, InputError
from earmark.schemas.mos_preferences import MosPreferences
from earmark.schemas.rating_sources import Source
from earmark.schemas.reasons import Reject
from earmark.schemas.toml import parse_config
from earmark.schemas.unseen import printable
from earmark.tasks.importers.guessing import Guess, guess_table
from earmark.tasks.importers.lists import RATING_LAYOUTS, Rating, read_source
from earmark.tasks.importers.sniffing import WORDS
from earmark.tasks.importers.vote_guessing import GuessedVotes

LOOKED_AT = 500  # rows of a published list
SHOWN = 8  # printed choices; the config has all
UP = 5  # folders above a list searched for the root of its layout
LEAST_CONTENTS = 10  # fewest contents, or clips, for a test split
TEST_OF_FEW = 30  # fewer contents get a larger share of the test split, for it to hold several


class Proposal(NamedTuple):
    """A proposed config, and remarks on it."""

    text: str
    facts: dict[str, Any]
    lines: list[str]
    doubts: tuple[str, ...] = ()  # decisions for a person before a build


class Line(NamedTuple):
    """A line of a config."""

    key: str
    value: Any
    comment: str = ""
    is_sure: bool = True  # whether it is active, or a comment

    def text(self) -> str:
        """Return the line as TOML."""
        comment = f"   # {printable(self.comment)}" if self.comment else ""
        return f"{'' if self.is_sure else '# '}{toml_key(self.key)} = {toml(self.value)}{comment}"


def propose(table: Path, config: Path, name: str, encoding: str = "") -> Proposal:
    """Propose the config of a list of ratings: of its published layout, else of a table."""
    return (None if encoding else published(table, config, name)) or of_table(
        guess_table(table, encoding), table, config, name
    )


def require_sure(proposal: Proposal, config: Path) -> None:
    """Refuse a written config with choices left to a person."""
    if proposal.doubts:
        raise InputError(printable(f"wrote {config}, to be completed: {'; '.join(proposal.doubts)}"))


def published(table: Path, config: Path, name: str) -> Proposal | None:
    """Propose the config of a list's published folder; return None for a list in no published layout."""
    with table.open("rb") as file:
        start = file.read(1 << 12).decode("utf-8-sig", "replace")
    for layout in RATING_LAYOUTS.entries:
        signature = RATING_LAYOUTS.find(layout).signature
        if not signature or not re.match(signature, start):
            continue
        for root in [*table.absolute().parents][:UP]:
            lists, good, bad = _read(layout, root)
            if table.resolve() in lists and good > bad:
                lines = [
                    Line("name", name),
                    Line("format", layout, "the published layout that the list is part of"),
                    Line("root", os.path.relpath(root, config.absolute().parent)),
                ]
                text = _document(f"{good + bad:,} rows of a published folder", None, lines, [])
                facts = {"rows": good + bad, "format": layout, "lists": len(lists)}
                said = [f"the layout {layout}: {len(lists)} of its lists lie in {root.name or root}"]
                return Proposal(text, facts, said)
    return None


def _read(layout: str, root: Path) -> tuple[set[Path], int, int]:
    source = Source(name="x", format=layout, root=str(root))
    try:
        lists = {file.path.resolve() for file in RATING_LAYOUTS.find(layout).find(source, Path).lists}
        rows = [*islice(read_source(source, Path), LOOKED_AT)]
    except (EarmarkError, FileNotFoundError):  # the layout does not start here, or a folder of others went meanwhile
        return set(), 0, 0
    return lists, sum(isinstance(row, Rating) for row in rows), sum(isinstance(row, Reject) for row in rows)


def of_table(guess: Guess, table: Path, config: Path, name: str) -> Proposal:
    """Propose the config of a table: sure lines are active, a person's decisions are comments."""
    here = config.absolute().parent
    file = guess.columns.get("file", "")
    clip = guess.examples.get(file, "") if isinstance(file, str) else ""
    folder = _folder_of(clip, table.parent)
    sure = "mos" in guess.columns
    comment = f"ratings there: {guess.seen[0]:g} to {guess.seen[1]:g}" if sure else "of the column that you choose"
    scale = dict(guess.scale) if isinstance(guess.scale, Mapping) else list(guess.scale)
    lines = [
        Line("name", name),
        Line("format", "table"),
        Line("files", {"train": os.path.relpath(table, here)}, "a file, or a list of files, a split"),
        Line("scale", scale, comment, sure),
    ]
    if guess.best == "low":
        lines.append(Line("best", "low", "of ranks the lowest is the best"))
    if guess.missing:
        counted = ", ".join(f"{toml(cell)} {count:,} times" for cell, count in guess.missing.items())
        comment = f"found {counted}; leave it out where they are ratings"
        lines.append(Line("not_a_rating", [*guess.missing], comment))
    lines += _split(guess)
    if folder is not None and folder.resolve() != here.resolve():
        lines.append(Line("audio_root", os.path.relpath(folder, here), "where the first clip lies"))
    elif clip.startswith("/"):
        lines.append(Line("audio_root", "/", "names begin with it; a folder that they begin with is left out of them"))
    else:
        lines.append(Line("audio_root", "clips", "where the clips lie, if not beside this config", is_sure=False))
    if guess.delimiter and not guess.usual:
        lines.append(Line("delimiter", guess.delimiter))
    if guess.encoding:
        lines.append(Line("encoding", guess.encoding))
    if guess.header:
        lines.append(Line("header", list(guess.header), "the list has none"))
    if guess.where:
        lines.append(Line("where", dict(guess.where), guess.who))
    if guess.clip_in:
        lines.append(Line("file_name", guess.clip_in, "the clip's name, in the names of the columns"))
    elif guess.file_name:
        lines.append(Line("file_name", guess.file_name, "would take systems from file names", is_sure=False))
    columns = [Line(what, column, _such_as(guess, column)) for what, column in guess.columns.items()]
    if "file" not in guess.columns:
        columns.append(Line("file", "…", "the column that names the clip", is_sure=False))
    columns += [Line("mos", one.column, one.facts, is_sure=False) for one in guess.choices]
    wide = [one.column for one in guess.choices if not one.doubt]
    if not sure and len(wide) > 1:
        columns.append(Line("mos", wide, "a wide table: each is rated; then unpivot above", is_sure=False))
        lines.append(Line("unpivot", "system", "or listener, …: what the names of these columns are", is_sure=False))
    text = _document(f"{guess.rows:,} rows of a table", folder, lines, columns)
    if guess.unused:
        text += f"# not used: {printable(', '.join(guess.unused))}\n"
    if not guess.doubts:
        parse_config(MosPreferences, tomllib.loads(text), config)
    facts = {"rows": guess.rows, "columns": guess.columns, "scale": guess.scale}
    facts |= {"choices": [one._asdict() for one in guess.choices]} if guess.choices else {}
    return Proposal(text, facts, _said(guess), guess.doubts)


def of_votes(guess: GuessedVotes, table: Path, config: Path, name: str, folder: Path | None) -> Proposal:
    """Propose the config of a table of comparisons of two clips in the folder."""
    here = config.absolute().parent
    lines = [
        Line("name", name),
        Line("format", "votes"),
        Line("root", os.path.relpath(table.absolute().parent, here)),
        Line("files", [table.name]),
        Line("clips", "elsewhere", "if they are not at hand", is_sure=False),
    ]
    if guess.signed:
        lines.append(Line("positive", "b", "the clip that a number above 0 prefers (ITU-T P.800: b)", is_sure=False))
    columns = [Line(what, column) for what, column in guess.columns.items()]
    if not {"overall", "musicality", "alignment"} & guess.columns.keys():
        columns += [Line("overall", column, is_sure=False) for column in guess.unused]
    text = _document(f"{guess.rows:,} rows of comparisons", folder, lines, columns, "human-preferences")
    text += "\n[split]\n" + Line("test", 0, "samples to draw into the split test").text() + "\n"
    named = ", ".join(f"{what} = {column}" for what, column in guess.columns.items())
    said = [f"looked at {guess.rows:,} rows", f"columns: {named}"]
    said += [f"not used: {', '.join(guess.unused)}"] if guess.unused else []
    facts = {"rows": guess.rows, "format": "votes", "columns": guess.columns}
    return Proposal(text, facts, [printable(line) for line in said], guess.doubts)


def _split(guess: Guess) -> list[Line]:
    if "split" in guess.columns:
        return []
    places, word = (guess.contents, "contents") if "content" in guess.columns else (guess.clips, "clips")
    if places < LEAST_CONTENTS:
        few = f"{places} {word} are few for a test split" if places else "over train, validation and test"
        return [Line("split", "by-content", few, is_sure=False)]
    lines = [Line("split", "by-content", f"shares out {places:,} {word} over train, validation and test")]
    if places < TEST_OF_FEW:
        lines.append(Line("shares", {"train": 0.7, "test": 0.3}, "few: no validation, for the test split to hold some"))
    return lines


def _such_as(guess: Guess, column: str | tuple[str, ...]) -> str:
    if not isinstance(column, str):
        return f"{len(column)} columns"
    example = guess.examples.get(column, "")
    return f"such as {example[:60]}" if example else ""


def _said(guess: Guess) -> list[str]:
    named = {what: one if isinstance(one, str) else f"{len(one)} columns" for what, one in guess.columns.items()}
    columns = ", ".join(f"{what} = {column}" for what, column in named.items())
    mark = WORDS.get(guess.delimiter, guess.delimiter)
    header = "none: the first row counts" if guess.header else "the first row"
    form = f"; delimiter: {mark}; header: {header}" if mark else ""
    form += f"; encoding: {guess.encoding}" * bool(guess.encoding)
    lines = [
        f"looked at {guess.rows:,} rows{form}",
        f"columns: {columns or 'none is sure'}" + (f"; not used: {', '.join(guess.unused)}" if guess.unused else ""),
    ]
    if isinstance(guess.scale, Mapping):
        lines.append(f"scale by test: {', '.join(f'{test} {a:g} to {b:g}' for test, (a, b) in guess.scale.items())}")
    elif "mos" in guess.columns:
        (least, most), (low, high) = guess.seen, guess.scale
        best = "; the lowest is the best" * (guess.best == "low")
        lines.append(f"ratings from {least:g} to {most:g}: scale {low:g} to {high:g}{best}")
    if guess.missing:
        counted = ", ".join(f"{toml(cell)} ({count:,})" for cell, count in guess.missing.items())
        lines.append(f"no ratings: {counted}")
    lines += [f"only {guess.who}: where = {toml(dict(guess.where))}"] if guess.where else []
    lines += [f"may be the rating: {one.column}, {one.facts}" for one in guess.choices[:SHOWN]]
    lines += [f"and {len(guess.choices) - SHOWN} more columns of numbers"] if len(guess.choices) > SHOWN else []
    return [printable(line) for line in lines]


def _document(
    of: str, folder: Path | None, lines: list[Line], columns: list[Line], corpus: str = "mos-preferences"
) -> str:
    index = Line("audio", "index", "measures the clips; exports and the report's players need them", folder is not None)
    parts = [f"# Guessed by `earmark init` from {of}: check every line.", f'corpus = "{corpus}"', index.text(), ""]
    parts += ["[[sources]]", *(line.text() for line in lines)]
    parts += ["", "[sources.columns]", *(line.text() for line in columns)] if columns else []
    return "\n".join(parts) + "\n"


def _folder_of(clip: str, beside: Path) -> Path | None:
    """Find the folder of a table's clip: beside the table or in a subfolder; None if not found."""
    if not clip or len(clip) > 200 or Path(clip).is_absolute() or ".." in Path(clip).parts:
        return None
    try:
        folders = sorted(path for path in beside.iterdir() if path.is_dir())
    except PermissionError:  # finding clips is a convenience; the table itself can be read
        folders = []
    folders, names = [beside, *folders], (clip, f"{clip}.wav")
    return next((one for one in folders if any(os.path.isfile(one / name) for name in names)), None)  # noqa: PTH113
