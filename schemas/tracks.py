"""The list of tagged tracks that `instrumentals` and `captions` are made from, and which of their audio is fit."""

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any, NamedTuple, Self

from pydantic import AfterValidator, Field, field_validator

from earmark.schemas.config import ClipsConfig
from earmark.schemas.places import without_place
from earmark.schemas.registry import OneOf
from earmark.schemas.tables import Shares
from earmark.schemas.toml import Flat, Model, Name

MARK = "---"  # between a tag's category and its name
NOT_STATED = "not stated"  # a licence that a list of them, or a row of a table with some, leaves out
TRACK_LICENCE = "track_licence"  # column of a `TrackLicence`
TrackLicence = Annotated[
    str | None, "The track's own licence, by the list of licences or the track's row; null without."
]


class Tag(NamedTuple):
    """A tag and its category."""

    category: str  # genre, instrument or mood/theme
    name: str  # as published, in lower case, without spaces: `punkrock`

    @classmethod
    def of(cls, marked: str) -> Self:
        """Parse a tag as lists write it: `genre---punkrock`."""
        category, _, name = marked.partition(MARK)
        return cls(category, name)

    @property
    def marked(self) -> str:
        """Return the tag as lists write it."""
        return f"{self.category}{MARK}{self.name}"


class Track(NamedTuple):
    """A track, as the list states it."""

    track_id: str  # `track_0000214`
    artist_id: str
    album_id: str
    path: str  # below the folder of the audio: `14/214.mp3`
    duration_s: float
    tags: tuple[Tag, ...]  # each once, synonyms replaced, in the order of the list; may be empty
    source_file: str  # the list, as the config writes it
    line: int  # from 1, the header being one
    licence: str = ""  # the track's own; `NOT_STATED` if licences of other tracks are listed


def file_of(pattern: str, path: str) -> str:
    """Return a track's file by a pattern: {path} is the path in the list, {stem} the same without its ending."""
    if pattern == "{path}":  # the most common pattern, of every track of a list
        return path
    return pattern.format(path=path, stem=PurePosixPath(path).with_suffix(""))


def fields_checked(option: str, pattern: str) -> str:
    """Return a pattern for `file_of`."""
    try:
        file_of(pattern, "a.b")
    except (KeyError, IndexError, ValueError):
        raise ValueError(f"expected {{path}} or {{stem}} in '{option}' and no other field") from None
    if ".." in PurePosixPath(pattern[pattern.find("{") :]).parts and "{" in pattern:
        raise ValueError(f"expected no '..' behind a field of '{option}'")
    return pattern


def audio_place(written: str) -> tuple[str, str]:
    """Return the folder that a text names, and the pattern of a track's file below it."""
    if "{" not in written:
        return written, "{path}"
    folder = "".join(written[: written.index("{")].rpartition("/")[:2])
    return folder or ".", written[len(folder) :]


class TrackSource(Model):
    """A list of tracks, and the folder of their audio."""

    name: Name = Field(description="What the rows' column `source` says, and what `licences` is asked by.")
    format: Annotated[str, OneOf("earmark.tasks.importers.tracks:TRACK_LAYOUTS")] = Field(
        default="mtg-jamendo",
        description="mtg-jamendo: its TSV; table: any table with track_id, audio, artist_id?, album_id?, tags? "
        "between ; or | or commas, licence?.",
    )
    tracks: str = Field(description="The list of tracks.")
    tag_map: str | None = Field(default=None, description="Synonyms of tags: JSON, as MTG-Jamendo's `tag_map.json`.")
    audio_licences: str | None = Field(
        default=None,
        description="MTG-Jamendo's `audio_licenses.txt`: each track's licence. What it leaves out is not published.",
    )
    audio_root: str | None = Field(
        default=None,
        description="Folder of the audio; without it, that of the list. A pattern such as `audio-low/{stem}.low.mp3` "
        "finds files of other names: {path} as listed, {stem} the same without its ending.",
    )

    @field_validator("audio_root")
    @classmethod
    def _pattern(cls, value: str | None) -> str | None:
        return value and fields_checked("audio_root", value)

    @property
    def audio_place(self) -> tuple[str | None, str]:
        """The folder of the audio, if written, and the pattern of a track's file below it."""
        return (None, "{path}") if self.audio_root is None else audio_place(self.audio_root)

    def identity(self) -> dict[str, Any]:
        """Return the part that decides rows, without places."""
        lists = {"tracks": self.tracks, "tag_map": self.tag_map, "audio_licences": self.audio_licences}
        return {
            **{"name": self.name, "format": self.format},
            **{key: written and without_place(written) for key, written in lists.items()},
        }


def _rises(value: tuple[float, float]) -> tuple[float, float]:
    if value[0] > value[1]:
        raise ValueError("expected the shortest length before the longest")
    return value


Lengths = Annotated[
    tuple[Annotated[float, Field(ge=0)], Annotated[float, Field(gt=0, le=43_200.0)]], AfterValidator(_rises)
]


def of_lengths(shortest_s: float, longest_s: float) -> Flat:
    """Return the table of before for `length_s`, which has these defaults; a key that it lacked was 2 or 7200 s."""

    def take(table: dict[str, Any]) -> list[float] | None:
        found = [table.get("shortest_s", 2.0), table.get("longest_s", 7200.0)]
        return None if found == [shortest_s, longest_s] else found

    def give(lengths: Sequence[float]) -> dict[str, float]:
        return {"shortest_s": lengths[0], "longest_s": lengths[1], "silence_dbfs": -60.0}

    return Flat("length_s", take, give)


class TracksConfig(ClipsConfig):
    """Build config of a corpus that is made from tagged tracks."""

    were_tables = {"tracks": of_lengths(2.0, 7200.0)}  # noqa: RUF012
    source: TrackSource = Field(description="The tracks.")
    length_s: Lengths = Field(
        default=(2.0, 7200.0), description="Shortest and longest track; others are rejects, longer ones not decoded."
    )
    shares: Shares = Field(default={"train": 1.0}, description="Shares of artists by split.")


START = """
[source]
name = {name}
format = {format}   # the layout that takes most of its first rows
tracks = {file}
# audio_root = "audio"   # where the audio lies, if not beside the list
# tag_map = "tag_map.json"   # synonyms of tags
"""
"""The source in a config that `earmark init` writes."""
