"""How `studio-takes` is made. Only the sheet is named as an input: the clips that it names are opened unseen."""

from __future__ import annotations

import csv
from typing import Any

import pyarrow as pa
import soundfile

from earmark.schemas.rejects import Reject
from earmark.tasks.build.fingerprint import file_digests
from earmark.tasks.build.plan import Plan, make_plan
from earmark.tasks.build.rows import Rows, keep_rows, read_rows
from earmark.tasks.build.step import Account, Done, step
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store
from lab_takes.corpus import CORPUS, TAKES, StudioTakes


def plan_build(config: StudioTakes, store: Store, inputs: dict[str, str] | None = None) -> Plan:
    """What a build is made from."""
    return make_plan(CORPUS, config, store, lambda: file_digests([("sheet", config.path(config.sheet))]), inputs=inputs)


@step("measure", unit="takes")
def measure_takes(stage: Stage, config: StudioTakes) -> Done[Rows]:
    """Measure the clip of each take."""
    sheet, rows, rejects = config.path(config.sheet), list[dict[str, Any]](), list[tuple[str, Reject]]()
    with sheet.open(newline="") as lines:
        for line, row in enumerate(csv.DictReader(lines), 2):
            try:
                length_s = soundfile.info(sheet.parent / row["clip"]).duration
            except (OSError, soundfile.LibsndfileError) as error:
                rejects.append(("sheet", Reject(row["take"], "audio_unreadable", str(error), "sheet", line)))
                continue
            rows.append(
                {"take_id": row["take"], "clip": row["clip"], "verdict": row["verdict"]}
                | {"duration_s": length_s, "split": "train"}
            )
    entered = len(rows) + len(rejects)
    return Done(keep_rows(stage, "takes", rows), Account(entered, len(rows), rejects, sources={"sheet": entered}))


@step("write", unit="takes", follows="measure", table="takes", final=True)
def write_takes(stage: Stage, config: StudioTakes, takes: Rows) -> Done[None]:
    """Write the table."""
    rows = list(read_rows(takes))
    kept = stage.write(TAKES, "train", [pa.Table.from_pylist(rows, TAKES.schema)])
    return Done(None, Account(len(rows), kept))
