"""Threads as reading a forum leaves them, and a whole build of `score-questions` by its flow.

`python -m tests.score_questions.questions --serve` runs builds as processes of their own, to be killed.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from earmark.flows import score_questions as flow
from earmark.schemas.forum import COMMENTS, IMAGES, THREADS
from earmark.schemas.score_questions import CATEGORIES, ScoreQuestions
from earmark.schemas.toml import parse_config, read_toml
from earmark.tasks.pipeline import plan
from earmark.tasks.score_questions.forum.download import Gate
from earmark.tasks.score_questions.forum.images import find_scores, image_folder
from earmark.tasks.score_questions.forum.scrubbing import Texts
from earmark.tasks.store.manifest import Step
from earmark.tasks.store.parquet import write_rows
from earmark.tasks.store.staging import Stage
from earmark.tasks.store.versions import Version
from tests.builds import config_from, serve_builds
from tests.runner import run_flow

BUILTIN: dict[str, Any] = {
    "writer": {"annotator": "builtin:score-writer-1"},
    "judge": {"annotator": "builtin:score-judge-1"},
    "labeller": {"annotator": "builtin:score-labeller-1"},
    "reader": {"annotator": "builtin:score-reader-1"},
}
BODIES = (
    "It is a tenuto mark, so hold the note for its full value.",
    "That dash shows where the left hand takes over the melody.",
    "It separates the two voices that share this staff.",
    "The engraver put a short rest there by mistake.",
)


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


def forum_of(stage: Stage, rows: Sequence[Mapping[str, Any]]) -> tuple[Texts, Path]:
    """Leave threads as the steps that read a forum do: texts, and images that all show scores."""
    texts, comments, images = [], [], []
    image_folder(stage).mkdir(exist_ok=True)
    for number, row in enumerate(sorted(rows, key=lambda row: row["key"])):
        own = row["comments"]
        texts.append(
            (row["key"], row["author"], "musictheory", 2015, row["title"], row["text"], 20, len(own), "direct")
        )
        for place, (body, score) in enumerate(sorted(own, key=lambda pair: -pair[1]), 1):
            key = hashlib.sha256(f"{row['key']}{body}".encode()).hexdigest()[:16]
            comments.append((row["key"], key, f"{place:016x}", place, body, len(body.split()), score, False))
        content = picture(number)
        sha256 = hashlib.sha256(content).hexdigest()
        (image_folder(stage) / f"{sha256}.png").write_bytes(content)
        box = [{"left": 0, "top": 0, "width": 2, "height": 2}]
        images.append((row["key"], 1, sha256, "png", 2, 2, f"{number:016x}", "staff-lines", 0.9, True, "score", box))
    paths = [stage.work / f"{name}.parquet" for name in ("threads", "comments", "images")]
    for path, schema, tuples in zip(paths, (THREADS, COMMENTS, IMAGES), (texts, comments, images), strict=True):
        write_rows(path, schema, tuples)
    return Texts(paths[0], paths[1]), paths[2]


def config_of(folder: Path, **other: Any) -> ScoreQuestions:
    """A config whose dump is empty: threads come from `forum_of`."""
    (folder / "dump.ndjson").touch()
    values = {"corpus": "score-questions", "source": {"submissions": ["dump.ndjson"], "comments": ["dump.ndjson"]}}
    other["questions"] = {"wrong": "comments", **other.get("questions", {})}
    return config_from(ScoreQuestions, {"most_rejected": None, **values, **BUILTIN, **other}, folder / "my.toml")


@contextmanager
def forum_is(rows: Sequence[Mapping[str, Any]]) -> Iterator[None]:
    """Within the block the flow asks about these threads, without the steps that read a forum."""

    def scores(stage: Stage, *_: Any) -> Path:
        _, images = forum_of(stage, rows)
        stage.record(Step(name="scores", place=1, unit="submissions", entered=len(rows), kept=len(rows)))
        return images

    steps: dict[str, Any] = dict.fromkeys(("read_submissions", "read_comments"), lambda *_: None)
    steps |= {"scrub_threads": lambda stage, *_: forum_of(stage, rows)[0], "find_scores": scores}
    with patch.multiple(flow, **steps):
        yield


def build_questions(config: ScoreQuestions, store: Path, rows: Sequence[Mapping[str, Any]]) -> Version:
    """Build a version of threads by the flow, without the steps that read a forum."""
    with forum_is(rows):
        return run_flow(flow.build, config, store)


def build_dump(config: ScoreQuestions, store: Path, gate: Gate | None = None) -> Version:
    """Build a version of a forum's dump by the flow."""
    with patch.object(flow, "find_scores", partial(find_scores, gate=gate)):
        return run_flow(flow.build, config, store)


def rows_of(version: Version, table: str) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    return pa.concat_tables([pq.read_table(path) for path in version.files(table)]).to_pylist()


QUICK: dict[str, Any] = {
    "annotator": "openai:tiny",
    "retry_base_s": 0.01,
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
        wrong = {name: f"{_clause(draw + place)} in bar {place + 2}" for place, name in enumerate(asked)}
        return json.dumps(wrong if draw % 5 else {**wrong, "Option A": "All of the above"})
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
    plan.code_digest("earmark.flows.score_questions")  # type: ignore[attr-defined]
    serve_builds(build_from_file)
