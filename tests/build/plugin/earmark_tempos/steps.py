"""How `tempos` is made."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pyarrow as pa

from earmark.tasks.annotation.prompts import Prompt, Untrusted, parse_prompt
from earmark.tasks.build.ask import Ask, Asker, Posed, Row, pose
from earmark.tasks.build.fingerprint import file_digests
from earmark.tasks.build.plan import Plan, make_plan
from earmark.tasks.build.rows import Rows, keep_rows, read_rows
from earmark.tasks.build.step import Account, Done, step
from earmark.tasks.build.walk import Walked, walk
from earmark.tasks.importers.rows import Reject
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Store
from earmark_tempos.corpus import CORPUS, NOTES, Tempos

SLOWEST_BPM = 20.0


def prompt() -> Prompt:
    """What the judge is asked."""
    return parse_prompt(Path(__file__).with_name("pace.md"))


def plan_build(config: Tempos, store: Store, inputs: dict[str, str] | None = None) -> Plan:
    """What a build is made from."""
    prompts, models = {prompt().id: prompt().sha256}, (config.judge.annotator,)

    def digests() -> dict[str, str]:
        return file_digests([("notes", config.path(config.notes))])

    return make_plan(CORPUS, config, store, digests, inputs=inputs, prompts=prompts, models=models)


@step("read", unit="notes")
def read_notes(stage: Stage, config: Tempos) -> Done[Rows]:
    """Keep the notes that have a text and a tempo."""
    rows: list[Row] = []
    rejects: list[tuple[str, Reject]] = []
    entered: Counter[str] = Counter()
    slower = 0
    with config.path(config.notes).open(newline="") as file:
        for line, row in enumerate(csv.DictReader(file), 2):
            entered["notes"] += 1
            if not row["text"]:
                rejects.append(("notes", Reject(row["id"], "missing_text", "expected a text", "notes", line)))
            elif float(row["bpm"]) < SLOWEST_BPM:
                slower += 1
            else:
                rows.append({"note_id": row["id"], "text": row["text"], "bpm": float(row["bpm"])})
    filtered = {"slower than the slowest tempo": slower}
    account = Account(entered.total(), len(rows), rejects, filtered=filtered, sources=entered)
    return Done(keep_rows(stage, "notes", rows), account)


def pace_request(config: Tempos, row: Row) -> Posed:
    """The question about a note; its words are data, never an instruction."""
    return pose(config.judge, prompt(), text=Untrusted(row["text"]))


def imagine_pace(config: Tempos, row: Row) -> dict[str, str]:
    """What a dry run takes for an answer."""
    return {"pace": "fast"}


PACE = Ask("pace", annotator="judge", request=pace_request, imagine=imagine_pace, about="notes")


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
