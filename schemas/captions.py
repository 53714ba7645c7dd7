"""Config and tables of `captions`: what audio-language models write about tagged tracks (ATTM, AnyAudio-Judge)."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self, TypedDict, get_args

from pydantic import Field, model_validator

from earmark.schemas.annotation import DECIDES, AnnotatorConfig, Asked, Drawn
from earmark.schemas.corpus import Corpus, Start, View, Workload, Writer, read_story
from earmark.schemas.evaluations import Evaluation, Mode
from earmark.schemas.tables import REJECTS, Column, Table
from earmark.schemas.toml import Flat, Model, Name, changed, only, without
from earmark.schemas.tracks import START as TRACKS_START
from earmark.schemas.tracks import TrackLicence, TracksConfig

CaptionFault = Literal[
    "empty",
    "truncated",
    "too_long",
    "not_english",
    "repeated_phrases",
    "mentions_vocals",
    "mentions_duration",
    "boilerplate",
]
EVERY: tuple[CaptionFault, ...] = get_args(CaptionFault)


class CaptionChecks(Model):
    """Checks of a stage's text. A fault is asked again and then a reject, unless `flag` names it."""

    look_for: tuple[CaptionFault, ...] = Field(default=EVERY, description="Faults to look for; `empty`: refusals too.")
    flag: tuple[CaptionFault, ...] = Field(
        default=(), description="Of these, faults that are noted in the row only; a refusal never is."
    )
    longest_words: int = Field(default=150, ge=1, description="More words count as too long.")

    @model_validator(mode="after")
    def _known(self) -> Self:
        missing = [name for name in self.flag if name not in self.look_for]
        if missing:
            raise ValueError(f"flag names '{missing[0]}', which look_for does not")
        return self


Asking = Literal["direct", "describe", "mix"]
FORM: tuple[CaptionFault, ...] = ("empty", "truncated", "too_long", "not_english", "repeated_phrases")
LOOKED_FOR: dict[Asking, tuple[CaptionFault, ...]] = {
    "direct": EVERY,
    "describe": FORM,  # the refining stage takes the rest out
    "mix": (*FORM, "boilerplate"),  # speech and song are part of what it describes
}
LONGEST_WORDS: dict[Asking, int] = {"direct": 150, "describe": 150, "mix": 400}


class Listening(Drawn):
    """The listener of the tracks, its seconds of each, and its prompt."""

    ask: Asking = Field(
        default="direct",
        description="direct: a caption; describe: a few sentences for `refine`; mix: all that a film's sound holds.",
    )
    hears_s: float = Field(default=30.0, gt=0, description="Longest span that is heard at once.")
    where: Literal["start", "middle"] = Field(default="start", description="Where the span of a longer track lies.")
    spans: Annotated[int, Field(ge=1, le=64)] | Literal["all"] = Field(
        default=1,
        description="Spans of a longer track, spread evenly; more than 1 needs `refine`. `all`: equal segments of at "
        "most `hears_s`, each with a caption.",
    )
    tries: int = Field(default=3, ge=1, le=100, description="Draws of one text, at most, until one passes the checks.")
    max_tokens: int = Field(default=400, ge=1)

    @classmethod
    def respelled(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {**values, "spans": "all"} if values.get("segments") else values

    def _as_recorded(self, values: dict[str, Any]) -> dict[str, Any]:
        whole = self.spans == "all"
        return {**values, "spans": 1 if whole else self.spans, "segments": whole}

    @property
    def text_checks(self) -> CaptionChecks:
        """Return the checks of its texts where the pipeline states none."""
        return CaptionChecks(look_for=LOOKED_FOR[self.ask], longest_words=LONGEST_WORDS[self.ask])


class Refining(Drawn):
    """The writer of a track's caption from its spans. It reads text only."""

    tries: int = Field(default=3, ge=1, le=100, description="Draws of one text, at most, until one passes the checks.")
    max_tokens: int = Field(default=300, ge=1)


class VoiceReader(Asked):
    """The reader of captions past the word lists, for voices that one speaks of all the same."""

    action: Literal["flag", "reject"] = "reject"
    max_tokens: int = Field(default=1, ge=1)


class Pipeline(Model):
    """One way to a caption: a stage that hears, and where given one that refines, and one that judges the outcome."""

    name: Name = Field(description="The pipeline; tables name it.")
    listen: Listening
    refine: Refining | None = None
    judge: VoiceReader | None = None
    checks: CaptionChecks | None = Field(
        default=None, description="What captions are held to; without it, what `ask` or `refine` asks for."
    )

    @classmethod
    def respelled(cls, values: dict[str, Any]) -> dict[str, Any]:
        stage = "refine" if values.get("refine") else "listen"
        role = values.get(stage)
        if "checks" in values or not isinstance(role, dict) or not isinstance(role.get("checks"), dict):
            return values
        return {**values, stage: without(role, "checks"), "checks": role["checks"]}

    def _as_recorded(self, values: dict[str, Any]) -> dict[str, Any]:
        checks, values = values["checks"], without(values, "checks")
        return {**values, self.last: {**values[self.last], "checks": checks}} if checks else values

    def checks_of(self, stage: str) -> CaptionChecks:
        """Return the checks that stand after a stage."""
        if self.checks and stage == self.last:
            return self.checks
        return CaptionChecks() if stage == "refine" else self.listen.text_checks

    @model_validator(mode="after")
    def _merged(self) -> Self:
        if self.listen.spans not in (1, "all") and self.refine is None:
            raise ValueError("several 'spans' need 'refine', which merges what was heard of them")
        return self

    @property
    def stages(self) -> dict[str, Listening | Refining | VoiceReader]:
        """The stages by name, in the order in which they are asked."""
        stages = {"listen": self.listen, "refine": self.refine, "judge": self.judge}
        return {name: stage for name, stage in stages.items() if stage is not None}

    @property
    def last(self) -> str:
        """The stage whose text is the caption."""
        return "refine" if self.refine else "listen"


def role_of(pipeline: str, stage: str) -> str:
    """Return the role of one stage of a pipeline, by its name."""
    return f"{pipeline}: {stage}"


def recorded_segments(lengths: Sequence[float] | None) -> dict[str, float] | None:
    """Return the table that a recorded config holds for `segments`."""
    if lengths is None:
        return None
    return {"least_s": lengths[0], "most_s": lengths[1], "longest_silence_s": 3.0, "silent_below_dbfs": -60.0}


class Captions(TracksConfig):
    """Build config of `captions`."""

    were_tables = {  # noqa: RUF012
        **TracksConfig.were_tables,
        "repeats": Flat(
            "repeats", lambda old: old.get("action", "flag"), lambda word: word and {"action": word, "threshold": 0.9}
        ),
        "segments": Flat("segments", lambda old: [old.get("least_s", 45), old.get("most_s", 75)], recorded_segments),
    }
    corpus: Literal["captions"] = "captions"
    segments: tuple[Annotated[float, Field(ge=1)], Annotated[float, Field(ge=1)]] | None = Field(
        default=None,
        description="Shortest and longest segment in seconds, such as [45, 75]: long recordings are cut into these, "
        "which are captioned; without it, tracks are. A segment ends at the longest silence between these two lengths; "
        "what is shorter is a reject, as are silence of 3 s and the fades beside it.",
    )
    instrumentals: str | None = Field(
        default=None,
        description="`instrumentals` (the store's newest) or `instrumentals@vN`: tracks in it are heard without voice.",
    )
    pipelines: tuple[Pipeline, ...] = Field(min_length=1)
    repeats: Literal["flag", "reject"] | None = Field(
        default="flag", description="Captions that nearly repeat an earlier one of their pipeline."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        names = [pipeline.name for pipeline in self.pipelines]
        if len(set(names)) < len(names):
            raise ValueError(f"expected pipelines of different names, found {', '.join(names)}")
        least_s, most_s = self.segments or (0.0, 0.0)
        if least_s > most_s:
            raise ValueError(f"segments: expected the shorter length first, found {least_s:g}, {most_s:g}")
        for pipeline in self.pipelines:
            if pipeline.listen.hears_s < most_s:
                raise ValueError(
                    f"expected 'hears_s' of pipeline '{pipeline.name}' to be at least the longest of segments "
                    f"({most_s:g} s): a caption is of a whole segment"
                )
        return self

    def asked(self) -> dict[str, AnnotatorConfig]:
        """Return the annotators by role: one for each stage of each pipeline."""
        return {
            role_of(pipeline.name, name): stage
            for pipeline in self.pipelines
            for name, stage in pipeline.stages.items()
        }

    def reads(self) -> tuple[str, ...]:
        """Return the version of instrumentals that is heard."""
        return (self.instrumentals,) if self.instrumentals else ()

    def identity(self) -> dict[str, Any]:
        values = without(super().identity(), "instrumentals")  # the version that it names stands among the parents
        for stage, names in (("listen", (*_HEARD, *_CHECKED)), ("refine", _CHECKED), ("judge", _JUDGED)):
            values = changed(values, f"pipelines.{stage}", only(*DECIDES, *names))
        return {**values, "source": self.source.identity()}


_HEARD = ("ask", "hearing", "hears_s", "where", "spans", "segments")
_CHECKED = ("checks", "tries")
_JUDGED = ("least", "action")


class Caption(TypedDict):
    """One row a caption: what a pipeline says of a track, or of one segment of it."""

    clip_id: Annotated[str, Column("The track's id in the list.", names="track", role="is")]
    pipeline: Annotated[str, "The pipeline, as the config names it."]
    segment: Annotated[int, "Segment of the track, from 0; 0 where tracks are not cut."]
    split: Annotated[str, "Split of the track's artist."]
    text: Annotated[str, "The caption."]
    stage: Annotated[str, Column("The stage that wrote it.", unit="listen or refine")]
    model: Annotated[str, Column("The annotator that wrote it.", names="annotator")]
    prompt: Annotated[str, "Prompt file and version that asked."]
    request_key: Annotated[str, "The request's key in the ledger."]
    sample: Annotated[int, "Number of the draw that passed the checks, from 0."]
    flags: Annotated[list[str], "Checks that it did not pass and that the config only notes."]
    repeats: Annotated[
        str | None, Column("Earlier clip whose caption it nearly repeats.", names="track", role="mentions")
    ]
    heard_sha256: Annotated[str, Column("SHA-256 of the file that was heard.", names="clip")]
    heard: Annotated[str, "What that file is: `mix`, or `instrumental` of the manifest's parent."]
    start_s: Annotated[list[float], Column("Begin of each span that was heard.", unit="s")]
    end_s: Annotated[list[float], Column("End of each span that was heard.", unit="s")]
    file: Annotated[str, "Audio file as the list names it."]
    tags: Annotated[list[str], "Tags of the track as `category---name`."]
    track_licence: TrackLicence
    source: Annotated[str, Column("The list's name in the config.", names="source")]
    source_file: Annotated[str, "The list that the track came from."]
    source_line: Annotated[int, "Line in that list, counted from 1."]


class CaptionDraw(TypedDict):
    """One row a draw of a request: what the model wrote, whether or not it became a caption."""

    clip_id: Annotated[str, Column("The track's id in the list.", names="track", role="is")]
    pipeline: Annotated[str, "The pipeline."]
    segment: Annotated[int, "Segment of the track, from 0."]
    stage: Annotated[str, Column("The stage.", unit="listen, refine or judge")]
    span: Annotated[int, "Span of the segment, from 0; 0 for stages that read."]
    start_s: Annotated[float, Column("Begin of what was heard.", unit="s")]
    end_s: Annotated[float, Column("End of what was heard.", unit="s")]
    text: Annotated[str | None, "The answer; a judge's is its probability of yes. Null if there is none."]
    share: Annotated[
        float | None,
        Column(
            "Of a judge: probability of Yes and No together as the first token. Null for texts and in older versions.",
            unit="0 to 1",
        ),
    ]
    bounded: Annotated[
        bool | None,
        "Of a judge: whether the server listed Yes or No alone, so that the other's probability is a bound.",
    ]
    model: Annotated[str, Column("The annotator.", names="annotator")]
    prompt: Annotated[str, "Prompt file and version that asked."]
    request_key: Annotated[str, "The request's key in the ledger."]
    sample: Annotated[int, "Number of the draw, from 0; what failed its checks was drawn again."]
    flags: Annotated[list[str], "Checks that it did not pass and that the config only notes."]
    notes: Annotated[str | None, "What was done to the request to fit the model's limits."]
    reason: Annotated[str | None, "Why it cannot be used; null if it can."]
    heard_sha256: Annotated[str, Column("SHA-256 of the file that was heard.", names="clip")]
    source: Annotated[str, Column("The list's name in the config.", names="source")]


class SegmentRow(TypedDict):
    """One row a segment that was cut out of a longer recording, where the config has `segments`."""

    clip_id: Annotated[
        str, Column("The segment: the recording's id and the second of its start.", names="track", role="is")
    ]
    split: Annotated[str, "Split of the recording, or of its artist."]
    clip_sha256: Annotated[str, Column("SHA-256 of the segment's file.", names="clip", role="is")]
    file: Annotated[str, "Its file in this version: FLAC of 16 bits, at the recording's rate."]
    recording: Annotated[str, Column("The recording's id in the list.", names="track")]
    recording_sha256: Annotated[str, Column("SHA-256 of the recording's file.", names="clip")]
    start_s: Annotated[float, Column("Begin within the recording.", unit="s")]
    end_s: Annotated[float, Column("End within the recording.", unit="s")]
    duration_s: Annotated[float, Column("Length of the segment's file.", unit="s")]
    track_licence: TrackLicence
    source: Annotated[str, Column("The list's name in the config.", names="source")]
    source_file: Annotated[str, "The list that the recording came from."]
    source_line: Annotated[int, "Line in that list, counted from 1."]


class TagCoverage(TypedDict):
    """One row a pipeline and tag: how many captions name it, by whole word forms."""

    pipeline: Annotated[str, "The pipeline."]
    category: Annotated[str, "What the tag speaks of."]
    tag: Annotated[str, "The tag as the list writes it."]
    captions: Annotated[int, "Captions of tracks that carry it."]
    mentions: Annotated[int, Column("Of these, captions that name it.", source="ATTM, selection of tags")]
    elsewhere: Annotated[int, "Captions that name it of tracks that do not carry it."]


CAPTIONS = Table(
    "captions",
    row=Caption,
    key=("clip_id", "pipeline", "segment"),
    exclusive=("clip_id", "heard_sha256"),
    says=(
        "read from {source_file}, line {source_line}: {file}, heard as {heard} from {start_s} s to {end_s} s",
        "written by {model} in stage {stage}, prompt {prompt}, draw {sample}, request {request_key}",
        "flags: {flags}",
    ),
)
RAW = Table(
    "raw",
    row=CaptionDraw,
    key=("clip_id", "pipeline", "segment", "stage", "span", "sample"),
    splits=False,
    says=("{model} about {start_s} s to {end_s} s, draw {sample}: {text}",),
)
SEGMENTS = Table(
    "segments",
    row=SegmentRow,
    key=("clip_id",),
    optional=True,
    exclusive=("recording", "recording_sha256", "clip_sha256"),
    files=("file",),
    says=("cut out of {recording}, {start_s} s to {end_s} s",),
)
TAG_COVERAGE = Table("tag_coverage", row=TagCoverage, key=("pipeline", "category", "tag"), splits=False, counted=True)

_JSON = Writer(
    "attm-json",
    "earmark.tasks.captions.exports:write_json",
    ".json",
    'ATTM\'s baseline: one array of {"path", "caption"}',
)
_TSV = Writer(
    "attm-tsv", "earmark.tasks.captions.exports:write_tsv", ".tsv", "ATTM's baseline: id and caption, a line each"
)
_BASELINE = Writer(
    "attm-baseline",
    "earmark.tasks.captions.exports:write_baseline",
    ".tsv",
    "ATTM's baseline: a training set in place of its preparation's, `<split>/jamendo_<split>.tsv` and `audios`",
    audio=True,
    configs=("train", "val", "test"),
)


VIEWS = (
    View("captions", "rows", "captions/exported", "Every caption with its clip.", {"stage": "", "most_flags": 99}),
    View(
        "unflagged", "rows", "captions/exported", "The same without flagged captions and near-duplicates.",
        {"stage": "", "most_flags": 0},
    ),
    View(
        "direct", "rows", "captions/exported", "Captions by pipelines of one stage.",
        {"stage": "listen", "most_flags": 99}, (_JSON, _TSV, _BASELINE),
    ),
    View(
        "refined", "rows", "captions/exported", "Captions by pipelines that refine.",
        {"stage": "refine", "most_flags": 99}, (_JSON, _TSV, _BASELINE),
    ),
)  # fmt: skip

EVALUATION = Evaluation(
    "caption",
    "yes_no",
    "captions/described",
    "Does the caption describe the clip?",
    modes=(Mode("listen", "caption-fits", shows=("clip=audio", "caption")),),
    groups=("pipeline",),
    claims=True,
    asks="Does the text describe the clip, with nothing wrong in it?",
)

_START = Start("earmark.tasks.importers.tracks:TRACK_LAYOUTS", TRACKS_START, ("pipelines", "pipelines.listen"))

CORPUS = Corpus(
    name="captions",
    source="tagged tracks",
    holds="captions by audio-language models, by pipeline",
    paper="ATTM, AnyAudio-Judge",
    config=Captions,
    tables=(CAPTIONS, RAW, SEGMENTS, TAG_COVERAGE, REJECTS),
    story=read_story("captions"),
    plan="earmark.tasks.captions.tracks:plan_build",
    inputs="earmark.tasks.captions.tracks:inputs",
    flow="earmark.flows.captions:build",
    schedule="30 5 * * *",
    start=_START,
    scale=(
        # two pipelines listen to 30 s, and one refines
        Workload("55,701 tracks", 55_701, requests=3, heard_s=20, text_in=300, text_out=120),
    ),
    recount="earmark.tasks.captions.recounting:recount",
    card="earmark.tasks.captions.writing:sections",
    report="earmark.tasks.captions.report:sections",
    views=VIEWS,
    evaluations=(EVALUATION,),
)
