"""`captions`: the published tables, and what the card tells of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from schemas.captions import CAPTIONS, RAW, TAG_COVERAGE, Captions
from schemas.tables import REJECTS, SPLITS, UNSPLIT
from tasks.build.asking import check_failed
from tasks.captions.captioning import SAID
from tasks.importers.jamendo import MARK, Tag
from tasks.store.manifest import Step
from tasks.store.parquet import write_rows
from tasks.store.sql import connect, query, view_parquet
from tasks.store.staging import Stage
from tasks.text.near_texts import near_duplicates
from tasks.text.tag_words import Lexicon

TEXTS = pa.schema(
    [
        ("row", pa.int64()),
        ("pipeline", pa.string()),
        ("segment", pa.int64()),
        ("text", pa.string()),
        ("repeats_row", pa.int64()),
        ("named", pa.list_(pa.string())),
    ]
)


def write_captions(stage: Stage, config: Captions) -> Step:
    """Write `captions`, `raw` and `tag_coverage`; a piece of a track without a caption is a reject.

    Raises:
        EarmarkError: more requests than the config allows have no answer yet.
    """
    with connect(stage.work / "spill") as connection:
        _open(connection, stage, config)
        _check_failed(connection, config)
        _write_texts(stage, connection, config)
        given = {"source": config.source.name}
        refuse = {"refuse_repeats": config.repeats is not None and config.repeats.action == "reject"}
        kept = 0
        for split in SPLITS:
            rows = connection.sql(query("captions/captions"), params={**given, **refuse, "split": split})
            kept += stage.write(CAPTIONS, split, rows.to_arrow_reader(10_000))
        stage.drop_empty_splits(CAPTIONS)
        stage.write(RAW, UNSPLIT, connection.sql(query("captions/raw"), params=given).to_arrow_reader(10_000))
        coverage = connection.sql(query("captions/tag_coverage"), params=refuse)
        stage.write(TAG_COVERAGE, UNSPLIT, coverage.to_arrow_reader(10_000))
        refused = connection.sql(query("captions/refuse_captions"), params=refuse).to_arrow_table()
        stage.write_rejects("captions", refused.rename_columns(REJECTS.schema.names))
        pieces = "SELECT count(*) FROM (SELECT DISTINCT row, pipeline, segment FROM said)"
        entered = int(connection.sql(pieces).fetchall()[0][0])
    return stage.record(
        Step(
            name="captions",
            place=3,
            unit="captions",
            stage="captions",
            entered=entered,
            kept=kept,
            rejected=dict(sorted(Counter(refused.column(3).to_pylist()).items())),
            table=CAPTIONS.name,
        )
    )


def _open(connection: duckdb.DuckDBPyConnection, stage: Stage, config: Captions) -> None:
    view_parquet(connection, "pool", [stage.work / "pool.parquet"])
    said = [
        path for part in ("listened", "refined", "judged") for path in sorted((stage.work / part).glob("*.parquet"))
    ]
    view_parquet(connection, "draws", said, SAID)
    connection.execute("CREATE VIEW said AS FROM draws WHERE last")
    rows = [{"place": at, "name": held.name, "last": held.last} for at, held in enumerate(config.pipelines)]
    connection.register("pipelines", pa.Table.from_pylist(rows))


def _check_failed(connection: duckdb.DuckDBPyConnection, config: Captions) -> None:
    for pipeline in config.pipelines:
        for name, asked in pipeline.stages.items():
            said = "FROM said WHERE pipeline = ? AND stage = ?"
            rows = connection.execute(f"SELECT reason, final {said}", [pipeline.name, name]).fetchall()
            failed = [{"reason": reason, "final": final} for reason, final in rows if reason is not None]
            check_failed(asked.most_failed, len(rows), failed)


def _write_texts(stage: Stage, connection: duckdb.DuckDBPyConnection, config: Captions) -> None:
    """Leave `work/texts.parquet`: every accepted text, the earlier row that it repeats, and the tags that it names."""
    texts = connection.sql(query("captions/texts")).to_arrow_table().to_pylist()
    marked = {
        tag for tags in pq.read_table(stage.work / "pool.parquet", columns=["tags"])["tags"] for tag in tags.as_py()
    }
    lexicon = Lexicon(_tag(tag) for tag in marked)
    rows = []
    for pipeline in config.pipelines:
        held = [text for text in texts if text["pipeline"] == pipeline.name]
        repeated = _repeated([text["text"] for text in held], config)
        for text, earlier in zip(held, repeated, strict=True):
            named = sorted(f"{tag.category}{MARK}{tag.name}" for tag in lexicon.named(text["text"]))
            first = None if earlier is None else held[earlier]["row"]
            rows.append((text["row"], pipeline.name, text["segment"], text["text"], first, named))
    path = stage.work / "texts.parquet"
    write_rows(path, TEXTS, rows)
    view_parquet(connection, "texts", [path])


def _repeated(texts: Sequence[str], config: Captions) -> list[int | None]:
    return near_duplicates(texts, config.repeats.threshold) if config.repeats else [None] * len(texts)


def _tag(marked: str) -> Tag:
    category, _, name = marked.partition(MARK)
    return Tag(category, name)


def sections(stage: Stage) -> dict[str, str]:
    """What the card tells of each pipeline: how many captions it gave, how long they are, what is flagged."""
    names = ["pipeline", "model", "text", "flags", "repeats", "sample"]
    paths = [path for paths in stage.tables()[CAPTIONS.name].values() for path in paths]
    rows = [row for path in paths for row in pq.ParquetFile(path).read(names).to_pylist()]
    if not rows:
        return {"What was written": "No caption was written."}
    lines = [
        "| pipeline | written by | captions | words, on average | drawn again | flagged | nearly repeat another |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for name in dict.fromkeys(row["pipeline"] for row in rows):
        held = [row for row in rows if row["pipeline"] == name]
        words = sum(len(row["text"].split()) for row in held) / len(held)
        again, flagged = sum(row["sample"] > 0 for row in held), sum(bool(row["flags"]) for row in held)
        repeats = sum(row["repeats"] is not None for row in held)
        lines.append(
            f"| {name} | `{held[0]['model']}` | {len(held):,} | {words:.1f} | {again:,} | {flagged:,} | {repeats:,} |"
        )
    return {"What was written": "\n".join(lines)}
