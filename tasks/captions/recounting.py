"""`captions`: tags are counted again after captions were withdrawn. No Prefect."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from earmark.schemas.captions import CAPTIONS, TAG_COVERAGE, Captions
from earmark.schemas.tables import UNSPLIT
from earmark.tasks.captions.writing import TEXTS
from earmark.tasks.importers.jamendo import MARK, Tag
from earmark.tasks.store.manifest import Step
from earmark.tasks.store.sql import connect, query
from earmark.tasks.store.staging import Stage
from earmark.tasks.text.tag_words import Lexicon

TRACKS = pa.schema([("row", pa.int64()), ("tags", pa.list_(pa.string()))])


def recount(stage: Stage, config: Captions) -> tuple[Step, ...]:
    """Write `tag_coverage` again from the published captions."""
    paths = [path for paths in stage.tables()[CAPTIONS.name].values() for path in paths]
    _write_coverage(stage, pa.concat_tables([pq.ParquetFile(path).read() for path in paths]))
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
