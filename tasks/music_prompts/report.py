"""Build the report sections of `music-prompts`: results for tags, spread of prompts, and the prompts."""

from earmark.schemas.music_prompts import PromptRow, TagRow
from earmark.tasks.pipeline.report import Material, count, sample, shares
from earmark.tasks.store.figures import Browser, Row, Section
from earmark.tasks.store.result_table import ResultTable, percent


def sections(material: Material) -> list[Section]:
    """Return the report's own sections."""
    db = material.db
    fates = db.execute(
        """SELECT category, count(*), count(*) FILTER (in_pool), (count(*) FILTER (in_pool)) / count(*)
           FROM tags GROUP BY category ORDER BY category"""
    ).fetchall()
    pool = ResultTable("Tags by category", ("category", "tags", "in the pool", percent("share")), tuple(fates))
    missed = shares(db, "tags", "criterion", "First criterion that a tag missed", "`none` is in the pool.")
    spread = (
        shares(db, "triplets", "stratum", "Prompts by stratum"),
        shares(db, "prompts", "genre", "Prompts by genre"),
        shares(db, "prompts", "instrument", "Prompts by instrument"),
        shares(db, "prompts", "mood_theme", "Prompts by mood or theme"),
        shares(db, "prompts", "tries", "Answers until one passed the checks"),
    )
    return [
        Section("Tags", (pool, missed, Browser("tags", _tags(material), count(db, "tags")))),
        Section("Prompts", (*spread, Browser("prompts", _prompts(material), count(db, "prompts")))),
    ]


class NamedTag(TagRow):
    """A tag with its name of the category and itself."""

    name: str


def _tags(material: Material) -> tuple[Row, ...]:
    material.db.execute("CREATE VIEW named_tags AS SELECT *, category || '---' || tag AS name FROM tags")
    tags: list[NamedTag] = sample(material.db, "named_tags", "name", by="category")
    return tuple(
        Row(
            row["tag"],
            {"category": row["category"], "fate": row["criterion"] or "in the pool"},
            {"written": row["written"], "tracks": f"{row['tracks']:,}"},
        )
        for row in tags
    )


def _prompts(material: Material) -> tuple[Row, ...]:
    prompts: list[PromptRow] = sample(material.db, "prompts", "prompt_id", by="style")
    return tuple(
        Row(
            row["prompt_id"],
            {"split": row["split"], "distribution": row["distribution"], "style": row["style"], "genre": row["genre"]},
            {
                "instrument": row["instrument"],
                "mood or theme": row["mood_theme"],
                "added": ", ".join(row["added_instruments"]) or "none",
                "writer": row["writer"],
                "tries": str(row["tries"]),
            },
            {"prompt": row["text"]},
        )
        for row in prompts
    )
