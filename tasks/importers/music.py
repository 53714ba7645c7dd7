"""Read tables of prompts and of music generated from them, as CSV, TSV, JSON lines or Parquet.

Readers take a file and its path as the config writes it, for rejects. They raise `InputError` if the
file or a required column is missing, or the content contradicts the file's ending.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from earmark.schemas.errors import ConfigError, InputError
from earmark.schemas.places import clips_folder, without_place
from earmark.schemas.reasons import Note, Reject, shown
from earmark.tasks.importers.cells import BadRow, clip, given, identifier
from earmark.tasks.importers.lists import Cells, by_its_header, names_columns, parsed
from earmark.tasks.importers.table import read_table, table_file

LONGEST_TEXT = 20_000
_NO_VALUE = frozenset({"nan", "null", "<na>"})  # written by programs for no text
_ABSENT = _NO_VALUE | {"na", "n/a", "none"}  # of required text alone: lyrics "none" are of an instrumental
CONDITIONS = ("text", "lyrics", "reference", "caption")
MADE = frozenset({"", "succeeded", "success", "successful", "ok", "completed", "complete", "done", "finished"})


class MusicPrompt(NamedTuple):
    """A request for music."""

    prompt_id: str
    text: str
    lyrics: str | None
    reference_audio: str | None  # path below the table's folder
    source_file: str
    line: int
    reference_caption: str | None = None  # its content in words


class ListedGeneration(NamedTuple):
    """A model's output for a prompt."""

    generation_id: str
    prompt_id: str
    model: str
    audio: str  # path below the table's folder
    source_file: str
    line: int
    conditioned_on: str | None = None  # the model's inputs, of `CONDITIONS`; None: all inputs of the prompt


class Gold(NamedTuple):
    """Two clips with a known preference."""

    text: str
    audio_a: str  # path below the table's folder
    audio_b: str
    truth: Mapping[str, str]  # a, b or tie, by dimension
    lyrics: str | None
    reference_audio: str | None
    domain: str | None
    source_file: str
    line: int


Made = TypeVar("Made", MusicPrompt, ListedGeneration, Gold)


def read_prompts(
    path: Path, written: str, columns: Mapping[str, str] | None = None
) -> Iterator[MusicPrompt | Reject | Note]:
    """Read prompts from a table with the columns `prompt_id`, `text`, and if present `lyrics`, `reference_audio` and
    `reference_caption`; `columns` maps these to other names."""

    def parse(cells: Cells, line: int, name: str, root: str) -> MusicPrompt:
        reference = clip(cells[3], root) if given(cells[3]) else None
        prompt_id = identifier(cells[0], "prompt")
        spoken = words(cells[4])
        return MusicPrompt(prompt_id, words(cells[1], "text") or "", words(cells[2]), reference, name, line, spoken)

    optional = ("lyrics", "reference_audio", "reference_caption")
    yield from _rows(path, written, ("prompt_id", "text"), optional, parse, columns)


def read_generations(
    path: Path, written: str, columns: Mapping[str, str] | None = None
) -> Iterator[ListedGeneration | Reject | Note]:
    """Read generations from files matching a pattern such as `{model}/{prompt_id}.wav`, or from a table with the
    columns `generation_id`, `prompt_id`, `model`, `audio`, and if present `status` and `conditioned_on`: the model's
    inputs of its prompt, words of `CONDITIONS` in a list or joined by +. `columns` maps these to other names.

    A generation with an unsuccessful status, or without audio, is a reject.
    """

    def parse(cells: Cells, line: int, name: str, root: str) -> ListedGeneration:
        generation, prompt, model = (identifier(cells[i], w) for i, w in enumerate(("generation", "prompt", "model")))
        status = str(cells[4] or "").strip().lower()
        if status not in MADE:
            raise BadRow("generation_failed", f"expected a generation that succeeded, found status '{shown(status)}'")
        audio = clip(cells[3], root)
        if names_columns(generation, audio):
            raise BadRow("bad_line", f"expected a generation, found the names of columns ('{generation}', '{audio}')")
        return ListedGeneration(generation, prompt, model, audio, name, line, conditions(cells[5]))

    if "{" in written:
        yield from _files(path, without_place(written))
        return
    optional = ("status", "conditioned_on")
    yield from _rows(path, written, ("generation_id", "prompt_id", "model", "audio"), optional, parse, columns)


def _files(path: Path, name: str) -> Iterator[ListedGeneration | Reject | Note]:
    """Yield a generation for each file matching a pattern, sorted by name; use its path as id."""
    root = clips_folder(path)
    pattern = path.relative_to(root).as_posix()
    parts = re.split(r"\{(\w+)\}", pattern)
    fields = parts[1::2]
    if not {"model", "prompt_id"} <= {*fields} or len({*fields}) < len(fields):
        raise InputError(
            f"generations: expected {{model}} and {{prompt_id}} once in a pattern of files, found '{name}'"
        )
    expression = re.compile(
        "".join(f"(?P<{part}>[^/]+)" if at % 2 else re.escape(part) for at, part in enumerate(parts))
    )
    places = root.glob("/".join("*" * (pattern.count("/") + 1))) if root.is_dir() else ()
    names = sorted(place.relative_to(root).as_posix() for place in places if place.is_file())
    fits = [match for match in map(expression.fullmatch, names) if match]
    if not fits:
        raise InputError(f"generations: no file fits '{name}'")

    def parse(cells: Cells, line: int) -> ListedGeneration:
        generation, prompt, model = (identifier(cells[i], w) for i, w in enumerate(("file", "prompt", "model")))
        return ListedGeneration(generation, prompt, model, cells[0], name, line)

    rows = ((line, (match[0], match["prompt_id"], match["model"])) for line, match in enumerate(fits, 1))
    yield from parsed(name, rows, parse)


def conditions(cell: Any) -> str | None:
    """Return a model's inputs in the order of `CONDITIONS`, joined by +; None for an empty cell."""
    if not given(cell):
        return None
    parts = [str(part) for part in cell] if isinstance(cell, list | tuple) else str(cell).split("+")
    named = {part.strip().lower() for part in parts}
    if odd := sorted(named - {*CONDITIONS}):
        raise BadRow("bad_value", f"expected {', '.join(CONDITIONS)}, found '{shown(odd[0])}'")
    return "+".join(name for name in CONDITIONS if name in named)


def read_gold(path: Path, written: str, dimensions: Sequence[str]) -> Iterator[Gold | Reject | Note]:
    """Read a table with the columns `text`, `audio_a`, `audio_b`, a column for each dimension with known truth (a, b or
    tie; else empty), and if present `lyrics`, `reference_audio` and `domain`.

    Args:
        dimensions: possible columns of truth; a row must fill at least one.
    """

    def parse(cells: Cells, line: int, name: str, root: str) -> Gold:
        truth = {of: str(cell).strip().lower() for of, cell in zip(dimensions, cells[6:], strict=True) if given(cell)}
        if not truth or not set(truth.values()) <= {"a", "b", "tie"}:
            raise BadRow("bad_value", f"expected a, b or tie in {' or '.join(dimensions)}, found {shown(truth)}")
        reference = clip(cells[4], root) if given(cells[4]) else None
        texts = words(cells[0], "text") or "", clip(cells[1], root), clip(cells[2], root)
        return Gold(*texts, truth, words(cells[3]), reference, words(cells[5]), name, line)

    optional = ("lyrics", "reference_audio", "domain", *dimensions)
    yield from _rows(path, written, ("text", "audio_a", "audio_b"), optional, parse)


def read_ranks(path: Path) -> Mapping[str, Mapping[str, float]]:
    """Read ranks of models by dimension, 1 the best, from `{"ranks": {dimension: {model: rank}}}`."""
    try:
        ranks: Mapping[str, Mapping[str, float]] = json.loads(path.read_text("utf-8"))["ranks"]
        if not all(isinstance(rank, int | float) for known in dict(ranks).values() for rank in dict(known).values()):
            raise TypeError("a rank that is no number")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"known_order: expected JSON with 'ranks' in {path.name}, found: {error}") from None
    return ranks


def words(cell: Any, wanted: str | None = None) -> str | None:
    """Return free text of at most 20,000 characters, or None if empty; `wanted` names required text."""
    text = cell.strip() if isinstance(cell, str) else "" if cell is None else cell
    if not isinstance(text, str):
        raise BadRow("bad_value", f"expected {wanted or 'text'} in words, found {shown(cell)}")
    try:
        text.encode()
    except UnicodeEncodeError:  # JSON can write half of a pair of surrogates, invalid in any column
        raise BadRow("bad_value", f"expected {wanted or 'text'} in Unicode, found '{shown(text)}'") from None
    if len(text) > LONGEST_TEXT:
        raise BadRow(
            "bad_value", f"expected {wanted or 'text'} of at most {LONGEST_TEXT} characters, found {len(text)}"
        )
    if text.lower() in (_ABSENT if wanted else _NO_VALUE):
        text = ""
    if wanted and not text:
        raise BadRow("missing_value", f"expected {wanted}, found an empty cell")
    return text or None


def _rows(
    path: Path,
    written: str,
    wanted: tuple[str, ...],
    optional: tuple[str, ...],
    parse: Callable[[Cells, int, str, str], Made],
    columns: Mapping[str, str] | None = None,
) -> Iterator[Made | Reject | Note]:
    file = by_its_header(table_file(path, written))
    called: Mapping[str, str] = columns or {}
    needed = tuple(called.get(name, name) for name in (*wanted, *(one for one in optional if one in called)))
    others: tuple[str, ...] = tuple(name for name in optional if name not in called)
    names = (*wanted, *(one for one in optional if one in called), *others)
    order = [names.index(name) for name in (*wanted, *optional)]
    rows = (
        (line, cells if isinstance(cells, Reject | Note) else [cells[at] for at in order])
        for line, cells in read_table(file, needed, others)
    )
    return parsed(file.name, rows, lambda cells, line: parse(cells, line, file.name, str(path.parent)))
