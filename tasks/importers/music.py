"""Tables of prompts and of music generated from them, as CSV, TSV, JSON lines or Parquet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from earmark.schemas.errors import ConfigError
from earmark.tasks.importers.cells import BadRow, clip, given, identifier, shown
from earmark.tasks.importers.lists import Cells, parsed
from earmark.tasks.importers.rows import Note, Reject
from earmark.tasks.importers.table import read_table, table_file

LONGEST_TEXT = 20_000
MADE = frozenset({"", "succeeded", "success", "successful", "ok", "completed", "complete", "done", "finished"})


class Prompt(NamedTuple):
    """What music was asked for."""

    prompt_id: str
    text: str
    lyrics: str | None
    reference_audio: str | None  # path below the table's folder
    source_file: str
    line: int


class Generation(NamedTuple):
    """What a model made of a prompt."""

    generation_id: str
    prompt_id: str
    model: str
    audio: str  # path below the table's folder
    source_file: str
    line: int


Made = TypeVar("Made", Prompt, Generation)


def read_prompts(path: Path, written: str) -> Iterator[Prompt | Reject | Note]:
    """Read a table with the columns `prompt_id`, `text`, and where they are there `lyrics` and `reference_audio`.

    Args:
        path: the file.
        written: the path as the config writes it; rejects name it.

    Raises:
        InputError: the file or one of the first two columns is missing, or the file is not what its ending says.
    """

    def parse(cells: Cells, line: int, name: str, root: str) -> Prompt:
        reference = clip(cells[3], root) if given(cells[3]) else None
        prompt_id = identifier(cells[0], "prompt")
        return Prompt(prompt_id, words(cells[1], "text") or "", words(cells[2]), reference, name, line)

    yield from _rows(path, written, ("prompt_id", "text"), ("lyrics", "reference_audio"), parse)


def read_generations(path: Path, written: str) -> Iterator[Generation | Reject | Note]:
    """Read a table with the columns `generation_id`, `prompt_id`, `model`, `audio`, and if it is there `status`.

    A generation whose status does not say that it was made, or that names no audio, is a reject.

    Args:
        path: the file.
        written: the path as the config writes it; rejects name it.

    Raises:
        InputError: the file or one of the first four columns is missing, or the file is not what its ending says.
    """

    def parse(cells: Cells, line: int, name: str, root: str) -> Generation:
        generation, prompt, model = (identifier(cells[i], w) for i, w in enumerate(("generation", "prompt", "model")))
        status = str(cells[4] or "").strip().lower()
        if status not in MADE:
            raise BadRow("generation_failed", f"expected a generation that succeeded, found status '{shown(status)}'")
        return Generation(generation, prompt, model, clip(cells[3], root), name, line)

    yield from _rows(path, written, ("generation_id", "prompt_id", "model", "audio"), ("status",), parse)


def read_ranks(path: Path) -> Mapping[str, Mapping[str, float]]:
    """Ranks of models by dimension, 1 the best, from `{"ranks": {dimension: {model: rank}}}`."""
    try:
        ranks: Mapping[str, Mapping[str, float]] = json.loads(path.read_text("utf-8"))["ranks"]
        if not all(isinstance(rank, int | float) for known in dict(ranks).values() for rank in dict(known).values()):
            raise TypeError("a rank that is no number")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"known_order: expected JSON with 'ranks' in {path.name}, found: {error}") from None
    return ranks


def words(cell: Any, wanted: str | None = None) -> str | None:
    """Free text of at most 20,000 characters, or None where there is none; `wanted` names text that must be there."""
    text = cell.strip() if isinstance(cell, str) else "" if cell is None else cell
    if not isinstance(text, str):
        raise BadRow("bad_text", f"expected {wanted or 'text'} in words, found {shown(cell)}")
    try:
        text.encode()
    except UnicodeEncodeError:  # JSON can write half of a pair of surrogates, which no column can hold
        raise BadRow("bad_text", f"expected {wanted or 'text'} in Unicode, found '{shown(text)}'") from None
    if len(text) > LONGEST_TEXT:
        raise BadRow("text_too_long", f"expected at most {LONGEST_TEXT} characters, found {len(text)}")
    if wanted and not text:
        raise BadRow(f"missing_{wanted}", f"expected {wanted}, found an empty cell")
    return text or None


def _rows(
    path: Path,
    written: str,
    wanted: tuple[str, ...],
    optional: tuple[str, ...],
    parse: Callable[[Cells, int, str, str], Made],
) -> Iterator[Made | Reject | Note]:
    file = table_file(path, written)
    rows = read_table(file, wanted, optional)
    return parsed(file.name, rows, lambda cells, line: parse(cells, line, file.name, str(path.parent)))
