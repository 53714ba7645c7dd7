"""Select and check the samples of an evaluation, with their clips."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from earmark.schemas.corpus import Corpus, names_clip
from earmark.schemas.errors import ConfigError, StoreError
from earmark.schemas.evaluations import Blind, Evaluation, Mode
from earmark.tasks.evaluation.kinds import MeasuredSample, clip_columns, find_kind
from earmark.tasks.exports.clips import ClipFile, clip_files
from earmark.tasks.exports.rows import opened
from earmark.tasks.store.sql import literal, query
from earmark.tasks.store.versions import Store, Version

HELD_OUT, EVERY = ("test", "ood"), "all"


class NoSamples(StoreError):
    """Error of an evaluation without samples in a version."""


@dataclass(frozen=True)
class SamplePart:
    """Selection of samples."""

    split: str | None = None  # only this split, or `all`; None for the held-out splits, if there are any
    language: str | None = None  # only rows of this language
    limit: int | None = None  # at most this many, but one triplet; by hash: larger ones include smaller


@dataclass(frozen=True)
class MeasurementOptions:
    """Options of a measurement."""

    evaluation: str | None = None  # its name; None for the corpus's only one
    mode: str | None = None  # its mode; None for the first one
    part: SamplePart = field(default_factory=SamplePart)
    both_orders: bool = False  # whether to ask preferences in both orders
    roots: tuple[Path, ...] = ()
    threshold: float | None = None  # least score of a yes, counted beside the rules about items
    tune_on: str | None = None  # the split to choose the best threshold on instead; it is not measured
    draws: int = 1  # draws per question
    blind: Blind | None = None  # part of a sample to withhold from a model, as a control

    def __post_init__(self) -> None:
        if self.threshold is not None and self.tune_on is not None:
            raise ConfigError("--threshold sets a threshold and --tune-on searches one: give only one of them")


@dataclass(frozen=True)
class Samples:
    """Selected rows in the connection's table `judged.samples`; `judged.everything` has all ids."""

    version: Version
    corpus: Corpus
    evaluation: Evaluation
    connection: duckdb.DuckDBPyConnection
    columns: tuple[str, ...]
    count: int
    folder: Path  # for files about the samples; deleted with them

    def batches(self, size: int, columns: Sequence[str]) -> Iterator[list[MeasuredSample]]:
        """Yield the rows in order of their ids."""
        named = ", ".join(f'"{name}"' for name in columns)
        reader = self.connection.cursor().sql(f"SELECT {named} FROM judged.samples ORDER BY id").to_arrow_reader(size)
        for batch in reader:
            yield batch.to_pylist()

    def sizes(self) -> dict[str, int]:
        """Return the number of options, or items, of each selected sample, by id; empty without such a column."""
        named = map(find_kind(self.evaluation.kind).parts, self.evaluation.modes)
        column = next((name for name in named if name in self.columns), None)
        if column is None:
            return {}
        return dict(self.connection.execute(f'SELECT id, len("{column}") FROM judged.samples').fetchall())

    def clips(self, columns: Sequence[str]) -> set[str]:
        """Return the clips in these columns, skipping missing columns and columns without clips."""
        named = [f'SELECT "{name}" AS clip FROM judged.samples' for name in columns if names_clip(name)
                 and name in self.columns]  # fmt: skip
        rows = self.connection.execute(" UNION ".join(["SELECT NULL::VARCHAR AS clip", *named])).fetchall()
        return {clip for (clip,) in rows if clip is not None}

    def files(self, columns: Sequence[str], store: Store, roots: Sequence[Path]) -> dict[str, ClipFile]:
        """Return the files of these columns' clips, by SHA-256."""
        return clip_files(self.clips(columns), self.version, store, self.folder / "clips", roots)


def find_evaluation(corpus: Corpus, name: str | None) -> Evaluation:
    """Return the evaluation of that name, or the only one.

    Raises:
        StoreError: there is none, or several and no name.
    """
    known = [evaluation.name for evaluation in corpus.evaluations]
    if not known:
        raise StoreError(f"{corpus.name} declares no evaluation: it is not made to test models with")
    found = [one for one in corpus.evaluations if one.name == name or (name is None and not one.beside)]
    if len(found) > 1:
        raise StoreError(f"{corpus.name} has several evaluations; say one with --evaluation: {', '.join(known)}")
    if not found:
        raise StoreError(f"{corpus.name} has no evaluation '{name}'; evaluations: {', '.join(known)}")
    return found[0]


def find_mode(evaluation: Evaluation, name: str | None) -> Mode:
    """Return the mode of that name, or the first one.

    Raises:
        StoreError: there is none.
    """
    found = [mode for mode in evaluation.modes if name in (None, mode.name)]
    if not evaluation.modes:
        raise StoreError(f"evaluation '{evaluation.name}' asks no model: give a file of scores with --scores")
    if not found:
        known = ", ".join(mode.name for mode in evaluation.modes)
        raise StoreError(f"evaluation '{evaluation.name}' has no mode '{name}'; modes: {known}")
    return found[0]


@contextmanager
def select_samples(version: Version, corpus: Corpus, evaluation: Evaluation, part: SamplePart) -> Iterator[Samples]:
    """Select the samples of an evaluation.

    Raises:
        NoSamples: the version has none.
        StoreError: no sample is left, or the query does not keep the contract of `schemas/evaluations.py`.
    """
    with (
        tempfile.TemporaryDirectory(prefix="earmark-") as temporary,
        opened(version, corpus, Path(temporary)) as connection,
    ):
        connection.execute("CREATE SCHEMA judged")  # apart from the versions' tables, which may have the same names
        connection.execute(f"CREATE VIEW judged.asked AS {_filled(query(evaluation.sql), evaluation)}")
        columns = {row[0]: row[1] for row in connection.execute("DESCRIBE judged.asked").fetchall()}
        _check_columns(evaluation, columns)
        connection.execute("CREATE TABLE judged.everything AS SELECT id, split, target FROM judged.asked")
        _check_rows(connection, evaluation)
        _choose(connection, evaluation, part, columns)
        count = connection.execute("SELECT count(*) FROM judged.samples").fetchall()[0][0]
        yield Samples(version, corpus, evaluation, connection, tuple(columns), count, Path(temporary))


def _filled(sql: str, evaluation: Evaluation) -> str:
    """Return the query with its parameters as literals: a view takes none."""
    for name in sorted(evaluation.params, key=len, reverse=True):
        value = evaluation.params[name]
        sql = sql.replace(f"${name}", literal(value) if isinstance(value, str) else repr(value))
    return sql


def _check_columns(evaluation: Evaluation, columns: dict[str, str]) -> None:
    where = f"evaluation '{evaluation.name}'"
    grouped = [name for group in evaluation.groups for name in group.split("+")]
    shown = [name for mode in evaluation.modes for name in mode.columns]
    triplets = [evaluation.triplets] if evaluation.triplets else []
    for name in ("id", "split", "target", *grouped, *shown, *clip_columns(evaluation), *triplets):
        if name not in columns:
            raise StoreError(f"{where}: expected a column '{name}', found {', '.join(columns)}")
    if columns["target"] not in (known := find_kind(evaluation.kind).targets):
        raise StoreError(f"{where}: expected target as {known[0]}, found {columns['target']}")


def _check_rows(connection: duckdb.DuckDBPyConnection, evaluation: Evaluation) -> None:
    where = f"evaluation '{evaluation.name}'"
    twice = connection.execute("SELECT id FROM judged.everything GROUP BY id HAVING count(*) > 1 LIMIT 1").fetchall()
    if twice:
        raise StoreError(f"{where}: expected one row an id, found '{twice[0][0]}' twice")
    sides = ", ".join(map(literal, (*evaluation.sides, "tie")))
    good = find_kind(evaluation.kind).truth.replace("$sides", sides)
    odd = connection.execute(
        f"SELECT id, target FROM judged.everything WHERE id IS NULL OR target IS NULL OR NOT ({good}) LIMIT 1"
    ).fetchall()
    if odd:
        raise StoreError(f"{where}: sample '{odd[0][0]}' has a target that is none: {odd[0][1]!r}")


def _choose(
    connection: duckdb.DuckDBPyConnection, evaluation: Evaluation, part: SamplePart, columns: dict[str, str]
) -> None:
    where = f"evaluation '{evaluation.name}'"
    if part.language is not None and "language" not in columns:
        raise StoreError(f"{where} has one language only: leave --language out")
    held = connection.execute("SELECT DISTINCT split FROM judged.everything ORDER BY 1").fetchall()
    if not held:
        raise NoSamples(
            f"{where} has no {'triplet' if evaluation.triplets else 'sample'} in this version: nothing to measure"
        )
    splits = _wanted(where, [row[0] for row in held], part.split)
    if part.language is not None:
        rows = connection.execute("SELECT DISTINCT language FROM judged.asked ORDER BY 1").fetchall()
        if part.language not in (known := [row[0] for row in rows]):
            raise StoreError(f"{where} has no sample in language '{part.language}'; found: {', '.join(known)}")
    kept = "language = $language" if part.language is not None else "$language IS NULL"
    order, limit = "md5(id), id", part.limit
    if whole := evaluation.triplets:  # a triplet short of a pair says nothing about cycles
        order = f'md5("{whole}"::VARCHAR), "{whole}", id'
        limit = None if limit is None else max(3, limit - limit % 3)
    connection.execute(
        f"CREATE TABLE judged.samples AS FROM judged.asked WHERE list_contains($splits, split) AND {kept} "
        f"ORDER BY {order} LIMIT $limit",
        {"splits": splits, "language": part.language, "limit": limit},
    )
    if connection.execute("SELECT count(*) FROM judged.samples").fetchall() == [(0,)]:
        raise NoSamples(f"{where} has no sample in this version: nothing to measure")


def _wanted(where: str, known: list[str], split: str | None) -> list[str]:
    if split in (None, EVERY):
        return [name for name in known if name in HELD_OUT and split is None] or known
    if split not in known:
        raise StoreError(f"{where} has no sample in split '{split}'; splits: {', '.join(known) or 'none'}")
    return [split]
