"""Config and table of `instrumentals` (ATTM: tagged tracks without their voice, to train text-to-music models on)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from earmark.schemas.config import Model
from earmark.schemas.corpus import Corpus, Story
from earmark.schemas.tables import REJECTS, WORDS, Table, audio_column, column, columns, integer, number, text
from earmark.schemas.tracks import TRACK_LICENCE, TracksConfig
from earmark.schemas.views import View

FLAGS = ("mix_clipped", "emptied", "nothing_removed", "little_left", "voice_left", "length_mismatch")

Share = Annotated[float, Field(ge=0, le=1)]


class Separation(Model):
    """What takes the voice out. Its checkpoint, YAML and precision decide its output; devices and pace do not."""

    model: str = Field(
        default="centre-removal",
        min_length=1,
        description="`centre-removal` (no model), a checkpoint that audio-separator knows by file name, or a path.",
    )
    config: str | None = Field(default=None, description="The YAML of a checkpoint that is given by path.")
    models_folder: str | None = Field(
        default=None, description="Where known checkpoints are kept and downloaded to; without it, in the store."
    )
    sha256: str | None = Field(
        default=None, pattern="^[0-9a-f]{64}$", description="What the checkpoint's SHA-256 must be."
    )
    precision: Literal["float32", "tf32", "float16", "bfloat16"] = Field(
        default="float32", description="Arithmetic of the model; tf32 and float16 are for GPUs."
    )
    compile: bool = Field(default=False, description="Whether the model is compiled first: pays off on long runs.")
    batch_size: int | None = Field(default=None, ge=1, description="Windows at once; without it, by the device.")
    devices: tuple[str, ...] = Field(
        default=(), description="Such as `cuda:0`; shards spread over them. Without any: all GPUs, else the CPU."
    )


class Result(Model):
    """How instrumentals are kept."""

    codec: Literal["flac", "wav", "mp3"] = "flac"
    bits: Literal[16, 24] = Field(default=16, description="Bits a sample of FLAC and WAV.")
    bitrate_kbps: Literal[64, 96, 128, 160, 192, 256, 320] = Field(
        default=320, description="Bit rate of MP3; at most 160 below 32 kHz."
    )
    crop_s: float | None = Field(default=None, gt=0, description="Only so much from a track's start is separated.")
    keep: Literal["embedded", "files"] = Field(
        default="embedded",
        description="embedded: in the table; files: `audio/<last two of the id>/<id>_instrumental.<codec>` beside it.",
    )


class Checks(Model):
    """When a result is flagged. Flagged tracks stay; what to leave out is for those who train."""

    most_clipped: Share = Field(default=0.001, description="Share of the mix's samples at full scale.")
    most_emptied: Share = Field(default=0.1, description="Share of the mix's sounding moments that are silent now.")
    least_removed_db: float = Field(default=-40.0, le=0, description="Level of what was removed, against the mix.")
    least_left_db: float = Field(default=-25.0, le=0, description="Level of what is left, against the mix.")
    most_correlated: Share = Field(default=0.25, description="Correlation of what is left with what was removed.")
    length_s: float = Field(default=0.06, gt=0, description="Difference in length between mix and instrumental.")


class Instrumentals(TracksConfig):
    """Build config of `instrumentals`."""

    corpus: Literal["instrumentals"] = "instrumentals"
    separator: Separation = Field(default=Separation(), description="What takes the voice out.")
    output: Result = Field(default=Result(), description="How instrumentals are kept.")
    checks: Checks = Field(default=Checks(), description="When a result is flagged.")
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

TRACKS = Table(
    name="tracks",
    description="One row a track whose voice was removed.",
    schema=columns(
        text("track_id", "The track's id in the list.", names="track", role="is"),
        text("split", "Split of its artist."),
        text("source", "The list's name in the config.", names="source"),
        text("artist_id", "The artist, as the list names it.", optional=True),
        text("album_id", "The album, as the list names it.", optional=True),
        column("tags", WORDS, "Tags as `category---name`, synonyms replaced, in the list's order."),
        TRACK_LICENCE,
        text("file", "Audio file as the list names it."),
        text("mix_sha256", "SHA-256 of that file's bytes: the clip before.", names="clip", role="is"),
        text("clip_sha256", "SHA-256 of the instrumental's bytes: the clip after.", names="clip", role="is"),
        text("instrumental", "The instrumental's file in this version.", optional=True),
        number("mix_duration_s", "Length of the source file.", unit="s"),
        number("duration_s", "Length of what was separated, and of the instrumental.", unit="s"),
        integer("sample_rate_hz", "Sample rate of the instrumental.", unit="Hz"),
        integer("mix_sample_rate_hz", "Sample rate of the source file.", unit="Hz"),
        integer("mix_channels", "Channels of the source file; the instrumental has two."),
        text("mix_codec", "Codec of the source file."),
        number("mix_dbfs", "Root-mean-square level of the mix.", unit=_LEVEL),
        number("instrumental_dbfs", "Level of what is left, at the mix's scale.", unit=_LEVEL),
        number("removed_dbfs", "Level of what was removed, at the mix's scale.", unit=_LEVEL),
        number("removed_db", "Level of what was removed, against the mix.", unit="dB"),
        number(
            "residual_voice",
            "Correlation of what is left with what was removed: well above 0 where some of the voice stays.",
            unit="-1 to 1",
            source="measured on the whole track",
        ),
        number("gain_db", "How the file was scaled, to keep its peaks below 0.9.", unit="dB"),
        number("clipped_share", "Share of the mix's samples at full scale.", unit="0 to 1"),
        number("emptied_share", "Share of the mix's sounding tenths of a second that are silent now.", unit="0 to 1"),
        number("length_error_s", "The instrumental's length less that of its mix.", unit="s"),
        column("flags", WORDS, f"Checks that it did not pass: {', '.join(FLAGS)}."),
        text("separator", "What took the voice out."),
        text("separator_digest", "SHA-256 of all that decides its output."),
        text("checkpoint_sha256", "SHA-256 of its checkpoint, where it has one.", optional=True),
        text("source_file", "The list that the row came from."),
        integer("source_line", "Line in that list, counted from 1."),
        audio_column('The instrumental; null where the config says `output.keep = "files"`.'),
    ),
    key=("track_id",),
    exclusive=("artist_id", "mix_sha256"),
    files=("instrumental",),
    says=(
        "read from {source_file}, line {source_line}: {file}, {mix_duration_s} s of {mix_codec}",
        "voice removed by {separator}: {removed_db} dB of the mix, residual voice {residual_voice}",
        "flags: {flags}",
    ),
)

_STORY = Story(
    title="Instrumentals",
    summary=(
        "Tagged tracks without their voice, and an index of what was removed: audio for training text-to-music models "
        "that must not sing, as in the ATTM challenge."
    ),
    method=(
        "A list of tagged tracks is read, synonyms of tags are replaced, each track's audio is hashed and measured. "
        "Tracks without audio, and audio that is damaged, silent, too short or there twice, are rejects.",
        "A separator takes the voice out: what is kept is the mix less the voice, stereo, at the track's own rate.",
        "Each result is checked: clipping, silence where the mix was not silent, the level of what was removed and of "
        "what is left, what of the voice is left, and the length. What does not pass is flagged, and stays.",
        "Splits are by artist, by the hash of the artist's id: no artist, and no clip, is in two of them.",
    ),
    main_table="tracks",
    references=("ATTM: text-to-music on MTG-Jamendo with vocals removed by melband-roformer-kim-vocals.",),
    limits=(
        "Separation is not perfect: choirs, whispers and reverberation may stay, and solo instruments may go.",
        "`centre-removal` is no model: it takes out what is in the middle of the stereo image, the voice or not.",
        "The licences of the tracks hold for their instrumentals: MTG-Jamendo's are Creative Commons, track by track. "
        "Where one allows no derivatives, `earmark publish` holds the instrumental back.",
    ),
    tags=("audio", "music", "source-separation", "text-to-music"),
    tasks=("audio-to-audio",),
)

VIEWS = (
    View(
        "tracks", "rows", "instrumentals/audio", "Instrumentals with their tags, and what was measured of each.",
        {"most_flags": len(FLAGS)},
    ),
    View("unflagged", "rows", "instrumentals/audio", "The same without flagged ones.", {"most_flags": 0}),
)  # fmt: skip

CORPUS = Corpus(
    name="instrumentals",
    source="tagged tracks",
    holds="vocal-free audio and its index",
    paper="ATTM",
    config=Instrumentals,
    tables=(TRACKS, REJECTS),
    story=_STORY,
    plan="earmark.tasks.instrumentals.sources:plan_build",
    peeks="earmark.tasks.instrumentals.sources:peeks",
    flow="earmark.flows.instrumentals:build",
    report="earmark.tasks.instrumentals.report:sections",
    views=VIEWS,
)
