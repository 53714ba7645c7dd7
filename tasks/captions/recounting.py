"""Count tags again after captions were withdrawn; no Prefect."""

import pyarrow as pa

from earmark.schemas.captions import CAPTIONS, TAG_COVERAGE, Captions
from earmark.schemas.tables import UNSPLIT
from earmark.schemas.tracks import Tag
from earmark.tasks.captions.writing import TEXTS
from earmark.tasks.store.manifest import Step
from earmark.tasks.store.parquet import row_schema
from earmark.tasks.store.sql import connect, query
from earmark.tasks.store.staging import Stage
from earmark.tasks.text.tag_words import Lexicon

TRACKS = row_schema("row int64, tags string[]")


def recount(stage: Stage, config: Captions) -> tuple[Step, ...]:
    """Write `tag_coverage` again from the published captions.

    A tag missing from the table was in no caption, so the table's tags are all the tags a text may name.
    """
    lexicon = Lexicon(Tag(row["category"], row["tag"]) for row in stage.rows(TAG_COVERAGE, ["category", "tag"]))
    rows = stage.rows(CAPTIONS, ["pipeline", "segment", "text", "tags"])
    texts = [
        {**row, "row": number, "named": sorted(tag.marked for tag in lexicon.named(row["text"]))}
        for number, row in enumerate(rows)
    ]
    with connect(stage.work / "spill") as connection:
        connection.register("texts", pa.Table.from_pylist(texts, TEXTS))
        connection.register("pool", pa.Table.from_pylist(texts, TRACKS))
        coverage = connection.sql(query("captions/tag_coverage"), params={"refuse_repeats": False})
        stage.write(TAG_COVERAGE, UNSPLIT, coverage.to_arrow_reader(10_000))
    return ()
