"""`score-questions`: what a build would ask, told without asking and without getting images."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.annotation import AnnotatorConfig
from schemas.forum import IMAGES
from schemas.score_questions import CORPUS, ScoreQuestions
from tasks.annotation.request import Request
from tasks.annotation.session import Session
from tasks.build.asking import clip_media
from tasks.build.ledger import has_ledger, ledger_address
from tasks.score_questions.asking import (
    DIFFICULTY,
    TAXONOMY,
    distractor_request,
    label_request,
    rewriting_request,
    tie_request,
)
from tasks.score_questions.forum.scrubbing import scrub_threads
from tasks.score_questions.forum.threads import read_comments, read_submissions
from tasks.score_questions.threads import Thread, best_of, shards_of, threads_of, write_pool
from tasks.store.staging import Stage
from tasks.store.versions import Store

QUESTION = " ".join(["word"] * 25)  # stand for texts that are not written yet
OPTION = " ".join(["word"] * 10)


def forecast(config: ScoreQuestions, store: Store) -> dict[str, Any]:
    """What a build would ask at most, one try a text: as if every thread with an image showed a score and became a
    question with one distractor request. Reads the dump; asks nothing, and downloads nothing.

    Raises:
        InputError: a file of the dump is missing.
        LedgerError: the ledger cannot be read.
    """
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(store, CORPUS.name, "dry-run", Path(folder))
        for part in ("work", "steps", "version"):
            (stage.folder / part).mkdir()
        read_submissions(stage, config)
        read_comments(stage, config)
        scrub_threads(stage, config)
        _imagine(stage)
        write_pool(stage, config)
        threads = [thread for shard in shards_of(stage) for thread in threads_of(stage, shard)]
        address = ledger_address(store) if has_ledger(store) else Path(folder) / "ledger.sqlite"
        told = {
            name: _foretold(asked, requests, what, address) for name, asked, requests, what in _steps(config, threads)
        }
    tries = {"rewrite": config.questions.tries, "distract": config.questions.tries, "label": config.questions.tries}
    facts = {name: {**held, "tries": tries.get(name, 1)} for name, held in told.items()}
    return {
        **facts["rewrite"],
        "stage": "rewrite",
        **{n: f for n, f in facts.items() if n != "rewrite" and f["requests"]},
    }


def _imagine(stage: Stage) -> None:
    """An image of a score for each thread, as `work/images.parquet`."""
    threads = pq.read_table(stage.work / "threads.parquet", columns=["thread_key"])["thread_key"].to_pylist()
    nothing = {"width": 0, "height": 0, "difference_hash": "", "detector": "", "score_confidence": 0.0, "staves": []}
    rows = [
        {"thread_key": key, "place": 1, "image_sha256": key * 4, "extension": "png", "is_score": True, **nothing}
        for key in threads
    ]
    pq.write_table(pa.Table.from_pylist(rows, IMAGES), stage.work / "images.parquet")


def _steps(config: ScoreQuestions, threads: Sequence[Thread]) -> list[tuple[str, AnnotatorConfig, list[Request], str]]:
    made = config.questions
    tied = [thread for thread in threads if len(best_of(thread.comments)) > 1]
    lacking = [thread for thread in threads if len(thread.comments) < made.options and made.distractors]
    options = [OPTION] * made.options
    return [
        ("rewrite", config.writer, [rewriting_request(config, thread) for thread in threads], "threads"),
        (
            "settle",
            config.judge,
            _apart([tie_request(config, QUESTION, options[:2], thread.score_image) for thread in tied]),
            "ties",
        ),
        (
            "distract",
            config.writer,
            _apart([distractor_request(config, thread.title, QUESTION, OPTION, [], 1) for thread in lacking]),
            "questions with few answers",
        ),
        (
            "label",
            config.labeller,
            _apart(
                [label_request(config, name, QUESTION, options) for name in (TAXONOMY, DIFFICULTY) for _ in threads]
            ),
            "categories and difficulties",
        ),
    ]


def _apart(requests: Sequence[Request]) -> list[Request]:
    """Requests that only stand for others, told apart, so that equal ones count each."""
    return [replace(request, sample=number) for number, request in enumerate(requests)]


def _foretold(asked: AnnotatorConfig, requests: list[Request], what: str, address: str | Path) -> dict[str, Any]:
    with Session(asked, ledger=address, media=clip_media()) as session:
        found = asdict(session.forecast(requests))
    return {"about": f"{len(requests):,} {what}", "annotator": asked.annotator, **found}
