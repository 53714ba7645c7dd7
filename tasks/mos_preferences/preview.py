"""Show ratings to a person before pairs are made of them, in lines of 80 columns."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

import duckdb

from earmark.schemas.mos_preferences import PAIRS, RATINGS, MosPreferences
from earmark.schemas.rating_sources import Source
from earmark.schemas.tables import R
from earmark.schemas.unseen import printable
from earmark.tasks.store.sql import connect, query, rows_of, view_parquet
from earmark.tasks.store.staging import Stage

MOST_VALUES = 11  # distinct ratings counted singly; more are counted in ten ranges
FROM_RATINGS = 20  # fewest ratings for a warning about distinct values
BAR = 30  # columns of the longest bar
ROOM = 46  # characters of a name that are shown: its end, where it is longer


class SourceFacts(TypedDict):
    """A row of `shown_sources.sql`."""

    dataset: str
    ratings: int
    clips: int
    least: int  # ratings of a clip
    usual: float
    most: int
    listeners: int | None
    one_score_each: bool | None
    one_rating_each: bool | None
    scores: int  # distinct
    lowest: float
    highest: float
    means: bool
    systems: int


class ValueCount(TypedDict):
    """A row of `shown_spread.sql`."""

    dataset: str
    low: float
    high: float | None
    ratings: int


class Extreme(TypedDict):
    """A row of `shown_ends.sql`."""

    dataset: str
    kind: Literal["clip", "system"]
    end_: str
    name: str
    mos: float
    behind: int | None


class WorkedPair(TypedDict):
    """A row of `worked_pairs.sql`."""

    dataset: str
    chosen_file: str
    chosen_mos: float
    chosen_votes: int | None
    rejected_file: str
    rejected_mos: float
    rejected_votes: int | None


class NarrowTest(TypedDict):
    dataset: str
    test: str
    lowest: float
    highest: float


def rating_lines(stage: Stage, config: MosPreferences) -> list[str]:
    """Describe each source in lines: count, range and spread of ratings, best and worst, three pairs, warnings."""
    with connect(stage.work / "spill") as connection:
        _view(stage, connection)
        spread = _by_source(connection, ValueCount, "shown_spread", {"most": MOST_VALUES})
        ends = _by_source(connection, Extreme, "shown_ends")
        pairs = _by_source(connection, WorkedPair, "worked_pairs") if stage.files(PAIRS.name) else {}
        lines = []
        for name, (facts,) in _by_source(connection, SourceFacts, "shown_sources").items():
            source = next(one for one in config.sources if one.name == name)
            lines += [f"source {source.name}", *_summary(source, facts)]
            lines += [f"  {line}" for line in _bars(spread[source.name])]
            lines += [f"  {line}" for line in _ends(ends.get(source.name, []))]
            lines += [f"  {line}" for row in pairs.get(source.name, []) for line in in_words(row)]
            odd = [*warnings(source, facts), *_of_other_scales(connection, source)]
            lines += [f"  warning: {line}" for line in odd]
        return lines


def said_of(stage: Stage, config: MosPreferences) -> list[str]:
    """Describe each source in a line of a build's output, with a worked pair and its warnings."""
    with connect(stage.work / "spill") as connection:
        _view(stage, connection)
        pairs = _by_source(connection, WorkedPair, "worked_pairs")
        lines = []
        sources: Mapping[str, list[SourceFacts]] = _by_source(connection, SourceFacts, "shown_sources")
        for name, (facts,) in sources.items():
            source = next(one for one in config.sources if one.name == name)
            of = f"{facts['ratings']:,} ratings of {facts['clips']:,} clips, from {facts['lowest']:g} to"
            lines.append(f"{source.name}: {of} {facts['highest']:g}")
            lines += [line for row in pairs.get(source.name, [])[:1] for line in in_words(row)]
            odd = [*warnings(source, facts), *_of_other_scales(connection, source)]
            lines += [f"warning: {line}" for line in odd]
        return lines


def warnings(source: Source, facts: SourceFacts) -> list[str]:
    """Warn of ids, ages or row numbers in place of ratings, listeners or systems."""
    found: list[str] = []
    columns = source.columns
    if columns is None or facts["ratings"] < FROM_RATINGS:
        return found
    named = columns.mos if isinstance(columns.mos, str) else ", ".join(columns.mos)
    if facts["scores"] == facts["ratings"] and not facts["means"]:
        found.append(f"all values of {named} are distinct, as ids and predictions are")
    if facts["one_score_each"]:
        found.append(f"{named} is the same in all rows of a listener, as an age is")
    if facts["one_rating_each"]:
        found.append(f"each row of {columns.listener} names another listener, as a row number does")
    if facts["systems"] == facts["clips"]:
        found.append(f"each clip has a {columns.system or 'system'} of its own, as a file's id is")
    return found


def _of_other_scales(connection: duckdb.DuckDBPyConnection, source: Source) -> list[str]:
    """Report listening tests with ratings unlike the scale configured for all."""
    if isinstance(source.scale, dict):
        return []
    tests: Mapping[str, list[NarrowTest]] = _by_source(connection, NarrowTest, "shown_tests")
    return [
        f"test {_end(row['test'])} has ratings from {row['lowest']:g} to {row['highest']:g}, another a far wider "
        "range: scale can name one for each test"
        for row in tests.get(source.name, [])
    ]


def in_words(pair: WorkedPair) -> list[str]:
    """Describe a pair in a sentence, a line for each clip."""
    chosen = pair["chosen_file"], pair["chosen_mos"], pair["chosen_votes"]
    sides = []
    for file, mos, votes in (chosen, (pair["rejected_file"], pair["rejected_mos"], pair["rejected_votes"])):
        of = "" if votes is None else f", {votes} rating{'' if votes == 1 else 's'}"
        sides.append(f"{_end(file)} ({mos:.2f}{of})")
    line = " is better than ".join(sides)
    return [line] if len(line) <= 78 else [f"{sides[0]} is better", f"  than {sides[1]}"]


def _view(stage: Stage, connection: duckdb.DuckDBPyConnection) -> None:
    view_parquet(connection, "imported", sorted((stage.work / "imported").glob("*.parquet")))
    view_parquet(connection, "placed", [stage.work / "placed.parquet"])
    for table in (RATINGS, PAIRS):
        view_parquet(connection, table.name, stage.files(table.name), table.schema)


def _by_source(
    connection: duckdb.DuckDBPyConnection, row: type[R], name: str, values: Mapping[str, Any] | None = None
) -> dict[str, list[R]]:
    grouped: dict[str, list[R]] = {}
    found: Sequence[Any] = rows_of(connection, row, query(f"mos_preferences/{name}"), values)
    for one in found:
        grouped.setdefault(one["dataset"], []).append(one)
    return grouped


def _summary(source: Source, facts: SourceFacts) -> list[str]:
    one, many = facts["least"], facts["most"]
    each = f"{one}" if one == many else f"{one} to {many}, half {facts['usual']:g} or fewer"
    by = f" by {facts['listeners']:,} listeners" if facts["listeners"] else ""
    named = ((f"{test}: " if test else "", ends) for test, ends in source.scales().items())
    scales = ", ".join(f"{test}{low:g} to {high:g}" for test, (low, high) in named)
    turned = "; best = low: turned, so that high is good" if source.best == "low" else ""
    return [
        f"  {facts['ratings']:,} ratings of {facts['clips']:,} clips{by}; a clip: {each}",
        f"  from {facts['lowest']:g} to {facts['highest']:g}; scale {scales}{turned}",
    ]


def _bars(rows: list[ValueCount]) -> list[str]:
    most = max(row["ratings"] for row in rows)
    names = [f"{row['low']:.4g}" + ("" if row["high"] is None else f" to {row['high']:.4g}") for row in rows]
    wide, right = max(map(len, names)), len(f"{most:,}")
    return [
        f"{name:>{wide}}  {row['ratings']:>{right},}  {'#' * round(BAR * row['ratings'] / most)}".rstrip()
        for name, row in zip(names, rows, strict=True)
    ]


def _ends(rows: list[Extreme]) -> list[str]:
    units = {"clip": "rating", "system": "clip"}
    lines = []
    for row in rows:
        behind, unit = row["behind"], units[row["kind"]]
        count = "" if behind is None else f" ({behind:,} {unit}{'' if behind == 1 else 's'})"
        lines.append(f"{row['end_']:<5} {row['kind']:<6}  {row['mos']:.2f}  {_end(row['name'])}{count}")
    return lines


def _end(name: str) -> str:
    """Return a name, or its end: file names differ there."""
    plain = printable(name)
    return plain if len(plain) <= ROOM else f"…{plain[1 - ROOM :]}"
