"""Rows between the steps of `captions`."""

from earmark.tasks.pipeline.tracks import PooledTrack


class HeardTrack(PooledTrack):
    """A track with its file to hear."""

    heard: str  # `mix` or `instrumental`
    path: str


class SegmentTrack(HeardTrack):
    """A segment of a recording, as a track of its own."""

    recording: str
    recording_sha256: str
    recording_start_s: float
    recording_end_s: float


class SpanRow(HeardTrack):
    """A span of a track for a pipeline."""

    pipeline: str
    segment: int
    span: int
    start_s: float
    end_s: float


class HeardTexts(SpanRow):
    """A segment with the texts about its spans."""

    texts: list[str]


class JudgedText(SpanRow):
    """A segment with its caption."""

    text: str
