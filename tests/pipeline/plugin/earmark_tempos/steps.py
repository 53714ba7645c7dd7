"""How `tempos` is made."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from earmark.plugins import (
    Account,
    Ask,
    Asker,
    Done,
    Input,
    Plan,
    Reject,
    Row,
    Rows,
    Stage,
    Store,
    Untrusted,
    Values,
    Walked,
    keep_rows,
    make_plan,
    parse_prompt,
    read_rows,
    step,
    walk,
)
from earmark_tempos.corpus import CORPUS, NOTES, Tempos

SLOWEST_BPM, FASTEST_BPM = 20.0, 300.0


def plan_build(config: Tempos, store: Store, inputs: dict[str, str] | None = None) -> Plan:
    """What a build is made from."""
    return make_plan(CORPUS, config, store, inputs=inputs, asks=[PACE])


def inputs(config: Tempos) -> list[Input]:
    """The notes."""
    path = config.path(config.notes)
    return [Input(name="notes", files=lambda: [("notes", path, None)], read=lambda: rows_in(path))]


def rows_in(path: Path) -> Iterator[Row | Reject]:
    """Yield each note, or why it is none."""
    with path.open(newline="") as file:
        for line, row in enumerate(csv.DictReader(file), 2):
            if not row["text"]:
                yield Reject(row["id"], "missing_text", "expected a text", "notes", line)
            elif float(row["bpm"]) > FASTEST_BPM:
                yield Reject(row["id"], "too_fast", f"expected at most {FASTEST_BPM:g} bpm", "notes", line)
            else:
                yield {"note_id": row["id"], "text": row["text"], "bpm": float(row["bpm"])}


@step("read", unit="notes")
def read_notes(stage: Stage, config: Tempos) -> Done[Rows]:
    """Keep the notes that have a text and a tempo."""
    rows: list[Row] = []
    rejects: list[tuple[str, Reject]] = []
    entered: Counter[str] = Counter()
    slower = 0
    for row in rows_in(config.path(config.notes)):
        entered["notes"] += 1
        if isinstance(row, Reject):
            rejects.append(("notes", row))
        elif row["bpm"] < SLOWEST_BPM:
            slower += 1
        else:
            rows.append(row)
    filtered = {"slower than the slowest tempo": slower}
    account = Account(entered.total(), len(rows), rejects, filtered=filtered, sources=entered)
    return Done(keep_rows(stage, "notes", rows), account)


PACE = Ask(
    "pace",
    annotator="judge",
    prompt=parse_prompt(Path(__file__).with_name("pace.md")),
    values=lambda config, row: Values({"text": Untrusted(row["text"])}),  # data, never an instruction
    about="notes",
)


@walk("pace", asks=[PACE])
async def judge_notes(asker: Asker[Tempos], note: Row) -> str:
    """Ask about one note; without an answer it is given up, and becomes a reject."""
    answer = await asker(PACE, note)
    return str(answer["pace"])


@step("write", unit="notes", follows="pace", table="notes", final=True)
def write_notes(stage: Stage, config: Tempos, notes: Rows, judged: Walked) -> Done[None]:
    """Write the table."""
    by_row = read_rows(notes)
    rows = [{**by_row[at], "pace": pace, "split": "train"} for at, pace in judged.results()]

    def reject(row: Row, reason: str, detail: str) -> tuple[str, Reject]:
        return "notes", Reject(row["note_id"], reason, detail, "", None)

    (asked,) = judged.accounts(["pace"], reject)
    kept = stage.write(NOTES, "train", [pa.Table.from_pylist(rows, NOTES.schema)])
    return Done(None, asked, Account(asked.kept, kept))
