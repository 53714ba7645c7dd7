"""Read a reward model's file of scores per clip, or per clip and dimension, for many evaluations."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from earmark.schemas.errors import InputError
from earmark.schemas.evaluations import Evaluation
from earmark.tasks.evaluation.asking import Prediction
from earmark.tasks.evaluation.reachable import Reachable, reachable
from earmark.tasks.evaluation.samples import Samples
from earmark.tasks.evaluation.scores import empty, number, preferred, read_table

ANY = "score"
BESIDE = ("file", "clip_sha256")  # columns of a template beside the clip's id
_WAYS = ("id", "clip_sha256", "file")


class ClipScores(NamedTuple):
    """Rows of the file: names of clips, and scores by column (empty cells as None)."""

    path: Path
    names: Sequence[str]
    scores: Mapping[str, Sequence[float | None]]


def read_clip_scores(path: Path, dimensions: Collection[str]) -> ClipScores:
    """Read the file.

    Args:
        path: CSV, JSON lines or Parquet with `clip`, and `score` or one column per dimension.
        dimensions: all dimensions of the corpus; unmeasured ones are ignored.

    Raises:
        InputError: the file cannot be read, has other columns, or holds a value other than a number.
    """
    table = read_table(path)
    columns = [name for name in table.column_names if name not in ("clip", *BESIDE)]
    odd = [name for name in columns if name != ANY and name not in dimensions]
    if "clip" not in table.column_names or odd or not columns:
        known = ", ".join(sorted(dimensions))
        raise InputError(
            f"{path}: expected the columns clip and score, or clip and some of {known}; found "
            f"{', '.join(table.column_names)}"
        )
    names = ["" if name is None else str(name) for name in table["clip"].to_pylist()]
    scores = {
        column: [
            None if cell is None or cell == "" else number(f"{path}, row {place}", column, cell)
            for place, cell in enumerate(table[column].to_pylist(), 1)
        ]
        for column in columns
    }
    return ClipScores(path, names, scores)


def _clip_rows(scores: ClipScores, clips: Mapping[str, Mapping[str, Any]], table: str, key: str) -> dict[str, int]:
    """Return the file's row of each clip of the version, found by id, by SHA-256, or by published file name.

    Args:
        clips: the clips of the table, by id from the column `key`.

    Raises:
        InputError: the file names an unknown clip, a clip twice, or a file of several different clips.
    """
    ways: dict[str, dict[str, list[str]]] = {way: {} for way in _WAYS}
    for clip in clips.values():
        for way in _WAYS:
            if clip[way] is not None:
                ways[way].setdefault(clip[way], []).append(clip["id"])
    found: dict[str, int] = {}
    for place, name in enumerate(scores.names):
        where = f"{scores.path}, row {place + 1}"
        named = next((ways[way][name] for way in _WAYS if name in ways[way]), None)
        if named is None:
            raise InputError(
                f"{where}: unknown clip '{name[:80]}': expected {key} of the table {table}, a SHA-256 or a file name "
                "as published"
            )
        if len({clips[one]["clip_sha256"] or one for one in named}) > 1:
            raise InputError(f"{where}: the file '{name[:80]}' names {len(named)} clips: name them by their ids")
        for one in named:
            if one in found:
                raise InputError(f"{where}: clip '{name[:80]}' stands there twice, first in row {found[one] + 1}")
            found[one] = place
    return found


def clip_predictions(scores: ClipScores, samples: Samples) -> tuple[dict[str, Prediction], Reachable | None] | None:
    """Predict an evaluation's samples from the file, and bound the preferences that any clip scores could meet.

    Returns:
        None if the file has none of the evaluation's clips, or not its dimension.

    Raises:
        InputError: as `_clip_rows`; or clips of the evaluation are missing.
    """
    evaluation = samples.evaluation
    column = next((name for name in (evaluation.dimension, ANY) if name in scores.scores), None)
    if column is None or evaluation.clips is None:
        return None
    table, key = evaluation.clips
    relation = samples.connection.cursor().sql(f'SELECT "{key}" AS id, clip_sha256, file FROM "{table}"')
    clips = {row["id"]: row for row in relation.to_arrow_table().to_pylist()}
    places = _clip_rows(scores, clips, table, key)
    names = evaluation.clip_columns
    rows = [row for batch in samples.batches(10_000, ["id", "target", *names]) for row in batch]
    wanted = {row[name] for row in rows for name in names}
    missing = sorted(wanted - places.keys())
    if len(missing) == len(wanted):
        return None
    if missing:
        raise InputError(
            f"{scores.path}: {len(missing):,} of {len(wanted):,} clips of '{evaluation.name}' are missing, the first "
            f"is '{missing[0]}'; give a clip without a score a row with an empty cell"
        )
    found = {}
    for row in rows:
        values = [scores.scores[column][places[row[name]]] for name in names]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            found[row["id"]] = empty(row["id"])
        elif evaluation.kind == "scalar":
            found[row["id"]] = Prediction(row["id"], score=known[0])
        else:
            found[row["id"]] = preferred(row["id"], known[0] - known[1], evaluation)
    if evaluation.kind == "scalar":
        return found, None
    content = {name: clip["clip_sha256"] or name for name, clip in clips.items()}
    return found, reachable(_vote(row, evaluation, content) for row in rows)


def _vote(row: Mapping[str, Any], evaluation: Evaluation, content: Mapping[str, str]) -> tuple[str, str, bool]:
    first, second = (content[row[name]] for name in evaluation.clip_columns)
    if row["target"] == evaluation.sides[1]:
        return second, first, False
    if row["target"] == "tie":
        return min(first, second), max(first, second), True
    return first, second, False
