"""Read a reward model's file of scores per clip, or per clip and dimension, for many evaluations."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from earmark.schemas.errors import InputError
from earmark.schemas.evaluations import Evaluation
from earmark.tasks.evaluation.kinds import MeasuredSample, Prediction, clip_columns, empty, number, preferred, values_of
from earmark.tasks.evaluation.samples import Samples
from earmark.tasks.evaluation.scores import NotCovered, read_table

ANY = "score"
OVERALL = "overall"
BESIDE = ("file", "clip_sha256")  # columns of a template beside the clip's id
_WAYS: tuple[Literal["id", "clip_sha256", "file"], ...] = ("id", "clip_sha256", "file")
RESULTS = {"musicality": "predicted_musicality", "alignment": "predicted_text-music alignment"}
"""Columns of `results.jsonl`, as CMI-RewardBench's script writes it, by dimension."""
SIDES = {"audio-path": "", "audio2": "_b"}
"""Columns of its clips, and the endings of their scores' columns."""


class ListedClip(TypedDict):
    """A clip of the version, named in three ways."""

    id: str
    clip_sha256: str | None
    file: str | None


@dataclass(frozen=True)
class Reachable:
    """Number of preferences that can be met; `exact`, or else an upper bound."""

    met: int
    exact: bool


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


def _clip_rows(scores: ClipScores, clips: Mapping[str, ListedClip], table: str, key: str) -> dict[str, int]:
    """Return the file's row of each clip of the version, found by id, by SHA-256, or by published file name.

    Args:
        clips: the clips of the table, by id from the column `key`.
    """
    ways: dict[str, dict[str, list[str]]] = {way: {} for way in _WAYS}
    for clip in clips.values():
        for way in _WAYS:
            if (one := clip[way]) is not None:
                ways[way].setdefault(one, []).append(clip["id"])
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


def clip_predictions(scores: ClipScores, samples: Samples, overall: Sequence[str] = ()) -> dict[str, Prediction]:
    """Predict an evaluation's samples from the file.

    Args:
        overall: columns whose sum stands for the dimension `overall`; by default the column of that name.
    """
    evaluation = samples.evaluation
    assert evaluation.clips is not None
    clips, names = _clips(samples), clip_columns(evaluation)
    rows = [row for batch in samples.batches(10_000, ["id", *names]) for row in batch]
    wanted = {one for row in rows for one in values_of(row, names)}
    columns = columns_for(evaluation, scores.scores, overall)
    if columns is None:
        there = {clips[one][way] for one in wanted for way in _WAYS} & {*scores.names}
        wished = " and ".join(_wished(evaluation, overall))
        held = f"no column {wished}, and no column {ANY}" if there else "none of its clips"
        raise NotCovered(f"{evaluation.name}, for which {scores.path} has {held}")
    places = _clip_rows(scores, clips, *evaluation.clips)
    missing = sorted(wanted - places.keys())
    if len(missing) == len(wanted):
        raise NotCovered(f"{evaluation.name}, for which {scores.path} has none of its clips")
    if missing:
        raise InputError(
            f"{scores.path}: {len(missing):,} of {len(wanted):,} clips of '{evaluation.name}' are missing, the first "
            f"is '{missing[0]}'; give a clip without a score a row with an empty cell"
        )
    found = {}
    for row in rows:
        cells = [[scores.scores[column][places[one]] for column in columns] for one in values_of(row, names)]
        known = [sum(cell for cell in held if cell is not None) for held in cells if None not in held]
        found[row["id"]] = predicted(row["id"], known, evaluation) if len(known) == len(cells) else empty(row["id"])
    return found


def clip_reader(
    path: Path, dimensions: Collection[str]
) -> Callable[[Samples, Sequence[str]], dict[str, Prediction]] | None:
    """Return a function from samples and the columns of `overall` to predictions by a file of clip scores.

    Return None for a file of another form.
    """
    columns = {*read_table(path).column_names}
    if {*RESULTS.values()} & columns and "audio-path" in columns:
        return partial(_result_predictions, path, _results(path))
    if {"clip", "id"} & columns == {"clip"}:
        return partial(clip_predictions, read_clip_scores(path, dimensions))
    return None


Results = Mapping[tuple[str, ...], Mapping[str, tuple[float | None, ...]]]


def _results(path: Path) -> Results:
    """Read the scores of each line's clips, by their files and by dimension."""
    found: dict[tuple[str, ...], dict[str, tuple[float | None, ...]]] = {}
    for place, row in enumerate(read_table(path).to_pylist(), 1):
        sides = [(row[name], end) for name, end in SIDES.items() if row.get(name)]
        scores = {
            dimension: tuple(_cell(f"{path}, row {place}", f"{column}{end}", row) for _, end in sides)
            for dimension, column in RESULTS.items()
        }
        clips = tuple(name for name, _ in sides)
        if found.setdefault(clips, scores) != scores:
            raise InputError(f"{path}, row {place}: {' and '.join(clips)} have other scores in an earlier row")
    return found


def _cell(where: str, column: str, row: Mapping[str, Any]) -> float | None:
    value = row.get(column)
    return None if value is None or value == "" else number(where, column, value)


def _result_predictions(
    path: Path, results: Results, samples: Samples, overall: Sequence[str] = ()
) -> dict[str, Prediction]:
    """Predict samples by the line of their clips; `overall` is musicality by default, as in the released script."""
    evaluation, clips = samples.evaluation, _clips(samples)
    columns = columns_for(evaluation, RESULTS, overall or ("musicality",))
    rows = [row for batch in samples.batches(10_000, ["id", *clip_columns(evaluation)]) for row in batch]
    found = {}
    for row in rows if columns else ():
        files = tuple(str(clips[one]["file"]) for one in values_of(row, clip_columns(evaluation)))
        for names, step in ((files, 1), (files[::-1], -1)):
            if names in results:
                held = [results[names][column][::step] for column in columns or ()]
                sums = [sum(cells) for cells in zip(*held, strict=True) if None not in cells]
                whole = len(sums) == len(files)
                found[row["id"]] = predicted(row["id"], sums, evaluation) if whole else empty(row["id"])
    if not found:
        raise NotCovered(f"{evaluation.name}, for which {path} has no scores of its clips")
    if missing := sorted({row["id"] for row in rows} - found.keys()):
        raise InputError(
            f"{path}: {len(missing):,} of {len(rows):,} samples of '{evaluation.name}' have no line with their clips, "
            f"the first is '{missing[0]}'"
        )
    return found


def predicted(name: str, scores: Sequence[float], evaluation: Evaluation) -> Prediction:
    """Return a sample's prediction from the score of its clip, or of its two clips."""
    if len(scores) == 1:
        return Prediction(name, score=scores[0])
    return preferred(name, scores[0] - scores[1], evaluation)


def columns_for(evaluation: Evaluation, given: Collection[str], overall: Sequence[str]) -> tuple[str, ...] | None:
    """Return the scores of a clip that stand for an evaluation's dimension, to be added up; None if there are none."""
    return next((held for held in (_wished(evaluation, overall), (ANY,)) if {*held} <= {*given}), None)


def _wished(evaluation: Evaluation, overall: Sequence[str]) -> tuple[str, ...]:
    return tuple(overall) if overall and evaluation.dimension == OVERALL else (evaluation.dimension,)


def most_met(samples: Samples) -> Reachable:
    """Bound the number of an evaluation's preferences that any clip scores could meet."""
    evaluation = samples.evaluation
    content = {name: clip["clip_sha256"] or name for name, clip in _clips(samples).items()}
    columns = ["id", "target", *clip_columns(evaluation)]
    return reachable(_vote(row, evaluation, content) for batch in samples.batches(10_000, columns) for row in batch)


def _clips(samples: Samples) -> dict[str, ListedClip]:
    assert samples.evaluation.clips is not None
    table, key = samples.evaluation.clips
    relation = samples.connection.cursor().sql(f'SELECT "{key}" AS id, clip_sha256, file FROM "{table}"')
    rows: list[ListedClip] = relation.to_arrow_table().to_pylist()
    return {row["id"]: row for row in rows}


def _vote(row: MeasuredSample, evaluation: Evaluation, content: Mapping[str, str]) -> tuple[str, str, bool]:
    first, second = map(content.__getitem__, values_of(row, clip_columns(evaluation)))
    if row["target"] == evaluation.sides[1]:
        return second, first, False
    if row["target"] == "tie":
        return min(first, second), max(first, second), True
    return first, second, False


PATIENCE_S = 10.0  # time limit per knot of preferences; then the bound reached so far is reported


def reachable(preferences: Iterable[tuple[str, str, bool]]) -> Reachable:
    """Return the most preferences that any scores of the clips meet, where equal scores mean a tie.

    Two clips are in a knot if each is preferred, over some steps, to the other, ties counting both ways. Outside of
    knots all preferences can be met at once; a knot is a mixed-integer programme: `score[better] - score[worse] >= 1`
    for met preferences, and equal scores for met ties.

    Args:
        preferences: the better clip, the worse, and whether it is a tie instead.
    """
    votes = Counter(preferences)
    names = {name: place for place, name in enumerate(sorted({one for vote in votes for one in vote[:2]}))}
    edges = [(names[better], names[worse], tie, count) for (better, worse, tie), count in votes.items()]
    links = [(a, b) for a, b, _, _ in edges] + [(b, a) for a, b, tie, _ in edges if tie]
    if not links:
        return Reachable(0, True)
    graph = coo_array((np.ones(len(links)), np.array(links).T), shape=(len(names), len(names)))
    _, knot_of = connected_components(graph.tocsr(), directed=True, connection="strong")
    knots: dict[int, list[tuple[int, int, bool, int]]] = {}
    met, exact = 0, True
    for edge in edges:
        a, b, tie, count = edge
        if a == b:
            met += count * tie
        elif knot_of[a] == knot_of[b]:
            knots.setdefault(int(knot_of[a]), []).append(edge)
        else:
            met += count
    for knot in knots.values():
        most, sure = _most(knot)
        met, exact = met + most, exact and sure
    return Reachable(met, exact)


def _most(edges: Sequence[tuple[int, int, bool, int]]) -> tuple[int, bool]:
    """Return the most votes of a knot that scores meet, and whether the number is exact."""
    if all(tie for *_, tie, _ in edges):
        return sum(count for *_, count in edges), True
    places = {name: place for place, name in enumerate(sorted({one for edge in edges for one in edge[:2]}))}
    clips, span = len(places), float(len(places))
    rows: list[tuple[int, int, float]] = []
    least: list[float] = []

    def require(higher: int, lower: int, number: int, gap: float) -> None:
        """Require `score[higher] - score[lower] >= gap` if the vote of this number is met."""
        line = len(least)
        rows.extend([(line, higher, 1.0), (line, lower, -1.0), (line, clips + number, -(gap + span))])
        least.append(-span)

    for met, (better, worse, tie, _) in enumerate(edges):
        require(places[better], places[worse], met, 0.0 if tie else 1.0)
        if tie:
            require(places[worse], places[better], met, 0.0)
    lines, columns, values = zip(*rows, strict=True)
    size = clips + len(edges)
    found = milp(
        c=np.concatenate([np.zeros(clips), [-count for *_, count in edges]]),
        integrality=np.concatenate([np.zeros(clips), np.ones(len(edges))]),
        bounds=Bounds(np.zeros(size), np.concatenate([np.full(clips, span - 1), np.ones(len(edges))])),
        constraints=LinearConstraint(coo_array((values, (lines, columns)), shape=(len(least), size)).tocsr(), lb=least),
        options={"time_limit": PATIENCE_S, "mip_rel_gap": 0.0},
    )
    bound = found.mip_dual_bound if found.mip_dual_bound is not None else -sum(count for *_, count in edges)
    return int(np.floor(-bound + 1e-6)), found.status == 0
