"""Run every track through every caption pipeline: listen to spans, refine the texts, judge them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from earmark.schemas.captions import Captions, Pipeline
from earmark.schemas.errors import InputError
from earmark.tasks.audio.encode import Encoder
from earmark.tasks.captions.asking import JUDGE, LISTEN, REFINE, audio_of, spans_of
from earmark.tasks.captions.rows import HeardTrack, SpanRow
from earmark.tasks.pipeline.ask import Asker, side_by_side
from earmark.tasks.pipeline.walk import walk
from earmark.tasks.store.staging import Stage


@contextmanager
def decoded_once(
    stage: Stage, config: Captions, tracks: list[HeardTrack], encoder: Encoder | None
) -> Iterator[list[HeardTrack]]:
    """Decode each track once for all pipelines.

    Raises:
        InputError: an instrumental's file is missing.
    """
    if encoder is None:
        yield tracks
        return
    for track in tracks:
        if track["heard"] == "instrumental" and not Path(track["path"]).is_file():
            raise InputError(f"{track['track_id']}: expected its instrumental's file, found none; build again")
    segments = (spans for track in tracks for pipeline in config.pipelines for spans in spans_of(pipeline, track))
    with encoder.expecting([audio_of(config, span) for spans in segments for span in spans]):
        yield tracks


@walk(
    "caption",
    asks=[LISTEN, REFINE, JUDGE],
    columns=[
        ("row", pa.int64()),
        ("pipeline", pa.string()),
        ("segment", pa.int64()),
        ("span", pa.int64()),
        ("start_s", pa.float64()),
        ("end_s", pa.float64()),
    ],
    label="caption tracks",
    opened=decoded_once,
)
async def caption_tracks(asker: Asker[Captions], track: HeardTrack) -> None:
    """Caption a track by every pipeline, segment by segment; any of them may stay without a caption."""
    segments = [(pipeline, spans) for pipeline in asker.config.pipelines for spans in spans_of(pipeline, track)]
    await side_by_side(*(_caption(asker, pipeline, spans) for pipeline, spans in segments))


async def _caption(asker: Asker[Captions], pipeline: Pipeline, spans: list[SpanRow]) -> None:
    """Listen to a segment's spans, refine the texts, and judge the result, as far as the pipeline goes."""
    replies = await side_by_side(*(asker.reply(LISTEN, span) for span in spans))
    if any(reply.failure for reply in replies):
        return
    texts = [reply.value.strip() for reply in replies]
    segment: SpanRow = {**spans[0], "end_s": spans[-1]["end_s"]}
    if pipeline.refine:
        reply = await asker.reply(REFINE, {**segment, "texts": texts})
        if reply.failure:
            return
        texts = [reply.value.strip()]
    if pipeline.judge:
        await asker.reply(JUDGE, {**segment, "text": texts[0]})
