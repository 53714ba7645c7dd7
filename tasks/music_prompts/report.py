"""Build the report sections of `music-prompts`: results for tags, spread of prompts, and the prompts."""

from collections import Counter, defaultdict

from earmark.schemas.music_prompts import CATEGORIES, STRATA, TAGS, TRIPLETS, PromptRow, TagRow
from earmark.tasks.pipeline.report import Material, count, sample, shares
from earmark.tasks.store.figures import Browser, Row, Section
from earmark.tasks.store.result_table import ResultTable, Value, percent
from earmark.tasks.store.staging import Stage


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


CRITERIA = ("unpopular", "vocal", "excluded", "rarely_mentioned", "not_verified", "low_recall")


def pool_section(stage: Stage) -> str:
    """Tabulate the tags by category and missed criterion, for the card."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    tags = stage.rows(TAGS)
    for row in tags:
        counts[row["category"]][row["criterion"] or "in the pool"] += 1
    met = [name for name in CRITERIA if any(held[name] for held in counts.values())]
    table = ResultTable(
        "Tags",
        ("category", "tags", "in the pool", *(name.replace("_", " ") for name in met)),
        tuple((one, counts[one].total(), *(counts[one][name] for name in ("in the pool", *met))) for one in CATEGORIES),
        "Tags by the first criterion that they missed; the table `tags` has the figures of each.",
    )
    lines = [table.markdown()]
    if not any(row["verified"] for row in tags):
        lines += ["", "No tag is verified: no judge was asked whether tracks sound like their tags."]
    return "\n".join(lines)


def draw_section(stage: Stage) -> str:
    """Tabulate the evenness of the draw's tags by stratum, for the card."""
    rows = stage.rows(TRIPLETS)
    shown = list[tuple[Value, ...]]()
    for stratum in STRATA:
        drawn = [row for row in rows if row["stratum"] == stratum]
        used = [Counter(row[name] for row in drawn) for name in ("genre", "instrument", "mood_theme")]
        most = ((len(one), max(one.values(), default=0)) for one in used)
        shown.append((stratum, len(drawn), *(count for both in most for count in both)))
    columns = ("stratum", "triplets", "genres", "most", "instruments", "most", "moods or themes", "most")
    says = "How often the tag that is used most is used, and how many different ones there are."
    lines = [ResultTable("Draw", columns, tuple(shown), says).markdown()]
    absent = Counter(pair for row in rows for pair in row["absent_pairs"])
    if absent:
        told = ", ".join(f"{pair} {count:,}" for pair, count in sorted(absent.items()))
        lines += ["", f"Pairs that no track carries, among the triplets out of distribution: {told}."]
    return "\n".join(lines)


def card_sections(stage: Stage) -> dict[str, str]:
    """Return the card's own sections, Markdown by heading."""
    return {"What became of the tags": pool_section(stage), "How even the draw is": draw_section(stage)}
