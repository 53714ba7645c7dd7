"""Tables of prompts and of music generated from them, as CSV, TSV, JSON lines or Parquet.

Readers get a file and its path as the config writes it, by which rejects name it. They raise `InputError` where the
file or a column that must be there is missing, or the file is not what its ending says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from earmark.schemas.errors import ConfigError
from earmark.tasks.importers.cells import BadRow, clip, given, identifier, shown
from earmark.tasks.importers.lists import Cells, parsed
from earmark.tasks.importers.rows import Note, Reject
from earmark.tasks.importers.table import read_table, table_file

LONGEST_TEXT = 20_000
CONDITIONS = ("text", "lyrics", "reference", "caption")
MADE = frozenset({"", "succeeded", "success", "successful", "ok", "completed", "complete", "done", "finished"})


class Prompt(NamedTuple):
    """What music was asked for."""

    prompt_id: str
    text: str
    lyrics: str | None
    reference_audio: str | None  # path below the table's folder
    source_file: str
    line: int
    reference_caption: str | None = None  # what is to be heard in it


class Generation(NamedTuple):
    """What a model made of a prompt."""

    generation_id: str
    prompt_id: str
    model: str
    audio: str  # path below the table's folder
    source_file: str
    line: int
    conditioned_on: str | None = None  # what its model was given, of `CONDITIONS`; None: all that the prompt has


class Gold(NamedTuple):
    """Two clips of which it is known which is better."""

    text: str
    audio_a: str  # path below the table's folder
    audio_b: str
    truth: Mapping[str, str]  # a, b or tie, by dimension
    lyrics: str | None
    reference_audio: str | None
    domain: str | None
    source_file: str
    line: int


Made = TypeVar("Made", Prompt, Generation, Gold)


def read_prompts(path: Path, written: str) -> Iterator[Prompt | Reject | Note]:
    """Read a table with the columns `prompt_id`, `text`, and where they are there `lyrics`, `reference_audio` and
    `reference_caption`.
    """

    def parse(cells: Cells, line: int, name: str, root: str) -> Prompt:
        reference = clip(cells[3], root) if given(cells[3]) else None
        prompt_id = identifier(cells[0], "prompt")
        spoken = words(cells[4])
        return Prompt(prompt_id, words(cells[1], "text") or "", words(cells[2]), reference, name, line, spoken)

    optional = ("lyrics", "reference_audio", "reference_caption")
    yield from _rows(path, written, ("prompt_id", "text"), optional, parse)


def read_generations(path: Path, written: str) -> Iterator[Generation | Reject | Note]:
    """Read a table with the columns `generation_id`, `prompt_id`, `model`, `audio`, and if they are there `status` and
    `conditioned_on`: what the model was given of its prompt, words of `CONDITIONS` in a list or joined by +.

    A generation whose status does not say that it was made, or that names no audio, is a reject.
    """

    def parse(cells: Cells, line: int, name: str, root: str) -> Generation:
        generation, prompt, model = (identifier(cells[i], w) for i, w in enumerate(("generation", "prompt", "model")))
        status = str(cells[4] or "").strip().lower()
        if status not in MADE:
            raise BadRow("generation_failed", f"expected a generation that succeeded, found status '{shown(status)}'")
        return Generation(generation, prompt, model, clip(cells[3], root), name, line, conditions(cells[5]))

    optional = ("status", "conditioned_on")
    yield from _rows(path, written, ("generation_id", "prompt_id", "model", "audio"), optional, parse)


def conditions(cell: Any) -> str | None:
    """What a model was given, in the order of `CONDITIONS`, joined by +; None for an empty cell."""
    if not given(cell):
        return None
    parts = [str(part) for part in cell] if isinstance(cell, list | tuple) else str(cell).split("+")
    named = {part.strip().lower() for part in parts}
    if odd := sorted(named - {*CONDITIONS}):
        raise BadRow("bad_condition", f"expected {', '.join(CONDITIONS)}, found '{shown(odd[0])}'")
    return "+".join(name for name in CONDITIONS if name in named)


def read_gold(path: Path, written: str, dimensions: Sequence[str]) -> Iterator[Gold | Reject | Note]:
    """Read a table with the columns `text`, `audio_a`, `audio_b`, one for each dimension whose truth is known (a, b or
    tie; else empty), and where they are there `lyrics`, `reference_audio` and `domain`.

    Args:
        dimensions: names of the columns that may hold truth; a row must hold one.
    """

    def parse(cells: Cells, line: int, name: str, root: str) -> Gold:
        truth = {of: str(cell).strip().lower() for of, cell in zip(dimensions, cells[6:], strict=True) if given(cell)}
        if not truth or not set(truth.values()) <= {"a", "b", "tie"}:
            raise BadRow("bad_truth", f"expected a, b or tie in {' or '.join(dimensions)}, found {shown(truth)}")
        reference = clip(cells[4], root) if given(cells[4]) else None
        texts = words(cells[0], "text") or "", clip(cells[1], root), clip(cells[2], root)
        return Gold(*texts, truth, words(cells[3]), reference, words(cells[5]), name, line)

    optional = ("lyrics", "reference_audio", "domain", *dimensions)
    yield from _rows(path, written, ("text", "audio_a", "audio_b"), optional, parse)


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
