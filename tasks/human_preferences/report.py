"""Build the report sections of `human-preferences`: agreement, both dimensions, splits, and comparisons to listen
to."""

from __future__ import annotations

from earmark.tasks.human_preferences.numbers import agreement_table, grids
from earmark.tasks.pipeline.report import Material, count, sample, shares
from earmark.tasks.store.figures import AudioPlayer, Bars, Browser, Row, Section
from earmark.tasks.store.result_table import ResultTable
from earmark.tasks.store.sql import query


def sections(material: Material) -> list[Section]:
    """Return the report's own sections."""
    found = [_votes(material)]
    if count(material.db, "agreement"):
        found.append(_agreement(material))
    found.append(
        Section("Comparisons", (Browser("comparisons", _compared(material), count(material.db, "comparisons")),))
    )
    return found


def _votes(material: Material) -> Section:
    db = material.db
    months = db.execute(
        """SELECT left(date, 7), source, count(*), avg(confidence_musicality), avg(confidence_alignment)
           FROM votes WHERE date IS NOT NULL GROUP BY ALL ORDER BY ALL"""
    ).fetchall()
    figures: list[Bars | ResultTable] = [shares(db, "votes", "source", "Votes by source"), *grids(db)]
    if months:
        heads = ("month", "source", "votes", "confidence, musicality", "confidence, alignment")
        figures.append(ResultTable("Votes by month", heads, tuple(months)))
    return Section("Votes", tuple(figures))


def _agreement(material: Material) -> Section:
    of_annotators = "Pairs of one vote of the annotator's and one of another's."
    of_months = "By the month of a comparison's first vote."
    parts = (
        agreement_table(material.db, "By annotator", "annotator", ["annotator"], of_annotators),
        agreement_table(material.db, "Over time", "month", ["month"], of_months),
    )
    return Section("Agreement by annotator and month", tuple(one for one in parts if one.rows))


def _compared(material: Material) -> tuple[Row, ...]:
    rows = []
    shown = query("human_preferences/shown_comparisons")
    for row in sample(material.db, "comparisons", "comparison_id", by="modality", rows=shown):
        said = {
            name: f"{choice} ({votes} votes, confidence {'not given' if sure is None else f'{sure:.2f}'})"
            for name, choice, votes, sure in row["said"]
        }
        texts = {name: row[name] for name in ("text", "lyrics") if row[name]}
        if row["feedback"]:
            texts["what annotators wrote"] = "\n".join(row["feedback"])
        clips = [
            AudioPlayer(f"{side}: {row[f'model_{side}'] or 'model not told'}", row[f"sha256_{side}"])
            for side in ("a", "b")
        ]
        tags = {"split": row["split"], "source": row["source"], "modality": row["modality"]}
        rows.append(Row(row["comparison_id"], tags, {"prompt id": row["prompt_id"], **said}, texts, tuple(clips)))
    return tuple(rows)
