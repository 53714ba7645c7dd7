"""`captions`: which seconds of a track are heard, and the requests of both stages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from schemas.captions import Captions, Judging, Listening, Pipeline, Refining
from tasks.annotation.backend import question
from tasks.annotation.prompts import Prompt, load_prompt
from tasks.annotation.request import Audio, AudioForm, Request, YesNo
from tasks.importers.jamendo import MARK, Tag
from tasks.text.tag_words import vocal_tags, written

JUDGING = "caption-voices"
Span = tuple[float, float]
TRACKS_A_SHARD = 50
HEARD_A_SHARD_S = 6_000.0  # encoded, it is in memory at once: about 1 MB for each half minute at 16 kHz
LISTENING = {"direct": "caption-direct", "describe": "caption-describe", "mix": "caption-mix"}


class Piece(NamedTuple):
    """One span of one segment of a track, for one pipeline."""

    row: int
    pipeline: str
    segment: int
    span: int
    start_s: float
    end_s: float
    audio: Audio
    tags: list[str]


@cache
def prompt_named(name: str) -> Prompt:
    """A prompt of the repository."""
    return load_prompt(Path(str(resources.files("prompts"))), name)


def listening_prompt(pipeline: Pipeline) -> Prompt:
    """The prompt that the stage that hears is asked with."""
    return prompt_named(LISTENING[pipeline.listen.ask])


def refining_prompt(pipeline: Pipeline) -> Prompt:
    """The prompt that the stage that refines is asked with."""
    return prompt_named("caption-merge" if pipeline.listen.spans > 1 else "caption-refine")


def prompt_digests(config: Captions) -> dict[str, str]:
    """SHA-256 of the prompts that ask, by name and version."""
    prompts = [listening_prompt(pipeline) for pipeline in config.pipelines]
    prompts += [refining_prompt(pipeline) for pipeline in config.pipelines if pipeline.refine]
    prompts += [prompt_named(JUDGING) for pipeline in config.pipelines if pipeline.judge]
    return {prompt.id: prompt.sha256 for prompt in prompts}


def annotators(config: Captions) -> tuple[str, ...]:
    """Every model that is asked, once, in the order of the config."""
    return tuple(dict.fromkeys(stage.annotator for pipeline in config.pipelines for stage in pipeline.stages.values()))


def cut(duration_s: float, listen: Listening) -> list[list[Span]]:
    """Which seconds of a track are heard: for each segment its spans, in order, none longer than the model hears.

    Args:
        duration_s: length of the track.
        listen: the stage that hears.
    """
    parts = max(1, math.ceil(round(duration_s / listen.hears_s, 6)))
    if listen.segments:
        length = duration_s / parts
        return [[_span(number * length, (number + 1) * length)] for number in range(parts)]
    if parts == 1:
        return [[_span(0.0, duration_s)]]
    spare = duration_s - listen.hears_s
    if listen.spans == 1:
        start = spare / 2 if listen.where == "middle" else 0.0
        return [[_span(start, start + listen.hears_s)]]
    count = min(listen.spans, parts)
    starts = [spare * number / (count - 1) for number in range(count)]
    return [[_span(start, start + listen.hears_s) for start in starts]]


def _span(start_s: float, end_s: float) -> Span:
    return round(start_s, 3), round(end_s, 3)


def shard_sizes(config: Captions, durations_s: Sequence[float]) -> list[int]:
    """How many tracks each shard has: no more than a number of them, and no more sound than fits in memory.

    A track that is longer by itself is a shard of its own. With a provider's batch API a shard fills a batch; what is
    heard of it is then encoded as it is sent.
    """
    stages = [stage for pipeline in config.pipelines for stage in pipeline.stages.values()]
    batch = max((stage.batch_requests for stage in stages if stage.batch), default=0)
    most, most_s = max(TRACKS_A_SHARD, batch), math.inf if batch else HEARD_A_SHARD_S
    sizes: list[int] = []
    full_s = math.inf
    for duration_s in durations_s:
        heard_s = sum(
            end - start
            for pipeline in config.pipelines
            for spans in cut(duration_s, pipeline.listen)
            for start, end in spans
        )
        if not sizes or sizes[-1] == most or full_s + heard_s > most_s:
            sizes.append(0)
            full_s = 0.0
        sizes[-1] += 1
        full_s += heard_s
    return sizes


def pieces_of(pipeline: Pipeline, tracks: Sequence[Mapping[str, Any]]) -> Iterator[Piece]:
    """What a pipeline hears of tracks (rows of `pool.sql`)."""
    form = AudioForm(**pipeline.listen.hearing.model_dump())
    for track in tracks:
        duration_s = track["duration_s"]
        for segment, spans in enumerate(cut(duration_s, pipeline.listen)):
            for number, (start_s, end_s) in enumerate(spans):
                audio = Audio(
                    track["clip_sha256"],
                    track["path"],
                    start_s=start_s or None,
                    end_s=end_s if end_s < duration_s - 0.001 else None,
                    duration_s=duration_s,
                    form=form,
                )
                yield Piece(track["row"], pipeline.name, segment, number, start_s, end_s, audio, track["tags"])


def listening_request(pipeline: Pipeline, piece: Piece) -> Request:
    """What a model is asked about a span. Nothing but its audio reaches a model; builtin ones get the tags too."""
    messages = listening_prompt(pipeline).render(clip=piece.audio)
    tags = [Tag(category, name) for category, _, name in (mark.partition(MARK) for mark in piece.tags)]
    words = [written(tag) for tag in tags if tag not in vocal_tags()]
    return question(pipeline.listen, messages, facts={"tags": words})


def refining_request(pipeline: Pipeline, refine: Refining, texts: Sequence[str]) -> Request:
    """What a model is asked about the texts of a segment's spans."""
    prompt = refining_prompt(pipeline)
    merged = prompt.name == "caption-merge"
    messages = prompt.render(descriptions=list(texts)) if merged else prompt.render(description=texts[0])
    return question(refine, messages, facts={"texts": list(texts)})


def judging_request(judge: Judging, caption: str) -> Request:
    """Whether a caption speaks of voices."""
    return question(judge, prompt_named(JUDGING).render(caption=caption), YesNo())
