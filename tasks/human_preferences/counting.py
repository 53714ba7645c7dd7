"""`human-preferences`: votes become comparisons in splits, and the published tables. No Prefect."""

from __future__ import annotations

from collections import Counter

import duckdb
import pyarrow as pa

from schemas.human_preferences import HumanPreferences
from schemas.tables import REJECTS, SPLITS, Table
from schemas.vote_tables import COMPARISONS, RATINGS, VOTES
from tasks.human_preferences.clips import MEDIA_SCHEMA, write_clips
from tasks.human_preferences.sources import RATINGS_READ, VOTES_READ, drops_ties, layout_of, split_rule
from tasks.human_preferences.splitting import STRONGEST, Piece, place
from tasks.store.manifest import Step
from tasks.store.sql import query, view_parquet
from tasks.store.staging import Stage

FILTERS = ("tie", "both_bad", "generation_failed")


def open_votes(connection: duckdb.DuckDBPyConnection, stage: Stage, config: HumanPreferences) -> None:
    """Create views of what was read and the tables that say what counts."""
    for name, schema in (("votes", VOTES_READ), ("ratings", RATINGS_READ), ("media", MEDIA_SCHEMA)):
        view_parquet(connection, name, [stage.work / f"{name}.parquet"], schema)
    connection.execute("CREATE TABLE sources (source VARCHAR, task VARCHAR, rule VARCHAR, low DOUBLE, high DOUBLE)")
    connection.executemany(
        "INSERT INTO sources VALUES (?, ?, ?, ?, ?)",
        [[source.name, layout_of(source).task, split_rule(source), *source.scale] for source in config.sources],
    )
    connection.execute(query("text/plain_words"))
    connection.execute(query("human_preferences/known"))
    dropping = [source.name for source in config.sources if drops_ties(source)]
    connection.execute(query("human_preferences/refuse_votes"), {"drops_ties": dropping})
    for name in ("cast_votes", "choices", "weighed", "rated"):
        connection.execute(query(f"human_preferences/{name}"))


def count_votes(stage: Stage, connection: duckdb.DuckDBPyConnection, config: HumanPreferences) -> None:
    """Note which votes and ratings are left out, and why."""
    refused = connection.sql(
        """SELECT 'votes', vote_id, 'votes', reason, detail, source_file, line FROM refused_votes ORDER BY row"""
    ).to_arrow_table()
    kept = _count(connection, "cast_votes")
    filtered = Counter(reason for reason in refused.column(3).to_pylist() if reason in FILTERS)
    told = ", ".join(f"{count} {reason}" for reason, count in sorted(filtered.items())) or "nothing"
    _account(
        stage,
        "votes",
        "votes",
        _by_source(connection, "votes"),
        refused,
        kept,
        f"filters left out: {told}; {kept} votes stay",
    )
    if not stage.recorded("import-ratings"):
        return
    dropped = connection.sql(
        """SELECT 'ratings', clip_id, 'ratings', reason, detail, source_file, line
           FROM rated WHERE reason IS NOT NULL ORDER BY row"""
    ).to_arrow_table()
    rated = _count(connection, "rated WHERE reason IS NULL")
    connection.execute("DELETE FROM rated WHERE reason IS NOT NULL OR NOT is_first")
    clips = _count(connection, "rated")
    note = f"averaged {rated:,} ratings into {clips:,} clips" if rated > clips else f"{rated} rated clips stay"
    _account(stage, "ratings", "rated clips", _by_source(connection, "ratings"), dropped, rated, note)


def _account(stage: Stage, name: str, unit: str, read: dict[str, int], refused: pa.Table, kept: int, note: str) -> None:
    stage.write_rejects(name, refused.rename_columns(REJECTS.schema.names), read)
    stage.record(
        Step(
            name=name,
            place=2,
            unit=unit,
            stage=name,
            follows=(f"import-{name}",),
            entered=kept + refused.num_rows,
            kept=kept,
            rejected=dict(Counter(refused.column(3).to_pylist())),
            notes=(note,),
        )
    )


def split_comparisons(connection: duckdb.DuckDBPyConnection, config: HumanPreferences) -> tuple[str, ...]:
    """Create `places` and `rated_places`: the split of each comparison and rated clip. Returns notes for the reader."""
    rules = {source.name: split_rule(source) for source in config.sources}
    cursor = connection.execute(query("human_preferences/pieces"), {"seed": config.seed})
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
    free = sum(piece.fixed is None and piece.cell is not None for piece in pieces)
    moved = sum(piece.fixed not in (None, split) for piece, split in zip(pieces, splits, strict=True))
    return (
        *(
            f"{drawn[name]} of {count} comparisons drawn into {name}: of {free} to draw from, the cells and what must "
            "stay together give no more"
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
    kinds = [("id", "prompt_ids"), ("clip", "clips"), ("sound", "sounds")]
    kinds += [("annotator", "annotators")] if "annotator" in config.split.apart else []
    for kind, name in kinds:
        ties += [(kind, value) for value in row[name] or [] if value is not None]  # type: ignore[attr-defined]
    fixed: set[str] = set()
    for source in row["sources"]:  # type: ignore[attr-defined]
        rule = rules[source]
        fixed |= set(row["native"] or ["train"]) if rule == "native" else {rule} - {"draw"}  # type: ignore[call-overload]
    return Piece(ties, min(fixed, key=STRONGEST.index) if fixed else None, str(row["cell"]), str(row["draw"]))


def _fill(
    connection: duckdb.DuckDBPyConnection, table: str, keys: list[object], splits: list[str], kind: pa.DataType
) -> None:
    rows = pa.table({"key": pa.array(keys, kind), "split": pa.array(splits, pa.string())})
    connection.register("filling", rows)
    connection.execute(f"INSERT INTO {table} SELECT * FROM filling")
    connection.unregister("filling")


def write_tables(
    stage: Stage, connection: duckdb.DuckDBPyConnection, config: HumanPreferences, notes: tuple[str, ...]
) -> Step:
    """Write `clips`, `comparisons`, `votes` and `ratings`."""
    write_clips(stage, connection, config)
    rows = {table.name: _write(stage, connection, table) for table in (COMPARISONS, VOTES, RATINGS)}
    stage.record(
        Step(
            name="cast",
            place=3,
            unit="votes",
            follows=("votes",),
            entered=rows["votes"],
            kept=rows["votes"],
            table=VOTES.name,
            notes=(f"{rows['votes']} votes on {rows['comparisons']} comparisons",),
        )
    )
    return stage.record(
        Step(
            name="comparisons",
            place=4,
            unit="comparisons",
            entered=rows["comparisons"],
            kept=rows["comparisons"],
            table=COMPARISONS.name,
            notes=notes,
        )
    )


def _write(stage: Stage, connection: duckdb.DuckDBPyConnection, table: Table) -> int:
    text = query(f"human_preferences/{table.name}")
    kept = 0
    for split in SPLITS:
        kept += stage.write(table, split, connection.sql(text, params={"split": split}).to_arrow_reader(100_000))
    stage.drop_empty_splits(table)
    return kept


def _by_source(connection: duckdb.DuckDBPyConnection, table: str) -> dict[str, int]:
    return dict(connection.execute(f"SELECT source, count(*) FROM {table} GROUP BY source ORDER BY ALL").fetchall())


def _count(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])
