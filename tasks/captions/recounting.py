"""`captions`: what is said of other captions, told again after some were withdrawn. No Prefect."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas.captions import CAPTIONS, TAG_COVERAGE, Captions
from schemas.tables import UNSPLIT
from tasks.captions.writing import TEXTS
from tasks.importers.jamendo import MARK, Tag
from tasks.store.manifest import Step
from tasks.store.sql import connect, query
from tasks.store.staging import Stage
from tasks.text.tag_words import Lexicon

TRACKS = pa.schema([("row", pa.int64()), ("tags", pa.list_(pa.string()))])


def recount(stage: Stage, config: Captions) -> tuple[Step, ...]:
    """Name no clip as repeated that is gone, and write `tag_coverage` again from the published captions."""
    captions = {
        split: pa.concat_tables([pq.ParquetFile(path).read() for path in paths])
        for split, paths in stage.tables()[CAPTIONS.name].items()
    }
    at = CAPTIONS.schema.get_field_index("repeats")
    held = pa.concat_tables([rows.select(["clip_id"]) for rows in captions.values()])["clip_id"].combine_chunks()
    for split, rows in captions.items():
        repeats = rows["repeats"].combine_chunks()
        there = pc.if_else(pc.is_in(repeats, value_set=held), repeats, pa.scalar(None, pa.string()))
        rows = rows.set_column(at, CAPTIONS.schema.field(at), there)
        stage.write(CAPTIONS, split, [rows.cast(CAPTIONS.schema)])
    _write_coverage(stage, pa.concat_tables(captions.values()))
    return ()


def _write_coverage(stage: Stage, captions: pa.Table) -> None:
    """A tag that the table did not hold was in no caption, so the tags in it are all that a text may name."""
    paths = stage.tables()[TAG_COVERAGE.name][UNSPLIT]
    known = pa.concat_tables([pq.ParquetFile(path).read(["category", "tag"]) for path in paths]).to_pylist()
    lexicon = Lexicon(Tag(row["category"], row["tag"]) for row in known)
    rows = captions.select(["pipeline", "segment", "text", "tags"]).to_pylist()
    texts = [
        {**row, "row": number, "named": sorted(f"{tag.category}{MARK}{tag.name}" for tag in lexicon.named(row["text"]))}
        for number, row in enumerate(rows)
    ]
    with connect(stage.work / "spill") as connection:
        connection.register("texts", pa.Table.from_pylist(texts, TEXTS))
        connection.register("pool", pa.Table.from_pylist(texts, TRACKS))
        coverage = connection.sql(query("captions/tag_coverage"), params={"refuse_repeats": False})
        stage.write(TAG_COVERAGE, UNSPLIT, coverage.to_arrow_reader(10_000))
