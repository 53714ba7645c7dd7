"""What the report and the card of `instruction-rubrics` show: samples to hear with their items, kinds, judges."""

from __future__ import annotations

from typing import Any

import duckdb

from earmark.tasks.build.report import Material, count, histogram, sample, shares
from earmark.tasks.store.figures import Browser, Clip, Grid, Row, Section
from earmark.tasks.store.sql import connect, query, view_parquet
from earmark.tasks.store.staging import Stage


def sections(material: Material) -> list[Section]:
    """The report's own sections."""
    db = material.db
    db.execute(query("instruction_rubrics/shown"))
    rows = tuple(
        Row(
            row["sample_id"],
            {"subset": row["subset"], "kind": row["kind"], "split": row["split"]},
            {
                "follows": "yes" if row["follows"] else "no",
                "changed": f"{row['attribute']}: {row['span_before']} → {row['span_after']}"
                if row["attribute"]
                else "",
            },
            {"instruction": row["instruction"], "true of the clip": row["truth"], "items": row["items_shown"]},
            clips=(Clip("clip", row["clip_sha256"]),),
        )
        for row in sample(db, "shown", "sample_id", by="kind")
    )
    grid = Grid(
        "Samples by subset",
        ("split", "subset", "kind", "samples", "items", "share of items that are yes"),
        tuple(balance(db)),
        ("share of items that are yes",),
    )
    figures = (
        shares(db, "shown", "kind", "Samples by kind"),
        shares(db, "items", "dimension", "Items by dimension"),
        histogram(db, "shown", "items", "Items a sample"),
    )
    return [Section("Samples", (*figures, grid, Browser("samples", rows, count(db, "shown"))))]


def balance(db: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    """Samples, items and the share of items that are met, by set, subset and kind."""
    return db.execute(query("instruction_rubrics/balance")).fetchall()


def card_sections(stage: Stage) -> dict[str, str]:
    """The card's section on the tables: how many samples there are of each kind."""
    with connect(stage.work / "spill") as db:
        view_parquet(db, "samples", [path for paths in stage.tables()["samples"].values() for path in paths])
        rows = balance(db)
    if not rows:
        return {"Samples by subset": "No pair was left."}
    lines = ["| split | subset | kind | samples | items | items that are yes |", "|---|---|---|---:|---:|---:|"]
    lines += [
        f"| {s} | {subset} | {kind} | {n:,} | {items:,} | {share:.0%} |" for s, subset, kind, n, items, share in rows
    ]
    return {"Samples by subset": "\n".join(lines)}


def build_sections(stage: Stage) -> dict[str, str]:
    """The card's sections of a build: on the tables, and how often both passes over generated audio agreed.

    The latter counts answers, not rows: where some were withdrawn, it is left out.
    """
    passes = next((note for step in stage.steps() if step.name == "verify" for note in step.notes[1:]), None)
    agreement = {"Generated audio, judged twice": f"{passes[0].upper()}{passes[1:]}."} if passes else {}
    return card_sections(stage) | agreement
