"""Critiques (MOS-RMBench): what a critic is asked about clips and pairs of clips, and which answers are valid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import pyarrow as pa

from schemas.critiques import ASPECTS, Critiques
from schemas.rewards import final_scores, prefers
from tasks.annotation.backend import question
from tasks.annotation.outcome import Answer, Reject
from tasks.annotation.prompts import Prompt, load_prompt
from tasks.annotation.request import Audio, AudioForm, Request
from tasks.annotation.session import Session
from tasks.build.asking import Checked, Fault, ask_checked
from tasks.store.parquet import write_rows
from tasks.store.staging import Stage

PROMPT_OF = {"single": "speech-critique", "paired": "speech-critique-pair"}
SIDES = {"single": ("first",), "paired": ("first", "second")}
QUESTIONS_A_SHARD = 500
SAID = pa.schema(
    [
        ("kind", pa.string()),
        ("item", pa.string()),
        *((aspect, pa.string()) for aspect in ASPECTS),
        ("rationale", pa.string()),
        ("first_score", pa.int64()),
        ("second_score", pa.int64()),
        ("request_key", pa.string()),
        ("tries", pa.int64()),
        ("notes", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("final", pa.bool_()),
    ]
)

Row = Mapping[str, Any]


def prompt_of(kind: str) -> Prompt:
    """The prompt that asks about single clips or about pairs."""
    return load_prompt(Path(str(resources.files("prompts"))), PROMPT_OF[kind])


def kinds_asked(critiques: Critiques | None) -> list[str]:
    """Which kinds of questions a config asks."""
    if critiques is None:
        return []
    return [kind for kind, count in (("single", critiques.clips), ("paired", critiques.pairs)) if count != 0]


def prompt_digests(critiques: Critiques | None) -> dict[str, str]:
    """SHA-256 of the prompts that ask, by name and version."""
    return {prompt.id: prompt.sha256 for prompt in map(prompt_of, kinds_asked(critiques))}


def requests_of(critiques: Critiques, rows: Sequence[Row]) -> list[Request]:
    """The first draw of each question.

    Args:
        critiques: who is asked.
        rows: rows of the file of questions, with `first_path` and `second_path`. Nothing but the clips' audio reaches a
            request: no id, no file name, no MOS.
    """
    form = AudioForm(**critiques.hearing.model_dump())
    prompts = {kind: prompt_of(kind) for kind in kinds_asked(critiques)}
    requests = []
    for row in rows:
        clips = [
            Audio(row[f"{side}_sha256"], str(row[f"{side}_path"]), duration_s=row[f"{side}_duration_s"], form=form)
            for side in SIDES[row["kind"]]
        ]
        prompt = prompts[row["kind"]]
        if row["kind"] == "single":
            requests.append(question(critiques, prompt.render(clip=clips[0]), prompt.ask))
        else:
            requests.append(question(critiques, prompt.render(first=clips[0], second=clips[1])))
    return requests


def pair_fault(text: str, row: Row) -> Fault | None:
    """What is wrong with a comparison: no scores on its last line, a missing part, or scores that the listeners do not
    share."""
    scores = final_scores(text)
    if scores is None:
        last = text.strip().rpartition("\n")[2][:80]
        return Fault("scores_unreadable", f"expected the last line 'Final Scores: [[x, y]]', found {last!r}")
    rationale = text.casefold()
    missing = [aspect for aspect in ASPECTS if f"{aspect}:" not in rationale]
    if missing:
        return Fault("part_missing", f"expected a part on {missing[0]}; scores {scores[0]} and {scores[1]}")
    if prefers(scores) != row["better"]:
        return Fault(
            "scores_disagree",
            f"expected a higher score for the {row['better']} clip, found {scores[0]} and {scores[1]} "
            f"(MOS {row['first_mos']:.2f} and {row['second_mos']:.2f})",
        )
    return None


def critique_shard(stage: Stage, critiques: Critiques, session: Session, rows: Sequence[Row], shard: int) -> None:
    """Ask about one shard of clips and pairs; what the ledger holds is not asked again.

    Leaves `work/critiques/said/<shard>.parquet`, a row a question: its valid answer, or why there is none.

    Raises:
        StopRun: a fault that every request would meet, or the budget's end; the build can be resumed.
    """

    def check(place: int, value: Any) -> Fault | None:
        return pair_fault(value, rows[place]) if rows[place]["kind"] == "paired" else None

    checked = ask_checked(session, requests_of(critiques, rows), check, critiques.tries)
    said = [_said(row, one) for row, one in zip(rows, checked, strict=True)]
    write_rows(stage.work / "critiques" / "said" / f"{shard:06d}.parquet", SAID, said)


def _said(row: Row, one: Checked) -> tuple[Any, ...]:
    head = (row["kind"], row["item"])
    tail = (one.outcome.key, one.tries, "; ".join(one.outcome.notes) or None)
    if one.failure is not None:
        reason, detail = one.failure
        tried = f"; asked {one.tries} times" if one.tries > 1 else ""
        final = one.outcome.final if isinstance(one.outcome, Reject) else True
        return (*head, *[None] * 7, *tail, reason, detail + tried, final)
    assert isinstance(one.outcome, Answer)
    value = one.outcome.value
    if row["kind"] == "single":
        return (*head, *(value[aspect].strip() for aspect in ASPECTS), None, None, None, *tail, None, None, None)
    scores = final_scores(value)
    assert scores is not None
    return (*head, *[None] * 4, value.strip(), *scores, *tail, None, None, None)
