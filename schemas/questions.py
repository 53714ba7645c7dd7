"""Define a question's parts (text, images, clips and the form of their bytes) and the forms of its answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypedDict


@dataclass(frozen=True, slots=True)
class Text:
    """Text in a message."""

    text: str


@dataclass(frozen=True, slots=True)
class Image:
    """Image in a message."""

    sha256: str  # SHA-256 of the file, 64 hexadecimal digits
    path: str  # local path; not part of the key
    media_type: str = "image/png"  # such as `image/png`


@dataclass(frozen=True, slots=True)
class AudioForm:
    """Form of audio sent to a model."""

    sample_rate_hz: int | None = 16_000  # rate after resampling; None keeps the file's
    channels: int | None = 1  # 1 mixes down; None keeps the file's
    codec: Literal["wav", "flac"] = "wav"  # container of the bytes that are sent
    longest_s: float | None = None  # the rest is cut; None sends all
    gain_db: float | None = None  # gain before sending; None keeps the level


@dataclass(frozen=True, slots=True)
class Audio:
    """Clip, or a span of a clip."""

    sha256: str  # SHA-256 of the clip's file, 64 hexadecimal digits
    path: str  # local path of the file; not part of the key
    start_s: float | None = None  # begin of the span in seconds; None is the clip's begin
    end_s: float | None = None  # end of the span in seconds; None is the clip's end
    # length of the whole clip, for the model's limits; not part of the key, since sha256 fixes it
    duration_s: float | None = None
    form: AudioForm = AudioForm()  # form of the sent audio
    # True for a clip decoded in part by Earmark 1.0.0: an answer about the part has another key
    redecoded: bool = False

    @property
    def length_s(self) -> float | None:
        """Return the length of the sent audio in seconds; None if the clip's duration is unknown."""
        end = self.end_s if self.end_s is not None else self.duration_s
        length = None if end is None else max(0.0, end - (self.start_s or 0.0))
        longest = self.form.longest_s
        if longest is None:
            return length
        return longest if length is None else min(length, longest)


Part: TypeAlias = Text | Audio | Image
Role: TypeAlias = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Message:
    """Turn of a conversation: parts in their order."""

    role: Role
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, role: Role, *parts: Part | str) -> Message:
        """Make a message from parts and plain strings."""
        return cls(role, tuple(Text(part) if isinstance(part, str) else part for part in parts))


@dataclass(frozen=True, slots=True)
class FreeText:
    """Any nonempty text."""


@dataclass(frozen=True, slots=True)
class Json:
    """JSON in a schema."""

    schema: str  # JSON schema as sent; make it with `Json.of`
    name: str = "answer"  # the answer's name for the provider
    ordered: bool = False  # whether keys keep their declared order, then held by the request's key; else sorted

    @classmethod
    def of(cls, schema: Mapping[str, Any], name: str = "answer", *, ordered: bool = False) -> Json:
        """Return an ask for JSON of this schema. Bound lengths (`maxLength`, `maxItems`), or answers may never end."""
        text = json.dumps(schema, separators=(",", ":"), allow_nan=False) if ordered else canonical(schema)
        return cls(text, name, ordered)


@dataclass(frozen=True, slots=True)
class Choice:
    """Exactly one of these words."""

    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class YesNo:
    """Probability of yes against no, from the first token's log-probabilities."""

    yes: str = "Yes"
    no: str = "No"

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words for the log-probabilities."""
        return self.yes, self.no


@dataclass(frozen=True, slots=True)
class ScaleRating:
    """Rating on a scale of digits, 0 to 9: their mean, weighted by the first token's log-probabilities."""

    lowest: int = 1
    highest: int = 5

    @property
    def words(self) -> tuple[str, ...]:
        """Return the digits for the log-probabilities."""
        return tuple(str(digit) for digit in range(self.lowest, self.highest + 1))


Ask: TypeAlias = FreeText | Json | Choice | YesNo | ScaleRating


def canonical(value: Any) -> str:
    """Return JSON with sorted keys, no spaces and ASCII only: equal values give equal text.

    Raises:
        ValueError: NaN or infinity, which JSON lacks.
    """
    return _CANONICAL.encode(value)


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


class YesNoValue(TypedDict):
    """Value of a yes or no: its probability, the listed mass of both words, and whether that is a bound."""

    p_yes: float
    share: float
    bounded: bool


def says_yes(p_yes: float) -> bool:
    """Return whether a probability of yes means yes: one half means neither."""
    return p_yes > 0.5
