"""A request to a model, and its key: the digest of everything that can change the answer.

Not in the key: the host, paths on this machine, the time, prices, pace, timeouts, the order of requests.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import Any, Literal, TypeAlias

from earmark.schemas.annotation import AGAIN_TEMPERATURE

KEY_VERSION = 1
LONG_TEXT = 160
"""Texts of more characters stand in the canonical form by their SHA-256 and are kept once in the ledger."""


@dataclass(frozen=True, slots=True)
class Text:
    """Words, as the model reads them."""

    text: str


@dataclass(frozen=True, slots=True)
class AudioForm:
    """The form in which a model gets audio."""

    sample_rate_hz: int | None = 16_000  # rate after resampling; None keeps the file's
    channels: int | None = 1  # 1 mixes down; None keeps the file's
    codec: Literal["wav", "flac"] = "wav"  # container of the bytes that are sent
    longest_s: float | None = None  # what lies beyond is cut; None sends all
    gain_db: float | None = None  # by how much the level is changed before; None leaves it


@dataclass(frozen=True, slots=True)
class Audio:
    """A clip, or a span of one."""

    sha256: str  # the clip's identity: SHA-256 of its file, 64 hexadecimal digits
    path: str  # where the file lies on this machine; not part of the key
    start_s: float | None = None  # begin of the span in seconds; None is the clip's begin
    end_s: float | None = None  # end of the span in seconds; None is the clip's end
    # length of the whole clip, for the model's limits; not part of the key, since sha256 fixes it
    duration_s: float | None = None
    form: AudioForm = AudioForm()  # what the model gets

    @property
    def length_s(self) -> float | None:
        """Seconds that the model gets; None where the clip's duration is not known."""
        end = self.end_s if self.end_s is not None else self.duration_s
        length = None if end is None else max(0.0, end - (self.start_s or 0.0))
        longest = self.form.longest_s
        if longest is None:
            return length
        return longest if length is None else min(length, longest)


@dataclass(frozen=True, slots=True)
class Image:
    """A picture."""

    sha256: str  # SHA-256 of the file, 64 hexadecimal digits
    path: str  # where it lies on this machine; not part of the key
    media_type: str = "image/png"  # such as `image/png`


Part: TypeAlias = Text | Audio | Image
Role: TypeAlias = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn: parts in the order in which the model meets them."""

    role: Role
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, role: Role, *parts: Part | str) -> Message:
        """A message from parts and plain strings."""
        return cls(role, tuple(Text(part) if isinstance(part, str) else part for part in parts))


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters; None leaves a value to the server."""

    temperature: float | None = 0.0
    # stands in for a temperature of 0 in whatever is not the first try of the first draw
    again_temperature: float = AGAIN_TEMPERATURE
    top_p: float | None = None
    max_tokens: int = 1024
    seed: int | None = None
    stop: tuple[str, ...] = ()
    extra: str = "{}"  # further fields of the body, as canonical JSON (`canonical`), so that the whole stays hashable
    structured: str = "response_format"  # how a schema reaches the server; constrained decoding can change an answer
    # the tokens whose log-probabilities are asked for, where the server takes ids
    yes_no_token_ids: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class FreeText:
    """Any text that is not empty."""


@dataclass(frozen=True, slots=True)
class Json:
    """JSON that fits a schema."""

    schema: str  # the JSON schema as canonical JSON; make it with `Json.of`
    name: str = "answer"  # how the provider is told to call it

    @classmethod
    def of(cls, schema: Mapping[str, Any], name: str = "answer") -> Json:
        """An ask for JSON of this schema. Bound lengths (`maxLength`, `maxItems`), or answers may never end."""
        return cls(canonical(schema), name)


@dataclass(frozen=True, slots=True)
class Choice:
    """Exactly one of these words."""

    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class YesNo:
    """The probability of yes against no, from the first token's log-probabilities."""

    yes: str = "Yes"
    no: str = "No"

    @property
    def words(self) -> tuple[str, ...]:
        """The words whose log-probabilities are read."""
        return self.yes, self.no


@dataclass(frozen=True, slots=True)
class Rating:
    """A number on a scale of digits, 0 to 9: their mean, weighed by the first token's log-probabilities."""

    lowest: int = 1
    highest: int = 5

    @property
    def words(self) -> tuple[str, ...]:
        """The digits whose log-probabilities are read."""
        return tuple(str(digit) for digit in range(self.lowest, self.highest + 1))


Ask: TypeAlias = FreeText | Json | Choice | YesNo | Rating


@dataclass(frozen=True)
class Request:
    """One question to one model."""

    model: str  # the spec, such as `openai:gpt-4.1-mini`
    messages: tuple[Message, ...]  # what the model is told, in order
    ask: Ask = FreeText()  # the form of the answer
    sampling: Sampling = Sampling()  # sampling parameters
    sample: int = 0  # number of the draw, where one question is asked several times
    # what a `builtin:` function needs besides the media, as canonical JSON; other models never see it and their keys do
    # not hold it
    facts: str = field(default="null")
    repair: int = 0  # how many answers to this very draw could not be used; not part of the key

    @property
    def key(self) -> str:
        """SHA-256 of the canonical form, 64 hexadecimal digits."""
        held: str | None = self.__dict__.get("_key")  # by hand: `cached_property` takes a lock at each first use
        if held is None:
            held = self.__dict__["_key"] = hashlib.sha256(self.canonical.encode()).hexdigest()
        return held

    @property
    def temperature(self) -> float | None:
        """The temperature that a server gets: at 0 it would give the same answer to each draw."""
        sampling, again = self.sampling, self.sample > 0 or self.repair > 0
        return sampling.again_temperature if again and sampling.temperature == 0 else sampling.temperature

    @property
    def seed(self) -> int | None:
        """The seed that a server gets: each draw and repair its own, for one seed would give one answer."""
        return None if self.sampling.seed is None else self.sampling.seed + self.sample + 100_003 * self.repair

    @property
    def canonical(self) -> str:
        """Canonical JSON of all that can change the answer; long texts stand by their SHA-256."""
        facts = self.facts if self.model.startswith("builtin:") else "null"
        messages = ",".join([f'["{m.role}",[{",".join(map(_part_json, m.parts))}]]' for m in self.messages])
        head = _head_json(self.model, self.ask, self.sampling)
        drawn = f'"again":{self.temperature!r},' if self._again_counts else ""
        return f'{{{head},{drawn}"sample":{self.sample},"facts":{facts},"messages":[{messages}]}}'

    @property
    def _again_counts(self) -> bool:
        """Whether the key of a later draw names its temperature: not where it is the default, as in keys of before."""
        sampling = self.sampling
        return self.sample > 0 and sampling.temperature == 0 and sampling.again_temperature != AGAIN_TEMPERATURE

    def long_texts(self) -> dict[str, str]:
        """SHA-256 → text, for every text that the canonical form holds by digest."""
        texts = [part.text for message in self.messages for part in message.parts if isinstance(part, Text)]
        return {_text_digest(text): text for text in texts if len(text) > LONG_TEXT}

    def parts(self) -> tuple[Part, ...]:
        """All parts of all messages, in order."""
        return tuple(part for message in self.messages for part in message.parts)


def canonical(value: Any) -> str:
    """JSON with sorted keys, no spaces and ASCII only: equal values give equal text.

    Raises:
        ValueError: NaN or infinity, which JSON does not have.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


@lru_cache(maxsize=4096)
def _text_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@lru_cache(maxsize=1024)
def _head_json(model: str, ask: Ask, sampling: Sampling) -> str:
    """The part of the canonical form that most requests of a run share."""
    asked: dict[str, Any]
    match ask:
        case Json():
            asked = {"json": json.loads(ask.schema), "name": ask.name}
        case Choice():
            asked = {"choices": list(ask.choices)}
        case YesNo():
            asked = {"yes": ask.yes, "no": ask.no}
        case Rating():
            asked = {"lowest": ask.lowest, "highest": ask.highest}
        case FreeText():
            asked = {"text": True}
    sampled = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        "seed": sampling.seed,
        "stop": list(sampling.stop),
        "extra": json.loads(sampling.extra),
        "structured": sampling.structured,
        "yes_no_token_ids": sampling.yes_no_token_ids,
    }
    head = canonical({"v": KEY_VERSION, "model": model, "ask": asked, "sampling": sampled})
    return head[1:-1]


def _part_json(part: Part) -> str:
    if isinstance(part, Text):
        if len(part.text) > LONG_TEXT:
            return f'{{"text_sha256":"{_text_digest(part.text)}"}}'
        return f'{{"text":{encode_basestring_ascii(part.text)}}}'
    if isinstance(part, Image):
        return canonical({"image": part.sha256, "media_type": part.media_type})
    return _audio_json(part)


def _audio_json(audio: Audio) -> str:
    """Written by hand: a run holds hundreds of thousands, and a dictionary for each would be most of the key's cost."""
    start = "null" if not audio.start_s else repr(float(audio.start_s))
    end = "null" if audio.end_s is None else repr(float(audio.end_s))
    return f'{{"audio":"{audio.sha256}","start_s":{start},"end_s":{end},{_form_json(audio.form)}}}'


@lru_cache(maxsize=256)
def _form_json(form: AudioForm) -> str:
    longest = None if form.longest_s is None else float(form.longest_s)
    held = {"rate": form.sample_rate_hz, "channels": form.channels, "codec": form.codec, "longest_s": longest}
    if form.gain_db is not None:  # keys from before it was there do not name it
        held["gain_db"] = float(form.gain_db)
    return canonical(held)[1:-1]
