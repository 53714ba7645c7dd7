"""Threads as reading a forum leaves them, and a whole build of `score-questions` without Prefect's engine.

`python -m tests.score_questions.questions --serve` runs builds as processes of their own, to be killed.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")

import pyarrow as pa

from schemas.config import parse_config, read_toml
from schemas.forum import COMMENTS, IMAGES, THREADS
from schemas.score_questions import CATEGORIES, ScoreQuestions
from tasks.build import plan
from tasks.build.asking import asking
from tasks.score_questions import tables, threads, writing
from tasks.score_questions.detector_report import card_sections
from tasks.score_questions.forum.download import Gate
from tasks.score_questions.forum.images import read_images
from tasks.score_questions.forum.measuring import keep_measure
from tasks.score_questions.forum.scrubbing import scrub_threads
from tasks.score_questions.forum.threads import read_comments, read_submissions
from tasks.score_questions.sources import plan_build
from tasks.store.manifest import Step
from tasks.store.parquet import write_rows
from tasks.store.staging import Stage
from tasks.store.versions import Version, open_store
from tests.builds import serve_builds

BUILTIN: dict[str, Any] = {
    "writer": {"annotator": "builtin:score-writer-1"},
    "judge": {"annotator": "builtin:score-judge-1"},
    "labeller": {"annotator": "builtin:score-labeller-1"},
}
BODIES = (
    "It is a tenuto mark, so hold the note for its full value.",
    "That dash shows where the left hand takes over the melody.",
    "It separates the two voices that share this staff.",
    "The engraver put a short rest there by mistake.",
)

# The code does not change while tests run; reading it anew is a third of what a small build takes.
plan.code_digest = functools.cache(plan.code_digest)  # type: ignore[attr-defined]


def picture(shade: int) -> bytes:
    """A grey PNG of four pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(bytes([0, shade % 256, shade // 256 % 256]) for _ in range(2))
    head = struct.pack(">IIBBBBB", 2, 2, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def thread(number: int, **other: Any) -> dict[str, Any]:
    """A thread with four comments, the first of which people like best."""
    return {
        "key": f"{number:016x}",
        "author": f"{number + 0xA000:016x}",
        "title": f"What does the dash above note {number} mean?",
        "text": "I found it in an old edition.",
        "comments": [(body, 9 - place) for place, body in enumerate(BODIES)],
    } | other


def forum_of(stage: Stage, rows: Sequence[Mapping[str, Any]]) -> None:
    """Leave threads as the steps that read a forum do."""
    held, comments, images = [], [], []
    for number, row in enumerate(sorted(rows, key=lambda row: row["key"])):
        said = row["comments"]
        held.append(
            (row["key"], row["author"], "musictheory", 2015, row["title"], row["text"], 20, len(said), "direct")
        )
        for place, (body, score) in enumerate(sorted(said, key=lambda pair: -pair[1]), 1):
            key = hashlib.sha256(f"{row['key']}{body}".encode()).hexdigest()[:16]
            comments.append((row["key"], key, f"{place:016x}", place, body, len(body.split()), score))
        content = picture(number)
        sha256 = hashlib.sha256(content).hexdigest()
        (stage.work / "images").mkdir(exist_ok=True)
        (stage.work / "images" / f"{sha256}.png").write_bytes(content)
        box = [{"left": 0, "top": 0, "width": 2, "height": 2}]
        images.append((row["key"], 1, sha256, "png", 2, 2, f"{number:016x}", "staff-lines", 0.9, True, box))
    for name, schema, found in (
        ("threads", THREADS, held),
        ("comments", COMMENTS, comments),
        ("images", IMAGES, images),
    ):
        write_rows(stage.work / f"{name}.parquet", schema, found)
    stage.record(Step(name="images", place=3, unit="submissions", entered=len(held), kept=len(held)))


def config_of(folder: Path, **other: Any) -> ScoreQuestions:
    """A config whose dump is empty: threads come from `forum_of`."""
    (folder / "dump.ndjson").touch()
    values = {"corpus": "score-questions", "source": {"submissions": ["dump.ndjson"], "comments": ["dump.ndjson"]}}
    return parse_config(ScoreQuestions, {"most_rejected": None, **values, **BUILTIN, **other}, folder / "my.toml")


def build_questions(config: ScoreQuestions, store: Path, rows: Sequence[Mapping[str, Any]]) -> Version:
    """Build a version of threads by the same steps in the same order as the flow."""
    planned = plan_build(config, open_store(str(store)))
    with planned.stage() as stage:
        forum_of(stage, rows)
        make_questions(stage, config)
        return planned.commit(stage)


def build_dump(config: ScoreQuestions, store: Path, gate: Gate | None = None) -> Version:
    """Build a version of a forum's dump by the same steps in the same order as the flow."""
    planned = plan_build(config, open_store(str(store)))
    with planned.stage() as stage:
        keep_measure(stage, config)
        read_submissions(stage, config)
        read_comments(stage, config)
        scrub_threads(stage, config)
        read_images(stage, config, gate)
        make_questions(stage, config)
        return planned.commit(stage, card_sections(stage))


def make_questions(stage: Stage, config: ScoreQuestions) -> None:
    """All steps after the forum is read."""
    threads.write_pool(stage, config)
    steps: tuple[tuple[Any, Callable[..., int]], ...] = (
        (config.writer, writing.rewrite_shard),
        (config.judge, writing.settle_shard),
        (config.writer, writing.complete_shard),
        (config.labeller, writing.label_shard),
    )
    for annotator, step in steps:
        with asking(stage.store, annotator) as session:
            for shard in threads.shards_of(stage):
                step(stage, config, session, shard)
    tables.write_questions(stage, config)


def rows_of(version: Version, table: str) -> list[dict[str, Any]]:
    """A table's rows."""
    import pyarrow.parquet as pq

    return pa.concat_tables([pq.read_table(path) for path in version.files(table)]).to_pylist()


QUICK: dict[str, Any] = {
    "annotator": "openai:tiny",
    "retry_base_s": 0.01,
    "retry_longest_s": 0.05,
    "total_timeout_s": 10.0,
    "max_concurrency": 4,
}
"""An annotator that does not wait long."""


def asked_by(base_url: str, **other: Any) -> dict[str, Any]:
    """The three annotators of a config, on a local server."""
    return {name: {**QUICK, "base_url": base_url, **other} for name in ("writer", "judge", "labeller")}


def exam_answer(body: Mapping[str, Any], content: str) -> str:
    """What a good examiner says, a function of the request; about every fifth answer has a fault that checks find."""
    schema = ((body.get("response_format") or {}).get("json_schema") or {}).get("schema") or {}
    asked, draw = schema.get("properties", {}), int(content[:8], 16)
    if "usable" in asked:
        return _rewritten(words_in(body), draw)
    if "Option A" in asked:
        names = [f"Option {letter}" for letter in "ABC"]
        wrong = {name: f"{_clause(draw + place)} in bar {place + 2}" for place, name in enumerate(names)}
        return json.dumps(wrong if draw % 5 else {"Option A": "All of the above"})
    if "category" in asked:
        category = list(CATEGORIES)[draw % len(CATEGORIES)]
        other = CATEGORIES[category] if draw % 5 else ("metric structure", "phrase structure")
        return json.dumps({"category": category, "subcategory": other[draw % len(other)]})
    if "difficulty" in asked:
        return json.dumps({"difficulty": ("easy", "medium", "hard")[draw % 3]})
    return "AB"[draw % 2]


def _rewritten(words: str, draw: int) -> str:
    marks = re.findall(r"^Answer (\d+)( \(must be used\))?:$", words, re.MULTILINE)
    numbers = [int(number) for number, _ in marks]
    needed = [int(number) for number, mark in marks if mark]
    chosen = sorted({*needed, *numbers[:4][: 4 - len(needed)]})
    if draw % 5 == 0:
        chosen = [number for number in chosen if number not in needed]
    options = [{"comment": n, "text": f"{_clause(draw + 7 * n)} by reading {n}"} for n in chosen]
    return json.dumps({"usable": True, "why": "", "question": f"What does sign {draw:x} mean?", "options": options})


def _clause(draw: int) -> str:
    signs = ("dash", "dot", "slur", "accent", "turn", "trill", "fermata")
    does = ("prolongs", "shortens", "repeats", "ornaments", "silences")
    return f"The {signs[draw % 7]} {does[draw // 7 % 5]} note number {draw % 1000}"


def words_in(body: Mapping[str, Any]) -> str:
    """All words of the last turn."""
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def build_from_file(config: str, store: str) -> None:
    """What a process that may be killed runs: 60 threads, some with ties."""
    path = Path(config)
    made = [thread(n, comments=[(b, 9 - p // (1 + n % 2)) for p, b in enumerate(BODIES)]) for n in range(60)]
    build_questions(parse_config(ScoreQuestions, read_toml(path), path), Path(store), made)


if __name__ == "__main__":
    plan.code_digest("flows.score_questions")  # type: ignore[attr-defined]
    serve_builds(build_from_file)
