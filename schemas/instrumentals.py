"""Config and table of `instrumentals` (ATTM: tagged tracks without their voice, to train text-to-music models on)."""

from typing import Annotated, Any, Literal, TypedDict

from pydantic import Field

from earmark.schemas.corpus import Corpus, Start, View, Workload, read_story
from earmark.schemas.evaluations import Evaluation, Mode
from earmark.schemas.tables import REJECTS, Column, Table, WholeFile
from earmark.schemas.toml import Model
from earmark.schemas.tracks import START as TRACKS_START
from earmark.schemas.tracks import TrackLicence, TracksConfig

FLAGS = ("mix_clipped", "emptied", "nothing_removed", "little_left", "voice_left", "length_mismatch")


class Separation(Model):
    """The separator of voices. Its checkpoint, YAML and precision decide its output; compilation does not."""

    model: str = Field(
        default="centre-removal",
        min_length=1,
        description="`centre-removal` (no model), a checkpoint that audio-separator knows by file name, or a path.",
    )
    config: str | None = Field(default=None, description="The YAML of a checkpoint that is given by path.")
    precision: Literal["float32", "tf32", "float16", "bfloat16"] = Field(
        default="float32", description="Arithmetic of the model; tf32 and float16 are for GPUs."
    )
    compile: bool = Field(default=False, description="Whether the model is compiled first: pays off on long runs.")


class Result(Model):
    """Storage of instrumentals."""

    codec: Literal["flac", "wav", "mp3"] = "flac"
    bitrate_kbps: Literal[64, 96, 128, 160, 192, 256, 320] = Field(
        default=320, description="Bit rate of MP3; at most 160 below 32 kHz."
    )
    crop_s: float | None = Field(default=None, gt=0, description="Only so much from a track's start is separated.")
    keep: Literal["embedded", "files"] = Field(
        default="embedded",
        description="embedded: in the table; files: `audio/<last two of the id>/<id>_instrumental.<codec>` beside it.",
    )


class Instrumentals(TracksConfig):
    """Build config of `instrumentals`."""

    corpus: Literal["instrumentals"] = "instrumentals"
    separator: Separation = Field(default=Separation(), description="What takes the voice out.")
    output: Result = Field(default=Result(), description="How instrumentals are kept.")
    known_leads: str | None = Field(
        default=None,
        description="For demos: a folder with the true lead of tracks, `<id>.flac`, to report how much is gone.",
    )

    def identity(self) -> dict[str, Any]:
        values = super().identity()
        del values["known_leads"]  # what the report says of them follows from their digest
        values["source"] = self.source.identity()
        del values["separator"]  # its digest is among the inputs
        return values


_LEVEL = "dB of full scale, -120 and above"


class InstrumentalTrack(TypedDict):
    """One row a track whose voice was removed."""

    track_id: Annotated[str, Column("The track's id in the list.", names="track", role="is")]
    split: Annotated[str, "Split of its artist."]
    source: Annotated[str, Column("The list's name in the config.", names="source")]
    artist_id: Annotated[str | None, "The artist, as the list names it."]
    album_id: Annotated[str | None, "The album, as the list names it."]
    tags: Annotated[list[str], "Tags as `category---name`, synonyms replaced, in the list's order."]
    track_licence: TrackLicence
    file: Annotated[str, "Audio file as the list names it."]
    mix_sha256: Annotated[str, Column("SHA-256 of that file's bytes: the clip before.", names="clip", role="is")]
    clip_sha256: Annotated[str, Column("SHA-256 of the instrumental's bytes: the clip after.", names="clip", role="is")]
    instrumental: Annotated[str | None, "The instrumental's file in this version."]
    mix_duration_s: Annotated[float, Column("Length of the source file.", unit="s")]
    duration_s: Annotated[float, Column("Length of what was separated, and of the instrumental.", unit="s")]
    sample_rate_hz: Annotated[int, Column("Sample rate of the instrumental.", unit="Hz")]
    mix_sample_rate_hz: Annotated[int, Column("Sample rate of the source file.", unit="Hz")]
    mix_channels: Annotated[int, "Channels of the source file; the instrumental has two."]
    mix_codec: Annotated[str, "Codec of the source file."]
    mix_dbfs: Annotated[float, Column("Root-mean-square level of the mix.", unit=_LEVEL)]
    instrumental_dbfs: Annotated[float, Column("Level of what is left, at the mix's scale.", unit=_LEVEL)]
    removed_dbfs: Annotated[float, Column("Level of what was removed, at the mix's scale.", unit=_LEVEL)]
    removed_db: Annotated[float, Column("Level of what was removed, against the mix.", unit="dB")]
    residual_voice: Annotated[
        float,
        Column(
            "Correlation of what is left with what was removed: well above 0 where some of the voice stays.",
            unit="-1 to 1",
            source="measured on the whole track",
        ),
    ]
    gain_db: Annotated[float, Column("How the file was scaled, to keep its peaks below 0.9.", unit="dB")]
    clipped_share: Annotated[float, Column("Share of the mix's samples at full scale.", unit="0 to 1")]
    emptied_share: Annotated[
        float, Column("Share of the mix's sounding tenths of a second that are silent now.", unit="0 to 1")
    ]
    length_error_s: Annotated[float, Column("The instrumental's length less that of its mix.", unit="s")]
    flags: Annotated[list[str], f"Checks that it did not pass: {', '.join(FLAGS)}."]
    separator: Annotated[str, "What took the voice out."]
    separator_digest: Annotated[str, "SHA-256 of all that decides its output."]
    checkpoint_sha256: Annotated[str | None, "SHA-256 of its checkpoint, where it has one."]
    source_file: Annotated[str, "The list that the row came from."]
    source_line: Annotated[int, "Line in that list, counted from 1."]
    audio: Annotated[WholeFile | None, 'The instrumental; null where the config says `output.keep = "files"`.']


TRACKS = Table(
    "tracks",
    row=InstrumentalTrack,
    key=("track_id",),
    exclusive=("artist_id", "mix_sha256"),
    files=("instrumental",),
    says=(
        "read from {source_file}, line {source_line}: {file}, {mix_duration_s} s of {mix_codec}",
        "voice removed by {separator}: {removed_db} dB of the mix, residual voice {residual_voice}",
        "flags: {flags}",
    ),
)

VIEWS = (
    View(
        "tracks", "rows", "instrumentals/audio", "Instrumentals with their tags, and what was measured of each.",
        {"most_flags": len(FLAGS)},
    ),
    View("unflagged", "rows", "instrumentals/audio", "The same without flagged ones.", {"most_flags": 0}),
)  # fmt: skip

EVALUATION = Evaluation(
    "voice",
    "yes_no",
    "instrumentals/voices",
    "Is a voice left in the instrumental? It should be in none.",
    modes=(Mode("listen", "voice-heard", shows=("clip=audio",)),),
    groups=("flags", "separator"),
    claims=True,
    asks="Is a human voice left: sung, spoken or hummed, however faint?",
)

_START = Start(
    "earmark.tasks.importers.tracks:TRACK_LAYOUTS",
    TRACKS_START + '\n[output]\ncodec = "flac"   # flac | wav | mp3\n',
    ("separator",),
)

CORPUS = Corpus(
    name="instrumentals",
    source="tagged tracks",
    holds="vocal-free audio and its index",
    paper="ATTM",
    config=Instrumentals,
    tables=(TRACKS, REJECTS),
    story=read_story("instrumentals"),
    plan="earmark.tasks.instrumentals.sources:plan_build",
    inputs="earmark.tasks.instrumentals.sources:inputs",
    flow="earmark.flows.instrumentals:build",
    schedule="0 4 * * *",
    start=_START,
    scale=tuple(
        # MP3 of 128 kbit/s
        Workload(size, 55_701, audio_s=seconds, separated=True, bytes_s=16_000, built="nothing", part=part)
        for size, seconds, part in (
            ("55,701 tracks, 3,777 h", 3_777 * 3600 / 55_701, ""),
            ("55,701 tracks, 464 h", 30, "first 30 s"),
        )
    ),
    report="earmark.tasks.instrumentals.report:sections",
    views=VIEWS,
    evaluations=(EVALUATION,),
)
