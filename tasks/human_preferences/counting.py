"""`human-preferences`: votes become comparisons in splits, and the published tables."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa

from earmark.schemas.human_preferences import HumanPreferences
from earmark.schemas.tables import SPLITS, Table
from earmark.schemas.vote_tables import COMPARISONS, RATINGS, VOTES
from earmark.tasks.build.step import Account, Done, step
from earmark.tasks.human_preferences.clips import MEDIA, write_clips
from earmark.tasks.human_preferences.sources import (
    RATINGS_READ,
    VOTES_READ,
    Exports,
    drops_bad,
    drops_ties,
    layout_of,
    split_rule,
)
from earmark.tasks.human_preferences.splitting import STRONGEST, Piece, place
from earmark.tasks.store.sql import connect, query, view_parquet
from earmark.tasks.store.staging import Stage

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
        rows = {table.name: _write(stage, connection, table) for table in (COMPARISONS, VOTES, RATINGS)}
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
    """Create views of what was read and the tables that say what counts."""
    view_parquet(connection, "votes", [exports.votes], VOTES_READ)
    view_parquet(connection, "ratings", [exports.ratings], RATINGS_READ)
    view_parquet(connection, "media", [media], MEDIA)
    connection.execute("CREATE TABLE sources (source VARCHAR, task VARCHAR, rule VARCHAR, low DOUBLE, high DOUBLE)")
    connection.executemany(
        "INSERT INTO sources VALUES (?, ?, ?, ?, ?)",
        [[source.name, layout_of(source).task, split_rule(source), *source.scale] for source in config.sources],
    )
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
    """Which votes are left out, and why."""
    refused = connection.sql(
        """SELECT 'votes', vote_id, 'votes', reason, detail, source_file, line, made_from FROM refused_votes
           ORDER BY row"""
    ).to_arrow_table()
    kept = _count(connection, "cast_votes")
    filtered = Counter(reason for reason in refused.column(3).to_pylist() if reason in FILTERS)
    counts = ", ".join(f"{count} {reason}" for reason, count in sorted(filtered.items())) or "nothing"
    return _account(connection, "votes", "votes", refused, kept, f"filters left out: {counts}; {kept} votes stay")


def _rated(connection: duckdb.DuckDBPyConnection) -> Account:
    """Which ratings are left out, and why; of those that stay, one row a clip stays in `rated`."""
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


def split_comparisons(connection: duckdb.DuckDBPyConnection, config: HumanPreferences) -> tuple[str, ...]:
    """Create `places` and `rated_places`: the split of each comparison and rated clip. Returns notes for the reader."""
    rules = {source.name: split_rule(source) for source in config.sources}
    drawing = {"seed": config.seed, "unit": config.unit, "balance": list(config.split.balance)}
    cursor = connection.execute(query("human_preferences/pieces"), drawing)
    names = [column[0] for column in cursor.description or []]
    compared = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    prompts = {row["prompt_key"] for row in compared}
    rated = connection.execute("SELECT row, source, clip_id, clip_sha256, prompt_key, split FROM rated ORDER BY row")
    clips = rated.fetchall()
    pieces = [_compared(row, rules, config) for row in compared]
    for _, source, clip, sound, prompt, native in clips:
        ties = [
            ("clip", clip),
            *([("sound", sound)] if sound else []),
            *([("prompt", prompt)] if prompt in prompts else []),
        ]
        fixed = {"native": native or "train", "draw": "train"}.get(rules[source], rules[source])
        pieces.append(Piece(ties, fixed, None, ""))
    wanted = {"test": config.split.test, "validation": config.split.validation}
    splits, drawn = place(pieces, wanted)
    connection.execute("CREATE TABLE places (comparison_id VARCHAR, split VARCHAR)")
    connection.execute("CREATE TABLE rated_places (row BIGINT, split VARCHAR)")
    _fill(connection, "places", [row["comparison_id"] for row in compared], splits[: len(compared)], pa.string())
    _fill(connection, "rated_places", [row[0] for row in clips], splits[len(compared) :], pa.int64())
    free = sum(piece.size for piece in pieces if piece.fixed is None and piece.cell is not None)
    moved = sum(piece.fixed not in (None, split) for piece, split in zip(pieces, splits, strict=True))
    return (
        *(
            f"{drawn[name]} of {count} {config.unit}s drawn into {name}: of {free} to draw from, the cells and what "
            "must stay together give no more"
            for name, count in wanted.items()
            if drawn[name] < count and free
        ),
        *(
            [f"{moved} comparisons or clips left their source's split for one that holds their prompt or clip"]
            * (moved > 0)
        ),
    )


def _compared(row: dict[str, object], rules: dict[str, str], config: HumanPreferences) -> Piece:
    ties = [("prompt", row["prompt_key"])]
    kinds = [("id", "prompt_ids"), ("words", "words"), ("clip", "clips"), ("sound", "sounds")]
    kinds += [("annotator", "annotators")] if "annotator" in config.split.apart else []
    for kind, name in kinds:
        ties += [(kind, value) for value in row[name] or [] if value is not None]  # type: ignore[attr-defined]
    fixed: set[str] = set()
    for source in row["sources"]:  # type: ignore[attr-defined]
        rule = rules[source]
        fixed |= set(row["native"] or ["train"]) if rule == "native" else {rule} - {"draw"}  # type: ignore[call-overload]
    split = min(fixed, key=STRONGEST.index) if fixed else None
    return Piece(ties, split, str(row["cell"]), str(row["draw"]), int(str(row["size"])))


def _fill(
    connection: duckdb.DuckDBPyConnection, table: str, keys: list[object], splits: list[str], kind: pa.DataType
) -> None:
    rows = pa.table({"key": pa.array(keys, kind), "split": pa.array(splits, pa.string())})
    connection.register("filling", rows)
    connection.execute(f"INSERT INTO {table} SELECT * FROM filling")
    connection.unregister("filling")


def _write(stage: Stage, connection: duckdb.DuckDBPyConnection, table: Table) -> int:
    text = query(f"human_preferences/{table.name}")
    kept = 0
    for split in SPLITS:
        kept += stage.write(table, split, connection.sql(text, params={"split": split}).to_arrow_reader(100_000))
    stage.drop_empty_splits(table)
    return kept


def _count(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])
