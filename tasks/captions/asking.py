"""Choose the seconds of a track to hear, and word the requests of every stage of a caption pipeline."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from earmark.schemas.caption_checks import CaptionChecks
from earmark.schemas.captions import Captions, Listening, Pipeline, role_of
from earmark.schemas.questions import Audio, AudioForm, YesNo
from earmark.schemas.tracks import MARK, Tag
from earmark.tasks.captions.checks import find_faults
from earmark.tasks.captions.rows import HeardTexts, HeardTrack, JudgedText, SpanRow
from earmark.tasks.pipeline.ask import Ask, Values
from earmark.tasks.pipeline.checks import Fault
from earmark.tasks.text.tag_words import written
from earmark.tasks.text.voices import calls_for_voices

MERGING, JUDGING = "caption-merge", "caption-voices"
Span = tuple[float, float]
TRACKS_A_SHARD = 50
HEARD_A_SHARD_S = 6_000.0  # encoded, it is in memory at once: about 1 MB for each half minute at 16 kHz
LEAST_YES = 0.5  # probability of yes from which a caption speaks of voices: yes is the likelier answer
LISTENING = {"direct": "caption-direct", "describe": "caption-describe", "mix": "caption-mix"}


def listening_prompt(config: Captions, row: SpanRow) -> str:
    """Return the name of the prompt of the listening stage."""
    return LISTENING[pipeline_of(config, row).listen.ask]


def refining_prompt(config: Captions, row: SpanRow) -> str:
    """Return the name of the prompt of the refining stage."""
    return "caption-refine" if pipeline_of(config, row).listen.spans in (1, "all") else MERGING


def cut(duration_s: float, listen: Listening) -> list[list[Span]]:
    """Return the spans to hear of each segment of a track, in order, none longer than the model's limit."""
    parts = max(1, math.ceil(round(duration_s / listen.hears_s, 6)))
    if listen.spans == "all":
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
    """Return the number of tracks in each shard, limited by count and by the sound fitting in memory.

    A longer track is a shard of its own. With a provider's batch API a shard fills a batch; its spans
    are then encoded as they are sent.
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


def pipeline_of(config: Captions, row: SpanRow) -> Pipeline:
    """Return the pipeline of a row."""
    return next(pipeline for pipeline in config.pipelines if pipeline.name == row["pipeline"])


def spans_of(pipeline: Pipeline, track: HeardTrack) -> list[list[SpanRow]]:
    """Return the spans a pipeline hears of a track (a row of `pool.sql`): for each segment a row per span."""
    return [
        [
            {**track, "pipeline": pipeline.name, "segment": segment, "span": number, "start_s": start_s, "end_s": end_s}
            for number, (start_s, end_s) in enumerate(spans)
        ]
        for segment, spans in enumerate(cut(track["duration_s"], pipeline.listen))
    ]


def audio_of(config: Captions, span: SpanRow) -> Audio:
    """Return the audio of a span, in the form for its pipeline's model."""
    duration_s = span["duration_s"]
    return Audio(
        span["clip_sha256"],
        span["path"],
        start_s=span["start_s"] or None,
        end_s=span["end_s"] if span["end_s"] < duration_s - 0.001 else None,
        duration_s=duration_s,
        form=AudioForm(pipeline_of(config, span).listen.hearing.sample_rate_hz),
    )


def listening_values(config: Captions, span: SpanRow) -> Values:
    """Show a span's audio alone to a model; builtin ones get the track's tags too."""
    tags = [Tag(category, name) for category, _, name in (mark.partition(MARK) for mark in span["tags"])]
    words = [written(tag) for tag in tags if not calls_for_voices(tag)]
    return Values({"clip": audio_of(config, span)}, {"tags": words})


def refining_values(config: Captions, segment: HeardTexts) -> Values:
    """Show the `texts` of a segment's spans."""
    texts = segment["texts"]
    merging = refining_prompt(config, segment) == MERGING
    return Values({"descriptions": texts} if merging else {"description": texts[0]}, {"texts": texts})


def judging_values(config: Captions, segment: JudgedText) -> Values:
    """Show a caption."""
    return Values({"caption": segment["text"]}, None, YesNo())


def checks_of(pipeline: Pipeline, stage: str) -> CaptionChecks:
    """Return the checks of a writing stage."""
    return pipeline.refine.checks if stage == "refine" and pipeline.refine else pipeline.listen.text_checks


def flags_of(pipeline: Pipeline, stage: str, value: Any) -> list[str]:
    """Return an answer's faults that the config only flags."""
    if stage == "judge":
        judge = pipeline.judge
        return ["implies_vocals"] if judge and judge.action == "flag" and value["p_yes"] >= LEAST_YES else []
    checks, text = checks_of(pipeline, stage), value.strip()
    if not (checks.flag and text):
        return []
    return [fault.reason for fault in find_faults(text, checks) if fault.reason in checks.flag]


def check_text(stage: str) -> Callable[[Captions, SpanRow, str], Fault | None]:
    """Return a check for the first fault of a stage's text not merely flagged."""

    def check(config: Captions, row: SpanRow, text: str) -> Fault | None:
        checks = checks_of(pipeline_of(config, row), stage)
        return next((fault for fault in find_faults(text, checks) if fault.reason not in checks.flag), None)

    return check


def check_voices(config: Captions, segment: JudgedText, value: dict[str, float]) -> Fault | None:
    """Return a fault for a caption with voices by the judge's answer."""
    judge = pipeline_of(config, segment).judge
    if judge is None or judge.action == "flag" or value["p_yes"] < LEAST_YES:
        return None
    probability = f"with a probability of {value['p_yes']:.3f}"
    return Fault("implies_vocals", f"expected no word of voices, found one by {judge.annotator}, {probability}")


def _stage_ask(stage: str, **declared: Any) -> Ask[Captions]:
    """Declare the ask of a stage of every pipeline that has it."""
    return Ask(
        stage,
        annotator=lambda config, row: role_of(row["pipeline"], stage),
        kinds=lambda config: [{"pipeline": pipeline.name} for pipeline in config.pipelines],
        **declared,
    )


LISTEN = _stage_ask(
    "listen", prompt=listening_prompt, values=listening_values, check=check_text("listen"), about="spans of tracks"
)
REFINE = _stage_ask(
    "refine", prompt=refining_prompt, values=refining_values, check=check_text("refine"), about="texts about them"
)
JUDGE = _stage_ask(
    "judge",
    prompt=JUDGING,
    values=judging_values,
    check=check_voices,
    about="captions",
)
