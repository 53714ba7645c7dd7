"""How `tempos` is made."""

from __future__ import annotations

import csv

import pyarrow as pa

from earmark_tempos.corpus import CORPUS, NOTES, Tempos
from schemas.tables import REJECTS
from tasks.build.fingerprint import file_digests
from tasks.build.plan import Plan, make_plan
from tasks.store.manifest import Step
from tasks.store.staging import Stage
from tasks.store.versions import Store

SLOWEST_BPM = 20.0


def plan_build(config: Tempos, store: Store, inputs: dict[str, str] | None = None) -> Plan:
    """What a build is made from."""
    return make_plan(CORPUS, config, store, lambda: file_digests([("notes", config.path(config.notes))]), inputs=inputs)


def read_notes(stage: Stage, config: Tempos) -> Step:
    """Keep the notes that have a text and a tempo."""
    kept, lost = [], []
    with config.path(config.notes).open(newline="") as file:
        for line, row in enumerate(csv.DictReader(file), 2):
            if row["text"] and float(row["bpm"]) >= SLOWEST_BPM:
                kept.append({"note_id": row["id"], "text": row["text"], "bpm": float(row["bpm"]), "split": "train"})
            else:
                lost.append(
                    ("notes", row["id"], "read", "missing_text", "expected a text", f"notes/{config.notes}", line)
                )
    stage.write(NOTES, "train", [pa.Table.from_pylist(kept, NOTES.schema)])
    rows = [dict(zip(REJECTS.schema.names, row, strict=True)) for row in lost]
    stage.write_rejects("read", pa.Table.from_pylist(rows, REJECTS.schema))
    rejected = {"missing_text": len(lost)} if lost else {}
    return stage.record(
        Step(
            name="read", place=1, unit="lines", stage="read", entered=len(kept) + len(lost), kept=len(kept),
            rejected=rejected, table="notes",
        )
    )  # fmt: skip
