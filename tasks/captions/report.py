"""Build the report sections of `captions`: results of each pipeline, named tags, and the captions to listen to."""

from earmark.schemas.captions import Caption
from earmark.tasks.pipeline.report import Material, count, histogram, sample
from earmark.tasks.store.figures import AudioPlayer, Browser, Row, Section
from earmark.tasks.store.result_table import ResultTable, percent


class ShownCaption(Caption):
    """A caption with the name of its row."""

    name: str


def sections(material: Material) -> list[Section]:
    """Return the report's own sections."""
    db = material.db
    db.execute(
        """CREATE VIEW shown_captions AS
           SELECT *, len(string_split(text, ' ')) AS words, concat(clip_id, ':', pipeline, ':', segment) AS name
           FROM captions"""
    )
    named = db.execute(
        """SELECT category, pipeline, sum(captions)::BIGINT, sum(mentions)::BIGINT, sum(mentions) / sum(captions)
           FROM tag_coverage GROUP BY category, pipeline HAVING sum(captions) > 0 ORDER BY category, pipeline"""
    ).fetchall()
    coverage = ResultTable(
        "How often captions name a track's tags",
        ("category", "pipeline", "tags on captioned tracks", "named", percent("share")),
        tuple(named),
    )
    captions: list[ShownCaption] = sample(db, "shown_captions", "name", by="pipeline")
    rows = tuple(
        Row(
            row["name"],
            {"pipeline": row["pipeline"], "split": row["split"]},
            {
                "heard": f"{row['heard']}, from {row['start_s'][0]:g} s to {row['end_s'][-1]:g} s",
                "written by": row["model"],
                "flags": ", ".join(row["flags"]) or "none",
                "tags": ", ".join(row["tags"]) or "none",
            },
            {"caption": row["text"]},
            clips=(AudioPlayer("what was heard", row["heard_sha256"]),),
        )
        for row in captions
    )
    figures = (
        histogram(db, "shown_captions", "words", "Words a caption", unit="words"),
        histogram(db, "captions", "sample", "Retries", unit="retries"),
    )
    return [Section("Captions", (*figures, coverage, Browser("captions", rows, count(db, "captions"))))]
