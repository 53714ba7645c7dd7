"""`captions`: which seconds of a track are heard, and what every stage of a pipeline is asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from earmark.schemas.caption_checks import Checks
from earmark.schemas.captions import Captions, Listening, Pipeline, role_of
from earmark.tasks.annotation.prompts import Prompt, prompt_named
from earmark.tasks.annotation.request import Audio, AudioForm, YesNo
from earmark.tasks.build.ask import Ask, Posed, Row, pose
from earmark.tasks.build.checks import Fault
from earmark.tasks.build.forecast import imagined
from earmark.tasks.captions.checks import find_faults
from earmark.tasks.importers.jamendo import MARK, Tag
from earmark.tasks.text.tag_words import vocal_tags, written

MERGING, JUDGING = "caption-merge", "caption-voices"
Span = tuple[float, float]
TRACKS_A_SHARD = 50
HEARD_A_SHARD_S = 6_000.0  # encoded, it is in memory at once: about 1 MB for each half minute at 16 kHz
LISTENING = {"direct": "caption-direct", "describe": "caption-describe", "mix": "caption-mix"}


def listening_prompt(pipeline: Pipeline) -> Prompt:
    """The prompt that the stage that hears is asked with."""
    return prompt_named(LISTENING[pipeline.listen.ask])


def refining_prompt(pipeline: Pipeline) -> Prompt:
    """The prompt that the stage that refines is asked with."""
    return prompt_named(MERGING if pipeline.listen.spans > 1 else "caption-refine")


def prompt_digests(config: Captions) -> dict[str, str]:
    """SHA-256 of the prompts that ask, by name and version."""
    prompts = [listening_prompt(pipeline) for pipeline in config.pipelines]
    prompts += [refining_prompt(pipeline) for pipeline in config.pipelines if pipeline.refine]
    prompts += [prompt_named(JUDGING) for pipeline in config.pipelines if pipeline.judge]
    return {prompt.id: prompt.sha256 for prompt in prompts}


def cut(duration_s: float, listen: Listening) -> list[list[Span]]:
    """Which seconds of a track are heard: for each segment its spans, in order, none longer than the model hears."""
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
    batch = max((role.batch_requests for role in config.asked().values() if role.batch), default=0)
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


def pipeline_of(config: Captions, row: Row) -> Pipeline:
    """The pipeline that a row is on its way through."""
    return next(pipeline for pipeline in config.pipelines if pipeline.name == row["pipeline"])


def spans_of(pipeline: Pipeline, track: Row) -> list[list[Row]]:
    """What a pipeline hears of a track (a row of `pool.sql`): for each segment a row a span."""
    return [
        [
            {**track, "pipeline": pipeline.name, "segment": segment, "span": number, "start_s": start_s, "end_s": end_s}
            for number, (start_s, end_s) in enumerate(spans)
        ]
        for segment, spans in enumerate(cut(track["duration_s"], pipeline.listen))
    ]


def audio_of(config: Captions, span: Row) -> Audio:
    """The audio of a span, in the form that its pipeline's model gets."""
    duration_s = span["duration_s"]
    return Audio(
        span["clip_sha256"],
        span["path"],
        start_s=span["start_s"] or None,
        end_s=span["end_s"] if span["end_s"] < duration_s - 0.001 else None,
        duration_s=duration_s,
        form=AudioForm(**pipeline_of(config, span).listen.hearing.model_dump()),
    )


def listening_request(config: Captions, span: Row) -> Posed:
    """What is in a span. Nothing but its audio reaches a model; builtin ones get the track's tags too."""
    pipeline = pipeline_of(config, span)
    tags = [Tag(category, name) for category, _, name in (mark.partition(MARK) for mark in span["tags"])]
    words = [written(tag) for tag in tags if tag not in vocal_tags()]
    return pose(pipeline.listen, listening_prompt(pipeline), {"tags": words}, clip=audio_of(config, span))


def refining_request(config: Captions, segment: Row) -> Posed:
    """A caption from the `texts` of a segment's spans."""
    pipeline, texts = pipeline_of(config, segment), segment["texts"]
    assert pipeline.refine is not None
    prompt = refining_prompt(pipeline)
    values = {"descriptions": texts} if prompt.name == MERGING else {"description": texts[0]}
    return pose(pipeline.refine, prompt, {"texts": texts}, **values)


def judging_request(config: Captions, segment: Row) -> Posed:
    """Whether a caption speaks of voices."""
    judge = pipeline_of(config, segment).judge
    assert judge is not None
    return pose(judge, prompt_named(JUDGING), None, YesNo(), caption=segment["text"])


def checks_of(pipeline: Pipeline, stage: str) -> Checks:
    """The checks of a stage that writes."""
    return pipeline.refine.checks if stage == "refine" and pipeline.refine else pipeline.listen.text_checks


def flags_of(pipeline: Pipeline, stage: str, value: Any) -> list[str]:
    """What an answer does not pass and the config only notes."""
    if stage == "judge":
        judge = pipeline.judge
        return ["implies_vocals"] if judge and judge.action == "flag" and value["p_yes"] >= judge.least else []
    checks, text = checks_of(pipeline, stage), value.strip()
    if not (checks.flag and text):
        return []
    return [fault.reason for fault in find_faults(text, checks) if fault.reason in checks.flag]


def check_text(stage: str) -> Callable[[Captions, Row, Any], Fault | None]:
    """The first fault of a stage's text that is not only noted."""

    def check(config: Captions, row: Row, text: Any) -> Fault | None:
        checks = checks_of(pipeline_of(config, row), stage)
        return next((fault for fault in find_faults(text, checks) if fault.reason not in checks.flag), None)

    return check


def check_voices(config: Captions, segment: Row, value: Any) -> Fault | None:
    """Whether a caption is refused because a judge finds voices in it."""
    judge = pipeline_of(config, segment).judge
    if judge is None or judge.action == "flag" or value["p_yes"] < judge.least:
        return None
    probability = f"with a probability of {value['p_yes']:.3f}"
    return Fault("implies_vocals", f"expected no word of voices, found one by {judge.annotator}, {probability}")


def _role(stage: str) -> Callable[[Captions, Row], str]:
    return lambda config, row: role_of(row["pipeline"], stage)


LISTEN = Ask(
    "listen",
    annotator=_role("listen"),
    label=_role("listen"),
    request=listening_request,
    imagine=lambda config, span: imagined(60),
    check=check_text("listen"),
    about="spans of tracks",
)
REFINE = Ask(
    "refine",
    annotator=_role("refine"),
    label=_role("refine"),
    request=refining_request,
    imagine=lambda config, segment: imagined(60),
    check=check_text("refine"),
    about="texts about them",
)
JUDGE = Ask(
    "judge",
    annotator=_role("judge"),
    label=_role("judge"),
    request=judging_request,
    imagine=lambda config, segment: {"p_yes": 0.0},
    check=check_voices,
    about="captions",
)
