"""Turn votes into comparisons in splits, and write the published tables of `human-preferences`."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from earmark.schemas.human_preferences import HumanPreferences
from earmark.schemas.vote_tables import CLIPS, COMPARISONS, RATINGS, VOTES
from earmark.tasks.human_preferences.sources import (
    RATINGS_READ,
    VOTES_READ,
    Exports,
    drops_bad,
    drops_ties,
    layout_of,
    root_of,
    split_rule,
)
from earmark.tasks.pipeline.grouping import group, share_out
from earmark.tasks.pipeline.media import MEASURED, clip_below, with_audio
from earmark.tasks.pipeline.references import measure_apart
from earmark.tasks.pipeline.step import Account, Done, step
from earmark.tasks.store.parquet import row_schema, tuples_of, write_rows
from earmark.tasks.store.sql import by_split, connect, create_table, query, view_parquet
from earmark.tasks.store.staging import Stage

MEDIA = row_schema(f"source string, file string, {MEASURED}")


@step("measure", label="")
def measure_clips(stage: Stage, config: HumanPreferences, exports: Exports) -> Done[Path]:
    """Hash and measure every named clip once (Parquet, `MEDIA`); none if audio is left alone."""
    here = {source.name for source in config.sources if source.clips == "here"}
    named: set[tuple[str, str]] = set()
    if config.audio != "none":
        for file, columns in ((exports.votes, ("audio_a", "audio_b", "reference")), (exports.ratings, ("file",))):
            for source, *files in tuples_of(pq.read_table(file, columns=["source", *columns]), "source", *columns):
                named |= {(source, one) for one in files if one and source in here}
    clips = sorted(named)
    roots = {source.name: root_of(config, source) for source in config.sources}
    paths = [clip_below(roots[source], file) for source, file in clips]
    measured = measure_apart(stage, config, "measure clips", paths)
    rows = [(*clip, *each) for clip, each in zip(clips, measured, strict=True)]
    path = stage.work / "media.parquet"
    write_rows(path, MEDIA, rows)
    return Done(path)


def write_clips(stage: Stage, connection: duckdb.DuckDBPyConnection, config: HumanPreferences) -> None:
    """Write the published table `clips`: all clips of kept votes and ratings."""
    licences = [(name, terms.licence) for name, terms in config.licences.items()]
    create_table(connection, "licences", "name string, licence string", licences)
    stage.write_splits(CLIPS, lambda split: _rows(connection, config, split))


def _rows(connection: duckdb.DuckDBPyConnection, config: HumanPreferences, split: str) -> Iterator[pa.Table]:
    folders = {source.name: root_of(config, source).folder for source in config.sources}
    for batch in connection.sql(query("human_preferences/clips"), params={"split": split}).to_arrow_reader():
        rows = pa.Table.from_batches([batch])
        if config.audio == "embed":
            measured = rows.filter(pc.is_valid(rows["clip_sha256"]))
            rows = rows.filter(pc.is_null(rows["clip_sha256"]))
            files = [folders[source] / file for source, file in tuples_of(measured, "source", "file")]
            yield from with_audio(measured, files)
        yield from with_audio(rows, None)


STRONGEST = ("test", "validation", "train")


@dataclass(frozen=True)
class SplitItem:
    """A comparison, or a rated clip."""

    ties: Sequence[Hashable]  # shared things: its prompt, its clips
    fixed: str | None  # the split named by its source; None if it is to be drawn
    cell: str | None  # cell for balancing the drawn splits; None for pieces not counted, such as rated clips
    draw: str  # its place in the drawing, by seeded hash
    size: int = 1  # its number of samples: its votes, or 1


def place(pieces: Sequence[SplitItem], wanted: Mapping[str, int]) -> tuple[list[str], dict[str, int]]:
    """Give each piece a split.

    Pieces sharing anything, directly or through others, form a group, and a group has one split: the strongest named by
    a source for one of its pieces (test, validation, train), else a drawn one. Groups are drawn in the order
    of their first piece's hash (the smallest hash would favour large groups), each taken if no cell exceeds its
    share, then groups fitting in the rest; the others are training data.

    Args:
        pieces: all of them.
        wanted: samples to draw into a split, in the order of drawing.

    Returns:
        The split of each piece, and the number of samples drawn into each.
    """
    groups = group([piece.ties for piece in pieces])
    split: dict[int, str] = {}
    free: dict[int, list[SplitItem]] = defaultdict(list)
    for piece, number in zip(pieces, groups, strict=True):
        if piece.fixed:
            split[number] = min(piece.fixed, split.get(number, "train"), key=STRONGEST.index)
        free[number].append(piece)
    order = sorted((number for number in free if number not in split), key=lambda number: free[number][0].draw)
    drawn = {}
    for name, count in wanted.items():
        chosen = _balanced([(number, _cells(free[number])) for number in order if number not in split], count)
        split.update(dict.fromkeys(chosen, name))
        drawn[name] = sum(_cells(free[number]).total() for number in chosen)
    return [split.get(number, "train") for number in groups], drawn


def _cells(pieces: Sequence[SplitItem]) -> Counter[str]:
    cells: Counter[str] = Counter()
    for piece in pieces:
        if piece.cell:
            cells[piece.cell] += piece.size
    return cells


def _balanced(groups: Sequence[tuple[int, Counter[str]]], count: int) -> list[int]:
    """Return groups with as many samples as wanted, spread evenly over the cells as far as possible."""
    available: Counter[str] = Counter()
    for _, cells in groups:
        available.update(cells)
    names = sorted(available)
    takes = share_out(count, {name: available[name] for name in names}, dict.fromkeys(names, 1.0))
    left = Counter(takes)
    chosen: dict[int, None] = {}
    for number, cells in groups:
        if cells and all(left[name] >= held for name, held in cells.items()):
            left.subtract(cells)
            chosen[number] = None
    room = count - sum(cells.total() for number, cells in groups if number in chosen)
    for number, cells in groups:  # the rest goes to groups overfilling a cell, since a group is not divided
        if number not in chosen and 0 < cells.total() <= room:
            chosen[number] = None
            room -= cells.total()
    return list(chosen)


FILTERS = ("tie", "both_bad", "generation_failed")


@step("comparisons", unit="comparisons", table=COMPARISONS.name, label="count votes")
def write_comparisons(stage: Stage, config: HumanPreferences, exports: Exports, media: Path) -> Done[None]:
    """Turn votes into comparisons, place these in splits, and write `clips`, `comparisons`, `votes` and `ratings`."""
    with connect(stage.work / "spill") as connection:
        open_votes(connection, config, exports, media)
        voted = _voted(connection)
        rated = [_rated(connection)] if any(layout_of(source).rated for source in config.sources) else []
        notes = split_comparisons(connection, config)
        write_clips(stage, connection, config)
        rows = {
            table.name: stage.write_splits(table, by_split(connection, query(f"human_preferences/{table.name}")))
            for table in (COMPARISONS, VOTES, RATINGS)
        }
        comparisons = _count(connection, "(SELECT DISTINCT comparison_id FROM cast_votes)")
    cast = Account(
        entered=voted.kept,
        kept=rows["votes"],
        name="cast",
        unit="votes",
        follows="votes",
        table=VOTES.name,
        notes=(f"{rows['votes']} votes on {rows['comparisons']} comparisons",),
    )
    return Done(None, voted, *rated, cast, Account(comparisons, rows["comparisons"], notes=notes))


def open_votes(connection: duckdb.DuckDBPyConnection, config: HumanPreferences, exports: Exports, media: Path) -> None:
    """Create views of the imports and the tables of counted rows."""
    view_parquet(connection, "votes", [exports.votes], VOTES_READ)
    view_parquet(connection, "ratings", [exports.ratings], RATINGS_READ)
    view_parquet(connection, "media", [media], MEDIA)
    sources = [(one.name, layout_of(one).task, split_rule(one), *one.scale) for one in config.sources]
    create_table(connection, "sources", "source string, task string, rule string, low float64, high float64", sources)
    connection.execute(query("text/plain_words"))
    connection.execute(query("human_preferences/known"))
    dropping = {
        name: [source.name for source in config.sources if drops(source)]
        for name, drops in (("drops_ties", drops_ties), ("drops_bad", drops_bad))
    }
    connection.execute(query("human_preferences/refuse_votes"), dropping)
    for name in ("cast_votes", "choices", "weighed", "rated"):
        connection.execute(query(f"human_preferences/{name}"))


def _voted(connection: duckdb.DuckDBPyConnection) -> Account:
    refused = connection.sql(
        """SELECT 'votes', vote_id, 'votes', reason, detail, source_file, line, made_from FROM refused_votes
           ORDER BY row"""
    ).to_arrow_table()
    kept = _count(connection, "cast_votes")
    filtered = Counter(reason for reason in refused.column(3).to_pylist() if reason in FILTERS)
    counts = ", ".join(f"{count} {reason}" for reason, count in sorted(filtered.items())) or "nothing"
    return _account(connection, "votes", "votes", refused, kept, f"filters left out: {counts}; {kept} votes stay")


def _rated(connection: duckdb.DuckDBPyConnection) -> Account:
    """Account for omitted ratings, with reasons; keep a row per clip in `rated`."""
    refused = connection.sql(
        """SELECT 'ratings', clip_id, 'ratings', reason, detail, source_file, line,
                  [{'kind': 'heard_clip', 'id': clip_id}]
           FROM rated WHERE reason IS NOT NULL ORDER BY row"""
    ).to_arrow_table()
    kept = _count(connection, "rated WHERE reason IS NULL")
    connection.execute("DELETE FROM rated WHERE reason IS NOT NULL OR NOT is_first")
    clips = _count(connection, "rated")
    note = f"averaged {kept:,} ratings into {clips:,} clips" if kept > clips else f"{kept} rated clips stay"
    return _account(connection, "ratings", "rated clips", refused, kept, note)


def _account(
    connection: duckdb.DuckDBPyConnection, name: str, unit: str, refused: pa.Table, kept: int, note: str
) -> Account:
    count = f"SELECT source, count(*) FROM {name} GROUP BY source ORDER BY ALL"
    sources = dict(connection.execute(count).fetchall())
    entered, follows = sum(sources.values()), f"import-{name}"
    return Account(entered, kept, refused, sources=sources, notes=(note,), name=name, unit=unit, follows=follows)


def split_comparisons(connection: duckdb.DuckDBPyConnection, config: HumanPreferences) -> list[str]:
    """Create `places` and `rated_places`: the split of each comparison and rated clip. Return notes for the reader."""
    rules = {source.name: split_rule(source) for source in config.sources}
    drawing = {"seed": config.seed, "unit": config.unit}
    table = connection.sql(query("human_preferences/pieces"), params=drawing).to_arrow_table()
    compared = [*tuples_of(table, "prompt_key", "sources", "native", "cell", "draw", "size")]
    prompts = {prompt for prompt, *_ in compared}
    kinds = {"id": "prompt_ids", "words": "words", "clip": "clips", "sound": "sounds"}
    kinds |= {"annotator": "annotators"} if "annotator" in config.split.apart else {}
    named = tuples_of(table, *kinds.values())
    held = [{kind: one or [] for kind, one in zip(kinds, row, strict=True)} for row in named]
    rated = connection.execute("SELECT row, source, clip_id, clip_sha256, prompt_key, split FROM rated ORDER BY row")
    clips = rated.fetchall()
    pieces = [_compared(rules, alike, *row) for row, alike in zip(compared, held, strict=True)]
    for _, source, clip, sound, prompt, native in clips:
        ties = [
            ("clip", clip),
            *([("sound", sound)] if sound else []),
            *([("prompt", prompt)] if prompt in prompts else []),
        ]
        fixed = {"native": native or "train", "draw": "train"}.get(rules[source], rules[source])
        pieces.append(SplitItem(ties, fixed, None, ""))
    wanted = {"test": config.split.test, "validation": config.split.validation}
    splits, drawn = place(pieces, wanted)
    names = [name for (name,) in tuples_of(table, "comparison_id")]
    places = list(zip(names, splits[: len(names)], strict=True))
    rated_places = [(row, split) for (row, *_), split in zip(clips, splits[len(names) :], strict=True)]
    create_table(connection, "places", "comparison_id string, split string", places)
    create_table(connection, "rated_places", "row int64, split string", rated_places)
    sizes: Counter[str] = Counter()
    for piece, split in zip(pieces, splits, strict=True):
        if piece.fixed is None:
            sizes[split] += piece.size
    free = sizes.total()
    moved = sum(piece.fixed not in (None, split) for piece, split in zip(pieces, splits, strict=True))
    notes = [
        f"{drawn[name]} of {count} {config.unit}s drawn into {name}: of {free} to draw from, the cells and what must "
        "stay together give no more"
        for name, count in wanted.items()
        if drawn[name] < count and free
    ]
    notes += [
        f"{pulled} {config.unit}s stand in {name} beside the {drawn[name]} drawn: "
        "they must stay with what a source put there"
        for name in wanted
        if (pulled := sizes[name] - drawn[name])
    ]
    if moved:
        notes.append(f"{moved} comparisons or clips left their source's split for one that holds their prompt or clip")
    return notes


def _compared(
    rules: dict[str, str], held: Mapping[str, Sequence[str | None]], prompt: str, sources: Sequence[str],
    native: Sequence[str] | None, cell: str, draw: str, size: int,
) -> SplitItem:  # fmt: skip
    ties = [("prompt", prompt), *((kind, one) for kind, every in held.items() for one in every if one is not None)]
    fixed: set[str] = set()
    for rule in map(rules.__getitem__, sources):
        fixed |= set(native or ["train"]) if rule == "native" else {rule} - {"draw"}
    split = min(fixed, key=STRONGEST.index) if fixed else None
    return SplitItem(ties, split, cell, draw, size)


def _count(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])
