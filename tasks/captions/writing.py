"""Write the published tables of `captions`, and their card sections."""

import json
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from earmark.schemas.captions import CAPTIONS, RAW, TAG_COVERAGE, Captions
from earmark.schemas.questions import YesNoValue
from earmark.schemas.tables import UNSPLIT
from earmark.schemas.tracks import Tag
from earmark.tasks.captions.asking import caption_tracks, flags_of, pipeline_of
from earmark.tasks.captions.segments import write_segment_rows
from earmark.tasks.pipeline.references import references_of
from earmark.tasks.pipeline.rows import Rows
from earmark.tasks.pipeline.step import Account, Done, step
from earmark.tasks.pipeline.walk import DRAW, Draw, Walked
from earmark.tasks.store.files import replacing
from earmark.tasks.store.parquet import row_schema, tuples_of, write_rows
from earmark.tasks.store.result_table import ResultColumn, ResultTable
from earmark.tasks.store.sql import by_split, connect, query, view_parquet
from earmark.tasks.store.staging import Stage
from earmark.tasks.text.near_texts import near_duplicates
from earmark.tasks.text.tag_words import Lexicon

REPEATED = 0.9  # Jaccard similarity of runs of three words: repeats differ in a word or two
TEXTS = row_schema("row int64, pipeline string, segment int64, text string, repeats_row int64, named string[]")
WRITTEN = row_schema("text string, flags string[], share float64, bounded bool")


@step("captions", unit="captions", table=CAPTIONS.name, label="write captions", final=True)
def write_captions(stage: Stage, config: Captions, pool: Rows, captioned: Walked) -> Done[None]:
    """Write `captions`, `raw` and `tag_coverage`; reject pieces of tracks without a caption."""
    if config.segments:
        write_segment_rows(stage, config, pool)
    with connect(stage.work / "spill") as connection:
        _open(connection, stage, config, pool, captioned)
        _write_texts(stage, connection, config, pool)
        source = {"source": config.source.name}
        refuse = {"refuse_repeats": config.repeats == "reject"}
        kept = stage.write_splits(CAPTIONS, by_split(connection, query("captions/captions"), {**source, **refuse}))
        stage.write(RAW, UNSPLIT, connection.sql(query("captions/raw"), params=source).to_arrow_reader(10_000))
        coverage = connection.sql(query("captions/tag_coverage"), params=refuse)
        stage.write(TAG_COVERAGE, UNSPLIT, coverage.to_arrow_reader(10_000))
        refused = connection.sql(query("captions/refuse_captions"), params=refuse).to_arrow_table()
        pieces = "SELECT count(*) FROM (SELECT DISTINCT row, pipeline, segment FROM answers)"
        entered = int(connection.sql(pieces).fetchall()[0][0])
    return Done(None, Account(entered, kept, refused))


def _open(connection: duckdb.DuckDBPyConnection, stage: Stage, config: Captions, pool: Rows, captioned: Walked) -> None:
    view_parquet(connection, "pool", [pool.path])
    draws = [_with_texts(stage, config, path) for path in captioned.draws()]
    view_parquet(connection, "draws", draws, pa.schema([*DRAW, *caption_tracks.columns, *WRITTEN]))
    connection.execute("CREATE VIEW answers AS FROM draws WHERE last")
    rows = [{"place": at, "name": one.name, "last": one.last} for at, one in enumerate(config.pipelines)]
    connection.register("pipelines", pa.Table.from_pylist(rows))


class WrittenDraw(Draw):
    """A draw with its text and flags, or a judge's figures."""

    pipeline: str
    text: str | None
    flags: list[str]
    share: float | None
    bounded: bool | None


def _with_texts(stage: Stage, config: Captions, draws: Path) -> Path:
    """Add text (for a judge, its probability of yes) and flags to a file of draws; write it to `work`.

    A text excluded by the config is removed, and its reason stands in its place.
    """
    table = pq.read_table(draws)
    references = references_of(config, stage.store)
    rows: list[WrittenDraw] = table.to_pylist()
    draw: WrittenDraw
    for draw in rows:
        value = None if draw["value"] is None else json.loads(draw["value"])
        if references and isinstance(value, str) and (fault := references.fault_of(value.strip())):
            draw |= {"reason": draw["reason"] or "decontaminated", "detail": draw["detail"] or fault}
            value = None
        draw |= {"text": None, "flags": [], "share": None, "bounded": None}
        if value is not None:
            judged = draw["ask"] == "judge"
            if judged:
                said: YesNoValue = value
                draw |= {"share": said["share"], "bounded": said["bounded"]}
            draw["text"] = f"{said['p_yes']:.6f}" if judged else value.strip()
            draw["flags"] = flags_of(pipeline_of(config, draw["pipeline"]), draw["ask"], value)
    path = stage.work / "written" / draws.name
    with replacing(path) as temporary:
        pq.write_table(pa.Table.from_pylist(rows, pa.schema([*table.schema, *WRITTEN])), temporary)
    return path


def _write_texts(stage: Stage, connection: duckdb.DuckDBPyConnection, config: Captions, pool: Rows) -> None:
    """Write `work/texts.parquet`: every accepted text, the earlier row it repeats, and its named tags."""
    table = connection.sql(query("captions/texts")).to_arrow_table()
    texts = [*tuples_of(table, "pipeline", "row", "segment", "text")]
    marked = {tag for tags in pq.read_table(pool.path, columns=["tags"])["tags"] for tag in tags.as_py()}
    lexicon = Lexicon(map(Tag.of, marked))
    rows = []
    for pipeline in config.pipelines:
        own = [one for name, *one in texts if name == pipeline.name]
        written = [text for _, _, text in own]
        repeated = near_duplicates(written, REPEATED) if config.repeats else [None] * len(own)
        for (row, segment, text), earlier in zip(own, repeated, strict=True):
            named = sorted(tag.marked for tag in lexicon.named(text))
            rows.append((row, pipeline.name, segment, text, None if earlier is None else own[earlier][0], named))
    path = stage.work / "texts.parquet"
    write_rows(path, TEXTS, rows)
    view_parquet(connection, "texts", [path])


def sections(stage: Stage) -> dict[str, str]:
    """Write the card's section on each pipeline: its captions, their length and flags."""
    rows = stage.rows(CAPTIONS, ["pipeline", "model", "text", "flags", "repeats", "sample"])
    if not rows:
        return {"What was written": "No caption was written."}
    shown = []
    for name in dict.fromkeys(row["pipeline"] for row in rows):
        own = [row for row in rows if row["pipeline"] == name]
        words = sum(len(row["text"].split()) for row in own) / len(own)
        again, flagged = sum(row["sample"] > 0 for row in own), sum(bool(row["flags"]) for row in own)
        repeats = sum(row["repeats"] is not None for row in own)
        shown.append((name, own[0]["model"], len(own), words, again, flagged, repeats))
    words_column = ResultColumn("words, on average", decimals=1)
    more = ("drawn again", "flagged", "nearly repeat another")
    table = ResultTable("Written", ("pipeline", "written by", "captions", words_column, *more), tuple(shown))
    return {"What was written": table.markdown()}
