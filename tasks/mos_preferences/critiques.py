"""`mos-preferences`: the steps that have a critic describe clips and compare pairs."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from prefect import task
from prefect.cache_policies import NO_CACHE

from schemas.critiques import CRITIQUES, PAIRED_CRITIQUES, Critiques
from schemas.mos_preferences import CORPUS, PAIRS, RATINGS, MosPreferences
from schemas.tables import REJECTS, SPLITS, Table
from tasks.annotation.session import Session
from tasks.audio.probe import AudioFault, Probe
from tasks.build.asking import check_failed, clip_media
from tasks.build.ledger import has_ledger, ledger_address
from tasks.build.media import clip_below, media_index
from tasks.build.progress import Work, working
from tasks.mos_preferences.critiquing import (
    QUESTIONS_A_SHARD,
    SAID,
    SIDES,
    critique_shard,
    kinds_asked,
    prompt_of,
    requests_of,
)
from tasks.mos_preferences.pairs import pair_clips
from tasks.mos_preferences.ratings import import_source, in_shards, index_clips, merge_votes, write_ratings
from tasks.mos_preferences.sources import find_audio, heard_sources, root_of
from tasks.store.files import replacing
from tasks.store.manifest import Step
from tasks.store.sql import connect, query, view_parquet
from tasks.store.staging import Stage
from tasks.store.versions import Store

TABLE_OF = {"single": CRITIQUES, "paired": PAIRED_CRITIQUES}
WANTED = {"single": "critiques.clips", "paired": "critiques.pairs"}

UNHEARD = pa.schema([("kind", pa.string()), ("item", pa.string()), ("reason", pa.string()), ("detail", pa.string())])
FOUND = ("sha256", "duration_s")


@task(name="plan-critiques", cache_policy=NO_CACHE)
def plan_critiques(stage: Stage, config: MosPreferences) -> list[int]:
    """Choose what the critic hears, and find and measure its clips.

    Leaves `work/critiques/`: `questions.parquet`, a row a question, one row group a shard; `unheard.parquet`, those
    whose audio is missing or faulty; `candidates.parquet`, how many there were to choose from.

    Returns:
        The numbers of the shards.
    """
    assert config.critiques is not None
    path = stage.work / "critiques" / "questions.parquet"
    if not path.is_file():
        with working("plan critiques"), connect(stage.work / "spill") as connection:
            _plan(stage, connection, config, config.critiques, path)
    return list(range(pq.read_metadata(path).num_row_groups))


def _plan(
    stage: Stage, connection: duckdb.DuckDBPyConnection, config: MosPreferences, critiques: Critiques, path: Path
) -> None:
    view_parquet(connection, "placed", [stage.work / "placed.parquet"])
    for table in (RATINGS, PAIRS):
        view_parquet(connection, table.name, _files(stage, table))
    heard = {"seed": config.seed, "splits": list(critiques.splits), "datasets": heard_sources(config)}
    connection.execute(query("mos_preferences/critique_items"), heard)
    limits = {"clips": critiques.clips, "pairs": critiques.pairs}
    chosen = connection.sql(query("mos_preferences/critique_questions"), params=limits).to_arrow_table()
    rows, unheard = _listened(stage, config, chosen.to_pylist())
    candidates = connection.sql("SELECT kind, count(*) AS items FROM critique_items GROUP BY kind").to_arrow_table()
    candidates = candidates.append_column("chosen", _counts(chosen["kind"], candidates["kind"]))
    schema = chosen.schema
    for side in SIDES["paired"]:
        schema = schema.append(pa.field(f"{side}_sha256", pa.string()))
        schema = schema.append(pa.field(f"{side}_duration_s", pa.float64()))
    for name, table in (
        ("candidates", candidates),
        ("unheard", pa.Table.from_pylist(unheard, UNHEARD)),
        (path.stem, pa.Table.from_pylist(rows, schema)),  # last: its presence says that all three are there
    ):
        with replacing(path.with_stem(name)) as temporary:
            pq.write_table(table, temporary, row_group_size=_questions_a_shard(critiques))


def _counts(kinds: pa.ChunkedArray, of: pa.ChunkedArray) -> pa.Array:
    counts = Counter(kinds.to_pylist())
    return pa.array([counts[kind] for kind in of.to_pylist()], pa.int64())


def _questions_a_shard(critiques: Critiques) -> int:
    """With the provider's batch API, as many questions as fill one batch."""
    return critiques.batch_requests if critiques.batch else QUESTIONS_A_SHARD


def _listened(
    stage: Stage, config: MosPreferences, rows: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Questions with what was measured of their clips, and those with a clip that cannot be heard."""
    located = _located(config, rows)
    sides = [(row["dataset"], row[f"{side}_path"]) for row in located for side in SIDES[row["kind"]]]
    roots = {source.name: root_of(config, source) for source in config.sources}
    paths = sorted(set(sides))
    files = [clip_below(roots[dataset], path) for dataset, path in paths]
    with working("index the critic's clips", len(paths)) as work:
        found = dict(zip(paths, media_index(stage.store).look(files, seen=work.advance), strict=True))
    heard, unheard = [], []
    for row, place in zip(rows, located, strict=True):
        probes = {side: found[row["dataset"], place[f"{side}_path"]] for side in SIDES[row["kind"]]}
        faults = [(side, probe) for side, probe in probes.items() if isinstance(probe, AudioFault)]
        if faults:
            side, fault = faults[0]
            detail = f"{row[f'{side}_id']}: {fault.detail}"
            unheard.append({"kind": row["kind"], "item": row["item"], "reason": fault.reason, "detail": detail})
        else:
            measured = {
                f"{side}_{name}": value
                for side, probe in probes.items()
                if isinstance(probe, Probe)
                for name, value in (("sha256", probe.clip_sha256), ("duration_s", probe.duration_s))
            }
            heard.append({**row, **measured})
    return heard, unheard


def _located(config: MosPreferences, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Questions with the paths of their clips, as they are on this machine now."""
    sources = {source.name: source for source in config.sources}
    return [
        {
            **row,
            **{
                f"{side}_path": find_audio(config, sources[row["dataset"]], row[f"{side}_file"], row[f"{side}_audio"])
                for side in SIDES[row["kind"]]
            },
        }
        for row in rows
    ]


@task(name="critique", task_run_name="critique-{shard:04d}", cache_policy=NO_CACHE)
def critique(stage: Stage, config: MosPreferences, session: Session, shard: int, progress: Work | None = None) -> None:
    """Ask about one shard of clips and pairs; the ledger answers what was asked before."""
    assert config.critiques is not None
    with pq.ParquetFile(stage.work / "critiques" / "questions.parquet") as file:
        rows = file.read_row_group(shard).to_pylist()
    critique_shard(stage, config.critiques, session, _located(config, rows), shard)
    if progress is not None:
        progress.advance(len(rows))


def count_questions(stage: Stage) -> int:
    """How many questions the critic gets."""
    return int(pq.read_metadata(stage.work / "critiques" / "questions.parquet").num_rows)


@task(name="critiques", cache_policy=NO_CACHE)
def write_critiques(stage: Stage, config: MosPreferences) -> None:
    """Write the published tables `critiques` and `paired_critiques`; what has no valid answer is a reject.

    Raises:
        EarmarkError: more requests than the config allows have no answer yet.
    """
    assert config.critiques is not None
    with working("write critiques"), connect(stage.work / "spill") as connection:
        folder = stage.work / "critiques"
        for name in ("questions", "unheard", "candidates"):
            view_parquet(connection, name, [folder / f"{name}.parquet"])
        view_parquet(connection, "said", sorted((folder / "said").glob("*.parquet")), SAID)
        failed = connection.sql("SELECT reason, final FROM said WHERE reason IS NOT NULL").to_arrow_table().to_pylist()
        check_failed(config.critiques.most_failed, count_questions(stage), failed)
        for place, kind in enumerate(TABLE_OF, 6):
            _write_kind(stage, connection, config.critiques, kind, place)


def _write_kind(
    stage: Stage, connection: duckdb.DuckDBPyConnection, critiques: Critiques, kind: str, place: int
) -> None:
    table = TABLE_OF[kind]
    given = {"model": critiques.annotator, "prompt": prompt_of(kind).id}
    kept = 0
    for split in SPLITS:
        rows = connection.sql(query(f"mos_preferences/{table.name}"), params={**given, "split": split})
        kept += stage.write(table, split, rows.to_arrow_reader(10_000))
    stage.drop_empty_splits(table)
    refused = connection.sql(
        """SELECT $table, item, $table, reason, detail, NULL::VARCHAR, NULL::BIGINT
           FROM (FROM unheard UNION ALL BY NAME SELECT kind, item, reason, detail FROM said WHERE reason IS NOT NULL)
           WHERE kind = $kind ORDER BY item""",
        params={"table": table.name, "kind": kind},
    ).to_arrow_table()
    stage.write_rejects(table.name, refused.rename_columns(REJECTS.schema.names))
    counts = connection.execute("SELECT items::BIGINT, chosen FROM candidates WHERE kind = ?", [kind]).fetchall()
    entered, chosen = counts[0] if counts else (0, 0)
    stage.record(
        Step(
            name=table.name,
            place=place,
            unit="clips" if kind == "single" else "pairs",
            stage=table.name,
            entered=entered,
            kept=kept,
            rejected=dict(sorted(Counter(refused["reason"].to_pylist()).items())),
            dropped={f"beyond {WANTED[kind]}": entered - chosen} if entered > chosen else {},
            table=table.name,
            notes=(f"written by {critiques.annotator}",) if kind in kinds_asked(critiques) else (),
        )
    )


def _files(stage: Stage, table: Table) -> list[Path]:
    return [path for paths in stage.tables()[table.name].values() for path in paths]


def forecast(config: MosPreferences, store: Store) -> dict[str, Any] | None:
    """What a build would ask its critic; None if it has none. Asks nothing, and leaves nothing in the store's corpus.

    Raises:
        InputError: a source is missing.
        LedgerError: the ledger cannot be read.
    """
    if config.critiques is None:
        return None
    trial = config.model_copy(update={"audio": "none" if config.audio == "none" else "index"})
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(store, CORPUS.name, "dry-run", Path(folder))
        for part in ("work", "steps", "version"):
            (stage.folder / part).mkdir()
        for source in trial.sources:
            import_source.fn(stage, trial, source)
        merge_votes.fn(stage, trial)
        for start in in_shards(stage, trial):
            index_clips.fn(stage, trial, start)
        write_ratings.fn(stage, trial)
        pair_clips.fn(stage, trial)
        plan_critiques.fn(stage, trial)
        rows = pq.read_table(stage.work / "critiques" / "questions.parquet").to_pylist()
        requests = requests_of(config.critiques, _located(config, rows))
        address = ledger_address(store) if has_ledger(store) else Path(folder) / "ledger.sqlite"
        with Session(config.critiques, ledger=address, media=clip_media()) as session:
            found = session.forecast(requests)
    kinds = Counter(row["kind"] for row in rows)
    about = f"{kinds['single']:,} clips and {kinds['paired']:,} pairs"
    return {"about": about, "annotator": config.critiques.annotator, "tries": config.critiques.tries, **asdict(found)}
