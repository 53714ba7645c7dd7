"""Define a request to a model, and its key: the digest of everything that can change the answer.

Not in the key: the host, local paths, the time, prices, pace, timeouts, the order of requests.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import Any, TypeAlias, TypedDict

from earmark.schemas.annotation import AGAIN_TEMPERATURE
from earmark.schemas.questions import (
    Ask,
    Audio,
    AudioForm,
    Choice,
    FreeText,
    Image,
    Json,
    Message,
    Part,
    ScaleRating,
    Text,
    YesNo,
    canonical,
)

KEY_VERSION = 1
_FENCE = re.compile(r"</?[a-zA-Z][a-zA-Z0-9_-]*-([0-9a-f]{10})>")
LONG_TEXT = 160  # the canonical form holds longer texts by their SHA-256; the ledger keeps each once


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters; None leaves a value to the server."""

    temperature: float | None = 0.0
    top_p: float | None = None
    max_tokens: int = 1024
    seed: int | None = None
    stop: tuple[str, ...] = ()
    extra: str = "{}"  # further fields of the body, as canonical JSON (`canonical`), to stay hashable
    structured: str = "response_format"  # how a schema reaches the server; constrained decoding can change an answer
    # tokens for log-probabilities, if the server takes ids
    yes_no_token_ids: tuple[int, int] | None = None


@dataclass(frozen=True)
class Request:
    """Question to a model."""

    model: str  # the spec, such as `openai:gpt-4.1-mini`
    messages: tuple[Message, ...]  # messages in order
    ask: Ask = field(default=FreeText())  # the form of the answer
    sampling: Sampling = Sampling()  # sampling parameters
    sample: int = 0  # number of the draw of a repeated question
    # input of a `builtin:` function besides the media, as canonical JSON; hidden from other models and absent from
    # their keys
    facts: str = field(default="null")
    repair: int = 0  # number of unusable answers to this draw; not part of the key

    @property
    def key(self) -> str:
        """Return the SHA-256 of the canonical form, 64 hexadecimal digits."""
        held: str | None = self.__dict__.get("_key")  # by hand: `cached_property` takes a lock at each first use
        if held is None:
            held = self.__dict__["_key"] = hashlib.sha256(self.canonical.encode()).hexdigest()
        return held

    @property
    def temperature(self) -> float | None:
        """Return the temperature for the server: at 0, every draw would get the same answer."""
        given, again = self.sampling.temperature, self.sample > 0 or self.repair > 0
        return AGAIN_TEMPERATURE if again and given == 0 else given

    @property
    def seed(self) -> int | None:
        """Return the seed for the server: each draw and repair gets another, as equal seeds give equal answers."""
        return None if self.sampling.seed is None else self.sampling.seed + self.sample + 100_003 * self.repair

    @property
    def canonical(self) -> str:
        """Return canonical JSON of everything that can change the answer; long texts appear by their SHA-256."""
        facts = self.facts if self.model.startswith("builtin:") else "null"
        messages = ",".join([f'["{m.role}",[{",".join(map(_part_json, m.parts))}]]' for m in self.messages])
        head = _head_json(self.model, self.ask, self.sampling)
        return f'{{{head},"sample":{self.sample},"facts":{facts},"messages":[{messages}]}}'

    def redecoding(self, clips: frozenset[str]) -> Request:
        """Return this request with these clips marked as decoded in part by Earmark 1.0.0 (`Audio.redecoded`)."""
        if not any(isinstance(part, Audio) and part.sha256 in clips for part in self.parts()):
            return self
        messages = tuple(
            replace(
                message,
                parts=tuple(
                    replace(part, redecoded=part.sha256 in clips) if isinstance(part, Audio) else part
                    for part in message.parts
                ),
            )
            for message in self.messages
        )
        return replace(self, messages=messages)

    def long_texts(self) -> dict[str, str]:
        """Return SHA-256 → text for every text held by digest in the canonical form."""
        texts = [part.text for message in self.messages for part in message.parts if isinstance(part, Text)]
        return {_text_digest(text): text for text in texts if len(text) > LONG_TEXT}

    def fences(self) -> frozenset[str]:
        """Return the tags of the fences around text from outside (`tasks/annotation/prompts.py`).

        The first mark of a part is its rendering's own: text from outside comes after it.
        """
        marks = (_FENCE.search(part.text) for part in self.parts() if isinstance(part, Text))
        return frozenset(mark[1] for mark in marks if mark)

    def parts(self) -> tuple[Part, ...]:
        """Return all parts of all messages, in order."""
        return tuple(part for message in self.messages for part in message.parts)


@lru_cache(maxsize=4096)
def _text_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@lru_cache(maxsize=1024)
def _head_json(model: str, ask: Ask, sampling: Sampling) -> str:
    """Return the part of the canonical form shared by most requests of a run."""
    asked: dict[str, Any]
    match ask:
        case Json(ordered=True):
            asked = {"schema": ask.schema, "name": ask.name}
        case Json():
            asked = {"json": json.loads(ask.schema), "name": ask.name}
        case Choice():
            asked = {"choices": list(ask.choices)}
        case YesNo():
            asked = {"yes": ask.yes, "no": ask.no}
        case ScaleRating():
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
    """Write the JSON by hand: a run holds hundreds of thousands, and dictionaries would dominate the key's cost."""
    start = "null" if not audio.start_s else repr(float(audio.start_s))
    end = "null" if audio.end_s is None else repr(float(audio.end_s))
    decoder = ',"decoder":"ffmpeg"' if audio.redecoded else ""
    return f'{{"audio":"{audio.sha256}","start_s":{start},"end_s":{end},{_form_json(audio.form)}{decoder}}}'


@lru_cache(maxsize=256)
def _form_json(form: AudioForm) -> str:
    longest = None if form.longest_s is None else float(form.longest_s)
    held = {"rate": form.sample_rate_hz, "channels": form.channels, "codec": form.codec, "longest_s": longest}
    if form.gain_db is not None:  # keys from before this field omit it
        held["gain_db"] = float(form.gain_db)
    return canonical(held)[1:-1]


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer in the requested form."""

    key: str  # the request's key
    value: Any  # text, a choice, JSON, or for yes/no a dict with `p_yes`
    model: str | None = None  # model name reported by the server
    notes: tuple[str, ...] = ()  # changes to fit the model's limits, such as cut audio
    from_ledger: bool = field(default=False, compare=False)  # whether an earlier run left it; no part of the answer


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Request without a usable answer."""

    key: str  # the request's key
    reason: str  # fixed word; see `errors.py`
    detail: str  # expected and found, in one line
    final: bool = False  # whether the ledger keeps it; the next run asks others again
    notes: tuple[str, ...] = ()
    from_ledger: bool = field(default=False, compare=False)  # whether an earlier run left it


Outcome: TypeAlias = Answer | Unanswered


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a call to `Annotator.ask`."""

    outcomes: list[Outcome]  # outcomes in the order of the requests
    distinct: int  # number of distinct requests; the counts below are of these
    answered: int  # requests with an answer
    rejected: int  # requests without; `answered + rejected = distinct`
    from_ledger: int  # answered or rejected requests already in the ledger
    exchanges: int  # exchanges with the model
    input_tokens: int  # tokens in
    output_tokens: int  # tokens out
    spent_usd: float  # cost of this call in US dollars; 0 without prices
    # answers with impossible token counts; their greatest possible counts stand in
    odd_usage: int = 0

    def reasons(self) -> dict[str, int]:
        """Count the rejects among the outcomes by reason."""
        return dict(sorted(Counter(o.reason for o in self.outcomes if isinstance(o, Unanswered)).items()))


class Forecast(TypedDict):
    """Estimate of a call to `Annotator.ask`; nothing is asked."""

    requests: int  # number of requests
    distinct: int  # number of distinct requests
    from_ledger: int  # distinct requests finished already
    in_batches: int  # distinct requests in batches at the provider, or in one that may have arrived: not to be sent now
    over_limit: int  # distinct requests beyond the model's limits
    to_ask: int  # calls to make, without retries
    input_tokens: int  # estimate for those calls
    most_output_tokens: int  # greatest number, with every answer at its cap
    most_usd: float  # upper estimate of the cost in US dollars; 0 without prices
    refused: int  # calls for kept answers invalid by today's rules
    priced: bool  # whether the annotator has prices, or costs nothing
    refused_usd: float  # their part of the cost


class AskPlan(Forecast):
    """Estimate of a command's requests to a model."""

    about: str  # number and subject of the requests
    annotator: str
