"""Choose the seconds of a track to hear, and word the requests of every stage of a caption pipeline."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from earmark.schemas.captions import CaptionChecks, Captions, Listening, Pipeline, role_of
from earmark.schemas.errors import InputError
from earmark.schemas.questions import Audio, YesNo
from earmark.schemas.tracks import MARK, Tag
from earmark.tasks.audio.encode import Encoder
from earmark.tasks.pipeline.ask import Ask, Asker, Fault, Values, side_by_side
from earmark.tasks.pipeline.tracks import PooledTrack
from earmark.tasks.pipeline.walk import walk
from earmark.tasks.store.staging import Stage
from earmark.tasks.text.refusals import find_refusal, unquoted
from earmark.tasks.text.tag_words import written
from earmark.tasks.text.voices import calls_for_voices, names_voices


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


PHRASE_WORDS, PHRASE_TIMES = 4, 3
LATIN_SHARE, ENGLISH_SHARE = 0.9, 0.05

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_SENTENCE = re.compile(r"[^.!?\n]+")
_COUNT = (
    r"(?:\d+(?:[.,]\d+)?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|forty|"
    r"fifty|sixty|ninety|few|several|many|couple of|half an?)"
)
_UNIT = r"(?:seconds?|secs?|minutes?|mins?|hours?|hrs?)"
_ABOUT = r"(?:about|after|almost|around|exactly|for|in|just over|just under|nearly|over|roughly|under|within)"
_SPAN = (
    r"(?:clip|cut|cue|excerpt|fade|fragment|ident|intro|jingle|loop|outro|preview|recording|sample|segment|snippet|"
    r"spot)"
)
_DURATION = re.compile(  # "10s" to "40s" before a clip's name are seconds, "80s track" is a decade
    rf"\b(?:{_COUNT}|half)[\s-]*{_UNIT}\b|\b(?:\d?[1-9]|1[1-9]0|[2-9]\d0)s\b|\b\d+(?:\.\d+)? s\b|"
    rf"\b[1-4]0s[\s-]+{_SPAN}s?\b|"
    rf"\b\d+s[\s-](?:long|in length)\b|\b\d+ ?(?:m|min) ?\d+ ?s?\b|\b\d+['′]\s?\d{{2}}\b|"
    rf"\b{_ABOUT} (?:an? |the )?(?:full |whole )?(?:minute|hour)\b|\b{_UNIT}[\s-]long\b|\b\d{{1,2}}:\d{{2}}\b",
    re.IGNORECASE,
)
_OPENING = re.compile(
    r"^\W*(?:(?:sure|certainly|of course|absolutely|okay|ok)\b[,!.]|here(?:'s|’s| is| are)\b|"
    r"(?:the )?(?:refined |final |revised |concise |short(?:er)? )?(?:caption|description|answer|output)\s*(?:is\s*)?:|"
    r"(?:assistant|thinking|reasoning|thoughts?)\s*:|"
    r"i(?:'m|’m| am) sorry\b|i can(?:no|')t\b|note:)",
    re.IGNORECASE,
)
_SILENT = re.compile(  # sound of a critique, yet no caption
    r"^\W*unfortunately\b,? (?:but|I|it|no|there)\b|"
    r"^\W*(?:the|this) (?:audio|clip|file|recording|track) (?:is|appears to be|seems to be) (?:\w+ly )?"
    r"(?:(?:blank|corrupt(?:ed)?|empty)\W*(?:$|[.!?]\s)|silent\W*$)|"
    r"\bno (?:music|audio|caption|description) (?:can|could) be (?:described|given|provided|written)\b",
    re.IGNORECASE,
)
_ASIDE = re.compile(
    r"\bas an ai\b|\blanguage model\b|let me know if|```|<\||\n[^\w\n]{0,8}(?:user|assistant|human)[^\w\n]{0,8}:|"
    r"\n[ \t]*#{2,}[ \t]*(?:instruction|input|response|user|human|assistant)\b|"
    r"(?:^|[.!?\n])[ \t]{0,4}(?:would you like me to|do you want me to|feel free to ask)\b|"
    r"^\W*(?:option|version|caption) (?:1|one|a)\W*[:.]",
    re.IGNORECASE,
)
_WRAPPED = re.compile(  # a whole answer, in a form that nobody asked for
    r"\s*(?:```.*```|[{\[]\s*[\"{].*[}\]]|<([a-z]+)>.*</\1>|(?:[-*•][ \t]+[^\n]+(?:\n\s*|$)){2,})\s*",
    re.DOTALL | re.IGNORECASE,
)
SHORTEST_WORDS = 5  # fewer are no caption
_ENGLISH = frozenset(
    re.findall(
        "[a-z]+",
        "the and with of is that this it by to for from while which its has are as an at into over creating featuring "
        "throughout feel",
    )
)


def find_faults(text: str, checks: CaptionChecks) -> list[Fault]:
    """Return a fault for each broken rule, in the order of `checks.look_for`; for an empty text only this fault."""
    if detail := _empty(text):
        return [Fault("empty", detail)] if "empty" in checks.look_for else []
    names = ["refused" if name == "empty" else name for name in checks.look_for]  # a refusal holds no caption either
    details = {name: _RULES[name](text, checks) for name in names}
    return [Fault(name, detail) for name, detail in details.items() if detail]


def _empty(text: str) -> str | None:
    count = len(_WORD.findall(text))
    return f"expected at least {SHORTEST_WORDS} words, found {count}" if count < SHORTEST_WORDS else None


def _refused(text: str, checks: CaptionChecks) -> str | None:
    silent = _SILENT.search(unquoted(text))
    found = find_refusal(text) or (silent and silent[0].strip())
    return f"expected a description, found '{found[:40]}'" if found else None


def _ended(text: str) -> bool:
    return text.rstrip().rstrip("\"'”’)]*_").endswith((".", "!", "?", "…", "。"))


def _truncated(text: str, checks: CaptionChecks) -> str | None:
    told = "boilerplate" in checks.look_for and "boilerplate" not in checks.flag and _WRAPPED.fullmatch(text)
    return None if told or _ended(text) else f"expected a sentence's end, found '{text.rstrip()[-20:]}'"


def _too_long(text: str, checks: CaptionChecks) -> str | None:
    count = len(_WORD.findall(text))
    return f"expected at most {checks.longest_words} words, found {count}" if count > checks.longest_words else None


def _not_english(text: str, checks: CaptionChecks) -> str | None:
    """Require Latin letters, and English function words: a caption of a dozen words has at least one."""
    letters = [sign for sign in text if sign.isalpha()]
    latin = sum(map(_is_latin, letters))
    if latin < LATIN_SHARE * len(letters):
        return f"expected Latin letters, found {latin} of {len(letters)}"
    words = [word.lower() for word in _WORD.findall(text)]
    english = sum(word in _ENGLISH for word in words)
    if len(words) >= 12 and english < ENGLISH_SHARE * len(words):
        return f"expected English, found {english} of {len(words)} words among its commonest"
    return None


@cache
def _is_latin(sign: str) -> bool:
    return unicodedata.name(sign, "").startswith("LATIN")


def _repeated_phrases(text: str, checks: CaptionChecks) -> str | None:
    words = [word.lower() for word in _WORD.findall(text)]
    phrases = Counter(tuple(words[at : at + PHRASE_WORDS]) for at in range(len(words) - PHRASE_WORDS + 1))
    phrase, times = max(phrases.items(), key=lambda item: item[1], default=((), 0))
    if times >= PHRASE_TIMES:
        return f"expected no phrase {PHRASE_TIMES} times, found '{' '.join(phrase)}' {times} times"
    sentences = Counter(" ".join(_WORD.findall(part.lower())) for part in _SENTENCE.findall(text))
    twice = [said for said, count in sentences.items() if count > 1 and len(said.split()) >= PHRASE_WORDS]
    return f"expected each sentence once, found '{twice[0][:40]}' twice" if twice else None


def _mentions_vocals(text: str, checks: CaptionChecks) -> str | None:
    word = names_voices(text)
    return f"expected no word of voices, singing or lyrics, found '{word}'" if word else None


def _mentions_duration(text: str, checks: CaptionChecks) -> str | None:
    found = _DURATION.search(text)
    return f"expected no length of time, found '{found[0]}'" if found else None


def _boilerplate(text: str, checks: CaptionChecks) -> str | None:
    found = _OPENING.search(text) or _ASIDE.search(unquoted(text))
    found = found or (None if _ended(text) else _WRAPPED.fullmatch(text))
    return f"expected the caption alone, found '{found[0].strip()[:40]}'" if found else None


_RULES: dict[str, Callable[[str, CaptionChecks], str | None]] = {
    "refused": _refused,
    "truncated": _truncated,
    "too_long": _too_long,
    "not_english": _not_english,
    "repeated_phrases": _repeated_phrases,
    "mentions_vocals": _mentions_vocals,
    "mentions_duration": _mentions_duration,
    "boilerplate": _boilerplate,
}


MERGING, JUDGING = "caption-merge", "caption-voices"
Span = tuple[float, float]
TRACKS_A_SHARD = 50
HEARD_A_SHARD_S = 6_000.0  # encoded, it is in memory at once: about 1 MB for each half minute at 16 kHz
LEAST_YES = 0.5  # probability of yes from which a caption speaks of voices: yes is the likelier answer
LISTENING = {"direct": "caption-direct", "describe": "caption-describe", "mix": "caption-mix"}


def listening_prompt(config: Captions, row: SpanRow) -> str:
    """Return the name of the prompt of the listening stage."""
    return LISTENING[pipeline_of(config, row["pipeline"]).listen.ask]


def refining_prompt(config: Captions, row: SpanRow) -> str:
    """Return the name of the prompt of the refining stage."""
    return "caption-refine" if pipeline_of(config, row["pipeline"]).listen.spans in (1, "all") else MERGING


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


def pipeline_of(config: Captions, name: str) -> Pipeline:
    """Return the pipeline of that name."""
    return next(pipeline for pipeline in config.pipelines if pipeline.name == name)


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


def flags_of(pipeline: Pipeline, stage: str, value: Any) -> list[str]:
    """Return an answer's faults that the config only flags."""
    if stage == "judge":
        judge = pipeline.judge
        return ["implies_vocals"] if judge and judge.action == "flag" and value["p_yes"] >= LEAST_YES else []
    checks, text = pipeline.checks_of(stage), value.strip()
    if not (checks.flag and text):
        return []
    return [fault.reason for fault in find_faults(text, checks) if fault.reason in checks.flag]


def check_text(stage: str) -> Callable[[Captions, SpanRow, str], Fault | None]:
    """Return a check for the first fault of a stage's text not merely flagged."""

    def check(config: Captions, row: SpanRow, text: str) -> Fault | None:
        checks = pipeline_of(config, row["pipeline"]).checks_of(stage)
        return next((fault for fault in find_faults(text, checks) if fault.reason not in checks.flag), None)

    return check


def check_voices(config: Captions, segment: JudgedText, value: dict[str, float]) -> Fault | None:
    """Return a fault for a caption with voices by the judge's answer."""
    judge = pipeline_of(config, segment["pipeline"]).judge
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
JUDGE = _stage_ask("judge", prompt=JUDGING, values=judging_values, check=check_voices, about="captions")


@contextmanager
def decoded_once(
    stage: Stage, config: Captions, tracks: list[HeardTrack], encoder: Encoder | None
) -> Iterator[list[HeardTrack]]:
    """Decode each track once for all pipelines."""
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
