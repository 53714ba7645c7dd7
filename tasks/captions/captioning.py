"""`captions`: shards of tracks go through the stages of every pipeline; the ledger answers what was asked before."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.annotation import AnnotatorConfig
from schemas.caption_checks import Checks
from schemas.captions import CORPUS, Captions, Judging, Listening, Pipeline, Refining
from tasks.annotation.backend import Media
from tasks.annotation.outcome import Answer, Outcome, Reject
from tasks.annotation.request import Request
from tasks.annotation.session import Session
from tasks.audio.encode import SharedEncoder
from tasks.build.asking import Check, Checked, Fault, ask_checked, asking, clip_media
from tasks.build.ledger import has_ledger, ledger_address
from tasks.captions.asking import (
    JUDGING,
    Piece,
    judging_request,
    listening_prompt,
    listening_request,
    pieces_of,
    prompt_named,
    refining_prompt,
    refining_request,
)
from tasks.captions.checks import find_faults
from tasks.captions.tracks import import_tracks, index_tracks, shards_of, tracks_of
from tasks.store.parquet import write_rows
from tasks.store.staging import Stage
from tasks.store.versions import Store

SAID = pa.schema(
    [
        ("row", pa.int64()),
        ("pipeline", pa.string()),
        ("segment", pa.int64()),
        ("stage", pa.string()),
        ("span", pa.int64()),
        ("start_s", pa.float64()),
        ("end_s", pa.float64()),
        ("text", pa.string()),
        ("model", pa.string()),
        ("prompt", pa.string()),
        ("request_key", pa.string()),
        ("sample", pa.int64()),
        ("flags", pa.list_(pa.string())),
        ("notes", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("final", pa.bool_()),
        ("last", pa.bool_()),  # of the draws of one request
    ]
)
DESCRIPTION = " ".join(["word"] * 60)  # stands for a description that is not written yet, in a forecast

Sessions: TypeAlias = Mapping[str, Session]
Row: TypeAlias = tuple[Any, ...]


@contextmanager
def listeners(store: Store, config: Captions, encoder: SharedEncoder) -> Iterator[Sessions]:
    """A session for the stage that hears of each pipeline. They share decoded audio."""
    media = clip_media(encoder)
    with _sessions(store, {pipeline.name: pipeline.listen for pipeline in config.pipelines}, media) as sessions:
        yield sessions


@contextmanager
def refiners(store: Store, config: Captions) -> Iterator[Sessions]:
    """A session for the stage that refines, of each pipeline that has one."""
    stages = {pipeline.name: pipeline.refine for pipeline in config.pipelines if pipeline.refine}
    with _sessions(store, stages, clip_media()) as sessions:
        yield sessions


@contextmanager
def judges(store: Store, config: Captions) -> Iterator[Sessions]:
    """A session for the stage that judges, of each pipeline that has one."""
    stages = {pipeline.name: pipeline.judge for pipeline in config.pipelines if pipeline.judge}
    with _sessions(store, stages, clip_media()) as sessions:
        yield sessions


@contextmanager
def _sessions(store: Store, stages: Mapping[str, AnnotatorConfig], media: Media) -> Iterator[Sessions]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(asking(store, stage, media)) for name, stage in stages.items()}


def listen_shard(stage: Stage, config: Captions, sessions: Sessions, encoder: SharedEncoder, shard: int) -> int:
    """Have one shard of tracks heard by every pipeline. Leaves `work/listened/<shard>.parquet`.

    Returns:
        How many tracks it held.

    Raises:
        StopRun: a fault that every request would meet, or the budget's end; the build can be resumed.
    """
    tracks = tracks_of(stage, shard)
    pieces = {pipeline.name: list(pieces_of(pipeline, tracks)) for pipeline in config.pipelines}
    rows: list[Row] = []
    with encoder.expecting([piece.audio for held in pieces.values() for piece in held]):
        for pipeline in config.pipelines:
            requests = [listening_request(pipeline, piece) for piece in pieces[pipeline.name]]
            checks = pipeline.listen.held_to
            told = ask_checked(sessions[pipeline.name], requests, _check(checks), pipeline.listen.tries)
            facts = (pipeline.listen.annotator, listening_prompt(pipeline).id)
            for piece, one in zip(pieces[pipeline.name], told, strict=True):
                rows += _draws((*piece[:3], "listen", *piece[3:6]), facts, one, checks)
    write_rows(stage.work / "listened" / f"{shard:06d}.parquet", SAID, rows)
    return len(tracks)


def refine_shard(stage: Stage, config: Captions, sessions: Sessions, shard: int) -> int:
    """Have what was heard of one shard refined. Leaves `work/refined/<shard>.parquet`.

    Returns:
        How many texts were written or failed, each counted once however often it was drawn.

    Raises:
        StopRun: as `listen_shard`.
    """
    heard = _rows(stage, "listened", shard)
    rows: list[Row] = []
    texts = 0
    for pipeline in config.pipelines:
        if pipeline.refine is None:
            continue
        segments = _whole([row for row in heard if row["pipeline"] == pipeline.name])
        texts += len(segments)
        requests = [refining_request(pipeline, pipeline.refine, [row["text"] for row in held]) for held in segments]
        checks = pipeline.refine.checks
        told = ask_checked(sessions[pipeline.name], requests, _check(checks), pipeline.refine.tries)
        facts = (pipeline.refine.annotator, refining_prompt(pipeline).id)
        for held, one in zip(segments, told, strict=True):
            head = (held[0]["row"], pipeline.name, held[0]["segment"], "refine", 0)
            rows += _draws((*head, held[0]["start_s"], held[-1]["end_s"]), facts, one, checks)
    write_rows(stage.work / "refined" / f"{shard:06d}.parquet", SAID, rows)
    return texts


def judge_shard(stage: Stage, config: Captions, sessions: Sessions, shard: int) -> int:
    """Have a judge read what was written of one shard. Leaves `work/judged/<shard>.parquet`.

    A caption that speaks of voices gets the flag `implies_vocals`, or that reason, as the config says.

    Returns:
        How many captions were read.

    Raises:
        StopRun: as `listen_shard`.
    """
    written = {"listen": _rows(stage, "listened", shard), "refine": _rows(stage, "refined", shard)}
    rows: list[Row] = []
    for pipeline in config.pipelines:
        if (judge := pipeline.judge) is None:
            continue
        texts = [row for row in written[pipeline.last] if row["pipeline"] == pipeline.name and row["reason"] is None]
        report = sessions[pipeline.name].ask([judging_request(judge, row["text"]) for row in texts])
        facts = (judge.annotator, prompt_named(JUDGING).id)
        for row, outcome in zip(texts, report.outcomes, strict=True):
            head = (row["row"], pipeline.name, row["segment"], "judge", 0, row["start_s"], row["end_s"])
            rows.append((*head, *_judged(judge, facts, outcome)))
    write_rows(stage.work / "judged" / f"{shard:06d}.parquet", SAID, rows)
    return len(rows)


def _judged(judge: Judging, facts: tuple[str, str], outcome: Outcome) -> Row:
    notes = "; ".join(outcome.notes) or None
    if isinstance(outcome, Reject):
        return (None, *facts, outcome.key, 0, [], notes, outcome.reason, outcome.detail, outcome.final, True)
    p_yes = outcome.value["p_yes"]
    found = p_yes >= judge.least
    flags = ["implies_vocals"] if found and judge.action == "flag" else []
    detail = f"expected no word of voices, found one by {judge.annotator}, with a probability of {p_yes:.3f}"
    fault = ("implies_vocals", detail) if found and judge.action == "reject" else (None, None)
    return (f"{p_yes:.6f}", *facts, outcome.key, 0, flags, notes, *fault, True, True)


def _rows(stage: Stage, part: str, shard: int) -> list[dict[str, Any]]:
    """What was said at last."""
    rows: list[dict[str, Any]] = pq.ParquetFile(stage.work / part / f"{shard:06d}.parquet").read().to_pylist()
    return [row for row in rows if row["last"]]


def _whole(heard: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The spans of each segment of which every span has a text, in order."""
    segments: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for row in heard:
        segments.setdefault((row["row"], row["segment"]), []).append(row)
    return [held for held in segments.values() if all(row["reason"] is None for row in held)]


def _check(checks: Checks) -> Check:
    """The first fault of a text that is not only noted."""

    def check(place: int, text: Any) -> Fault | None:
        return next((fault for fault in find_faults(text, checks) if fault.reason not in checks.flag), None)

    return check


def _draws(head: Row, facts: tuple[str, str], one: Checked, checks: Checks) -> list[Row]:
    """Every draw of a request, the last one at the end."""
    return [_said(head, facts, draw, checks, last=draw is one) for draw in (*one.earlier, one)]


def _said(head: Row, facts: tuple[str, str], one: Checked, checks: Checks, *, last: bool) -> Row:
    text = one.outcome.value.strip() if isinstance(one.outcome, Answer) else None
    noted: list[str] = []
    if text and checks.flag:
        noted = [fault.reason for fault in find_faults(text, checks) if fault.reason in checks.flag]
    reason, detail = one.failure or (None, None)
    if detail and one.tries > 1:
        detail = f"{detail}; asked {one.tries} times"
    final = one.outcome.final if isinstance(one.outcome, Reject) else True
    notes = "; ".join(one.outcome.notes) or None
    return (*head, text, *facts, one.outcome.key, one.sample, noted, notes, reason, detail, final, last)


def forecast(config: Captions, store: Store) -> dict[str, Any]:
    """What a build would ask at least: one try a text, every stage by itself. Asks nothing.

    A refining stage's texts are not written yet; each span counts as sixty words.

    Raises:
        InputError: the list is missing.
        LedgerError: the ledger cannot be read.
    """
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(store, CORPUS.name, "dry-run", Path(folder))
        for part in ("work", "steps", "version"):
            (stage.folder / part).mkdir()
        import_tracks(stage, config)
        index_tracks(stage, config, extract=False)
        tracks = [row for shard in shards_of(stage) for row in tracks_of(stage, shard, heard=False)]
        address = ledger_address(store) if has_ledger(store) else Path(folder) / "ledger.sqlite"
        told = {}
        for pipeline in config.pipelines:
            pieces = list(pieces_of(pipeline, tracks))
            told[f"{pipeline.name}: listen"] = _foretold(
                pipeline.listen, [listening_request(pipeline, p) for p in pieces], pipeline, "spans of tracks", address
            )
            if pipeline.refine is not None:
                requests = [
                    refining_request(pipeline, pipeline.refine, [DESCRIPTION] * count)
                    for count in _spans_by_segment(pieces)
                ]
                told[f"{pipeline.name}: refine"] = _foretold(
                    pipeline.refine, requests, pipeline, "texts about them", address, distinct=False
                )
            if pipeline.judge is not None:
                requests = [judging_request(pipeline.judge, DESCRIPTION)] * len(_spans_by_segment(pieces))
                told[f"{pipeline.name}: judge"] = _foretold(
                    pipeline.judge, requests, pipeline, "captions", address, distinct=False
                )
    first, *others = told
    return {**told[first], "stage": first, **{name: told[name] for name in others}}


def _spans_by_segment(pieces: Sequence[Piece]) -> list[int]:
    counts: dict[tuple[int, int], int] = {}
    for piece in pieces:
        counts[piece.row, piece.segment] = counts.get((piece.row, piece.segment), 0) + 1
    return list(counts.values())


def _foretold(
    asked: Listening | Refining | Judging,
    requests: list[Request],
    pipeline: Pipeline,
    what: str,
    address: str | Path,
    *,
    distinct: bool = True,
) -> dict[str, Any]:
    """One stage's forecast. Requests that only stand for others are told apart, so that equal ones count each."""
    if not distinct:
        requests = [replace(request, sample=number) for number, request in enumerate(requests)]
    with Session(asked, ledger=address, media=clip_media()) as session:
        found = asdict(session.forecast(requests))
    about = f"{len(requests):,} {what} ({pipeline.name})"
    tries = 1 if isinstance(asked, Judging) else asked.tries
    return {"about": about, "annotator": asked.annotator, "tries": tries, **found}
