"""Write the card sections of `music-prompts`: the pool of tags and the draw."""

from collections import Counter, defaultdict

from earmark.schemas.music_prompts import CATEGORIES, STRATA, TAGS, TRIPLETS
from earmark.tasks.store.result_table import ResultTable, Value
from earmark.tasks.store.staging import Stage

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


def sections(stage: Stage) -> dict[str, str]:
    """Return the card's own sections, Markdown by heading."""
    return {"What became of the tags": pool_section(stage), "How even the draw is": draw_section(stage)}
