"""Write the card sections of `music-prompts`: the pool of tags and the draw."""

from __future__ import annotations

from collections import Counter, defaultdict

from earmark.schemas.music_prompts import CATEGORIES, STRATA, TAGS, TRIPLETS
from earmark.tasks.store.staging import Stage

CRITERIA = ("unpopular", "vocal", "excluded", "rarely_mentioned", "not_verified", "low_recall")


def pool_section(stage: Stage) -> str:
    """Tabulate the tags by category and missed criterion, for the card."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    tags = stage.rows(TAGS)
    for row in tags:
        counts[row["category"]][row["criterion"] or "in the pool"] += 1
    met = [name for name in CRITERIA if any(held[name] for held in counts.values())]
    lines = [
        "Tags by the first criterion that they missed; the table `tags` has the figures of each.",
        "",
        f"| category | tags | in the pool | {' | '.join(name.replace('_', ' ') for name in met)} |",
        f"|---|---:|---:|{'---:|' * len(met)}",
    ]
    for category in CATEGORIES:
        held = counts[category]
        cells = [f"{held[name]:,}" for name in ("in the pool", *met)]
        lines.append(f"| {category} | {held.total():,} | {' | '.join(cells)} |")
    if not any(row["verified"] for row in tags):
        lines += ["", "No tag is verified: no judge was asked whether tracks sound like their tags."]
    return "\n".join(lines)


def draw_section(stage: Stage) -> str:
    """Tabulate the evenness of the draw's tags by stratum, for the card."""
    rows = stage.rows(TRIPLETS)
    lines = [
        "How often the tag that is used most is used, and how many different ones there are.",
        "",
        "| stratum | triplets | genres | most | instruments | most | moods or themes | most |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for stratum in STRATA:
        drawn = [row for row in rows if row["stratum"] == stratum]
        cells = [f"{len(drawn):,}"]
        for name in ("genre", "instrument", "mood_theme"):
            used = Counter(row[name] for row in drawn)
            cells += [f"{len(used):,}", f"{max(used.values(), default=0):,}"]
        lines.append(f"| {stratum} | {' | '.join(cells)} |")
    absent = Counter(pair for row in rows for pair in row["absent_pairs"])
    if absent:
        told = ", ".join(f"{pair} {count:,}" for pair, count in sorted(absent.items()))
        lines += ["", f"Pairs that no track carries, among the triplets out of distribution: {told}."]
    return "\n".join(lines)


def sections(stage: Stage) -> dict[str, str]:
    """Return the card's own sections, Markdown by heading."""
    return {"What became of the tags": pool_section(stage), "How even the draw is": draw_section(stage)}
