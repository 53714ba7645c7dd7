"""Small forums for tests: submissions and comments in the layouts of dumps, and a stage to read them in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zstandard

from earmark.schemas.score_questions import ScoreQuestions
from earmark.tasks.score_questions.forum.scrubbing import Texts, forget_names, scrub_threads
from earmark.tasks.score_questions.forum.threads import read_comments, read_submissions
from earmark.tasks.store.staging import Stage, staging
from earmark.tasks.store.versions import open_store

SALT = "a salt that only tests use"
IMAGE = "https://i.redd.it/bars.png"
OFFLINE = {"annotator": "builtin:questions"}


def submission(number: int, **changes: Any) -> dict[str, Any]:
    """A submission that passes every filter, in the newer layout."""
    return {
        "id": f"s{number:04d}",
        "subreddit": "MusicTheory",
        "author": f"asker_{number}",
        "created_utc": 1_500_000_000 + number,
        "title": f"What chord is in bar {number}?",
        "selftext": "I cannot name it.",
        "url": IMAGE,
        "over_18": False,
        "removed_by_category": None,
        "media_metadata": None,
        "score": 5,
        "edited": False,
        **changes,
    }


def comment(number: int, thread: int, **changes: Any) -> dict[str, Any]:
    """A first-level comment, in the newer layout."""
    return {
        "id": f"c{number:05d}",
        "link_id": f"t3_s{thread:04d}",
        "parent_id": f"t3_s{thread:04d}",
        "author": f"helper_{number}",
        "body": f"It is a dominant seventh, number {number}.",
        "score": number % 7,
        "created_utc": 1_500_000_500,
        **changes,
    }


def write_dump(path: Path, rows: Sequence[dict[str, Any] | bytes]) -> Path:
    """Write rows as NDJSON, packed where the name ends in `.zst`; bytes are written as they are."""
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    content = b"".join(line + b"\n" for line in lines)
    path.write_bytes(zstandard.compress(content) if path.suffix == ".zst" else content)
    return path


def forum_config(folder: Path, **changes: Any) -> ScoreQuestions:
    """A config that reads `RS.ndjson` and `RC.ndjson` of a folder."""
    values: dict[str, Any] = {
        "source": {"submissions": ["RS.ndjson"], "comments": ["RC.ndjson"], "subreddits": ["musictheory"]},
        "writer": OFFLINE,
        "judge": OFFLINE,
        "labeller": OFFLINE,
        "base": folder,
    }
    return ScoreQuestions.model_validate({**values, **changes})


@contextmanager
def forum_stage(folder: Path) -> Iterator[Stage]:
    """A stage of a store below a folder."""
    with staging(open_store(str(folder / "store")), "score-questions", "0" * 64, say=print) as stage:
        yield stage


def read_threads(stage: Stage, config: ScoreQuestions) -> tuple[Path, Texts]:
    """Read a dump as the flow does, up to the images: the candidates, and texts without names."""
    candidates = read_submissions(stage, config)
    answers = read_comments(stage, config, candidates)
    texts = scrub_threads(stage, config, candidates, answers)
    forget_names(stage, but=candidates)
    return candidates, texts
