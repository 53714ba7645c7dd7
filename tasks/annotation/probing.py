"""Probe a model's abilities with tiny requests before a build. They enter no ledger and are no answers.

Each kind of question gets a single request: its form of answer, with the kinds of its parts.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import soundfile
from PIL import Image as Picture
from yarl import URL

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.errors import EarmarkError
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
    YesNo,
)
from earmark.tasks.annotation.answers import BEGINS, ENDS, Reply, answer_value, spoken
from earmark.tasks.annotation.backend import Backend, Media, make_backend, question
from earmark.tasks.annotation.errors import (
    AskError,
    BadAnswer,
    LowShare,
    SchemaMismatch,
    StopRun,
    TimedOut,
    Truncated,
    one_line,
)
from earmark.tasks.annotation.openai_compatible import OpenAICompatible
from earmark.tasks.annotation.request import Request

MOST_TOKENS = 256
LONGEST_S = 120.0
CLIP_S = 1.0
INSTRUMENT = Json.of(
    {
        "type": "object",
        "properties": {"tempo": {"type": "string", "maxLength": 20}, "instrument": {"type": "string", "maxLength": 20}},
        "required": ["tempo", "instrument"],
        "additionalProperties": False,
    }
)
THINKING = "it thinks first; such as chat_template_kwargs = { enable_thinking = false } in extra_body turns that off"

State: TypeAlias = Literal["ok", "off", "bad"]


@dataclass(frozen=True)
class ModelFact:
    """Fact about a model; `detail` gives the observation, or the remedy."""

    about: str  # `server`, or the kind of question
    state: State
    detail: str
    requests: int = 0  # number of requests for it


@dataclass(frozen=True)
class QuestionKind:
    """Questions a server accepts or rejects alike."""

    form: Ask
    audio: AudioForm | None = None
    image: bool = False

    @classmethod
    def of(cls, request: Request) -> QuestionKind:
        """Return the kind of a question; all JSON schemas are the same kind."""
        parts = request.parts()
        forms = [part.form for part in parts if isinstance(part, Audio)]
        form = INSTRUMENT if isinstance(request.ask, Json) else request.ask
        return cls(form, forms[0] if forms else None, any(isinstance(part, Image) for part in parts))

    @property
    def name(self) -> str:
        """Return the kind's name for messages."""
        names = {FreeText: "text", Json: "JSON", Choice: "choice", YesNo: "yes or no", ScaleRating: "rating"}
        media = [name for name, given in (("audio", self.audio), ("image", self.image)) if given]
        return " about ".join([names[type(self.form)], *([" and ".join(media)] if media else [])])


def probe(config: AnnotatorConfig, examples: Iterable[Request], *, server: bool = True) -> list[ModelFact]:
    """Ask a model a tiny request for each kind of the examples; embedded functions are not asked.

    Args:
        config: the model.
        examples: questions of a build; without any, the model is asked for a word.
        server: also read the server's list of models.
    """
    if config.annotator.startswith(("builtin:", "scorer:")):
        return []
    kinds = dict.fromkeys(map(QuestionKind.of, examples)) or {QuestionKind(FreeText()): None}
    return asyncio.run(_probe(config, kinds, server=server))


async def _probe(config: AnnotatorConfig, kinds: Iterable[QuestionKind], *, server: bool) -> list[ModelFact]:
    found: list[ModelFact] = []
    try:
        backend = make_backend(config, Media(load_audio=_tone, load_image=lambda image: _picture()))
        await backend.open()
    except (EarmarkError, AskError) as error:
        return [ModelFact("server", "bad", str(error))]
    try:
        if server and isinstance(backend, OpenAICompatible):
            found.append(await _server(backend, config))
        for kind in kinds:
            found.append(await _ask(backend, config, kind))
    finally:
        await backend.close()
    return found


# -- the server ---------------------------------------------------------------------------------------------------


async def _server(backend: OpenAICompatible, config: AnnotatorConfig) -> ModelFact:
    """Read the server's list of models, and llama.cpp's properties: models, context, slots."""
    models = await _get(backend, f"{backend.base_url}/models")
    listed = [one for one in _field(models, "data", list) or [] if isinstance(one, dict)]
    wanted = config.annotator.partition(":")[2]
    names = [str(one.get("id")) for one in listed]
    mine = next((one for one in listed if wanted in (one.get("id"), *(_field(one, "aliases", list) or ()))), None)
    props = await _get(backend, f"{backend.base_url.removesuffix('/v1')}/props") if listed else None
    settings = _field(props, "default_generation_settings", dict)
    of_slot = _field(settings, "n_ctx", int)
    lengths = [_field(mine, name, int) for name in ("max_model_len", "context_length", "context_window")]
    trained = _field(_field(mine, "meta", dict), "n_ctx", int) or _field(_field(mine, "meta", dict), "n_ctx_train", int)
    context = next(filter(None, [of_slot, *lengths, trained]), None)
    slots = _field(props, "total_slots", int)
    facts = [f"{len(names)} models listed" if listed else "lists no models"]
    if listed and mine is None:
        facts = [f"'{one_line(wanted, 60)}' is not in its list ({one_line(', '.join(names[:5]), 120)})"]
    facts += [f"context {context:,} tokens"] if context else []
    if slots:
        more = (
            f" (max_concurrency = {config.max_concurrency}: the rest waits)" if slots < config.max_concurrency else ""
        )
        facts.append(f"{slots} slots{more}")
    asked = config.limits.context_tokens
    if context and max(config.max_tokens, asked or 0) >= context:
        key = f"limits.context_tokens = {asked}" if asked and asked > context else f"max_tokens = {config.max_tokens}"
        return ModelFact("server", "bad", "; ".join([*facts, f"{key} is more than it holds"]))
    return ModelFact("server", "ok" if mine else "off", "; ".join(facts))


async def _get(backend: OpenAICompatible, url: str) -> Any:
    with suppress(AskError, ValueError, RecursionError, TimeoutError):
        async with asyncio.timeout(10.0):
            return json.loads((await backend.http.exchange("GET", URL(url)))[1])
    return None


def _field(value: Any, name: str, kind: type) -> Any:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, kind) and not isinstance(found, bool) else None


# -- kinds of questions -------------------------------------------------------------------------------------------


async def _ask(backend: Backend, config: AnnotatorConfig, kind: QuestionKind) -> ModelFact:
    request = _request(config, kind)
    started = time.monotonic()
    try:
        raw = await _send(backend, request)
    except (AskError, EarmarkError) as error:
        return ModelFact(kind.name, "bad", _refused(kind, error), 1)
    seconds = f"{time.monotonic() - started:.2f} s"
    try:
        reply = backend.read(request, raw)
    except AskError as error:
        return ModelFact(kind.name, "bad", str(error), 1)
    thinks = _thinks(reply, raw)
    try:
        value = answer_value(kind.form, reply, config.least_share)
    except Truncated as error:
        state: State = "ok" if thinks else "bad"
        return ModelFact(kind.name, state, f"{THINKING if thinks else error}; {seconds}", 1)
    except (SchemaMismatch, LowShare) as error:
        more = f"; {THINKING}" if thinks else ""
        schema = f"; structured = '{config.structured}' does not hold it to a schema" if kind.form == INSTRUMENT else ""
        return ModelFact(kind.name, "bad", f"{error}{schema}{more}", 1)
    except BadAnswer as error:
        if isinstance(kind.form, Choice):
            return await _choose(backend, config, kind, seconds)
        return ModelFact(kind.name, "bad", f"{error}{f'; {THINKING}' if thinks else ''}", 1)
    except AskError as error:
        return ModelFact(kind.name, "bad", str(error), 1)
    facts = [_seen(kind.form, reply, value), *([THINKING] if thinks else []), seconds]
    return ModelFact(kind.name, "ok", "; ".join(facts), 1)


async def _choose(backend: Backend, config: AnnotatorConfig, kind: QuestionKind, seconds: str) -> ModelFact:
    """Ask an unconstrained model for one of the words, in words."""
    words = getattr(kind.form, "choices", ())
    said = f"Answer with one of these words and nothing else: {', '.join(words)}"
    request = _request(config, kind, said)
    try:
        answer_value(kind.form, backend.read(request, await _send(backend, request)))
    except (AskError, EarmarkError) as error:
        return ModelFact(kind.name, "bad", str(error), 2)
    return ModelFact(kind.name, "ok", f"takes a word that it is told; the server does not constrain it; {seconds}", 2)


def _request(config: AnnotatorConfig, kind: QuestionKind, said: str | None = None) -> Request:
    parts: list[Part] = []
    if kind.audio is not None:
        form = replace(kind.audio, longest_s=None, gain_db=None)
        parts.append(Audio(hashlib.sha256(b"probe").hexdigest(), "probe.wav", duration_s=CLIP_S, form=form))
    if kind.image:
        parts.append(Image(hashlib.sha256(_picture()).hexdigest(), "probe.png"))
    request = question(config, [Message.of("user", *parts, said or _words(kind.form))], kind.form)
    return replace(request, sampling=replace(request.sampling, max_tokens=min(MOST_TOKENS, config.max_tokens)))


def _words(form: Ask) -> str:
    match form:
        case Json():  # in reverse order of the schema, to show the order kept
            keys = " and ".join(f'"{key}"' for key in reversed(_keys(form)))
            return f"Name an instrument and a tempo that suits it, as JSON with the keys {keys}."
        case Choice():
            return "Write the number of days in a week, in one word."  # a constrained model cannot
        case YesNo(yes, no):
            return f"Is ice cold? Answer with one word, {yes} or {no}."
        case ScaleRating(lowest, highest):
            return f"Write one digit from {lowest} to {highest} and nothing else."
        case FreeText():
            return "Answer with one word: ready."


def _keys(form: Json) -> list[str]:
    return list(json.loads(form.schema)["properties"])


def _seen(form: Ask, reply: Reply, value: Any) -> str:
    match form:
        case Json():
            kept = list(json.loads(spoken(reply.text))) == _keys(form) if reply.text.strip().startswith("{") else False
            return f"fits the schema, keys {'in its order' if kept else 'in another order: the schema is not enforced'}"
        case Choice():
            return "one of the words, as the server constrains it"
        case YesNo() | ScaleRating():
            bound = ", one of them not listed" if value.get("bounded") else ""
            return f"log-probabilities of {len(reply.first_token)} tokens, share {value['share']:.2f}{bound}"
        case FreeText():
            return f"'{one_line(str(value), 40)}'"


def _thinks(reply: Reply, raw: str) -> bool:
    """Return whether thoughts came before an answer, in its text or in a separate field."""
    if BEGINS.search(reply.text) or ENDS.search(reply.text):
        return True
    with suppress(ValueError, LookupError, TypeError, RecursionError):
        message = json.loads(raw)["choices"][0]["message"]
        return bool(message.get("reasoning_content") or message.get("reasoning"))
    return False


async def _send(backend: Backend, request: Request) -> str:
    try:
        async with asyncio.timeout(LONGEST_S):
            return await backend.send(request)
    except TimeoutError:
        raise TimedOut("total", LONGEST_S) from None


def _refused(kind: QuestionKind, error: Exception) -> str:
    if (kind.audio is None and not kind.image) or isinstance(error, StopRun):
        return str(error)
    return f"{error}; a model that takes no {'images' if kind.image else 'audio'} cannot be asked here"


def _tone(part: Audio) -> bytes:
    rate = part.form.sample_rate_hz or 16_000
    wave = 0.1 * np.sin(2 * np.pi * 440 * np.arange(int(CLIP_S * rate)) / rate)
    held = io.BytesIO()
    channels: Sequence[Any] = [wave] * (part.form.channels or 1)
    soundfile.write(held, np.column_stack(channels), rate, format=part.form.codec.upper(), subtype="PCM_16")
    return held.getvalue()


def _picture() -> bytes:
    held = io.BytesIO()
    Picture.new("RGB", (64, 64), "white").save(held, "PNG")
    return held.getvalue()
