"""Ask servers of OpenAI's chat completions: OpenAI itself, vLLM's server, and many others."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from yarl import URL

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.questions import Ask, Audio, Choice, Image, Json, Message, Part, ScaleRating, Text, YesNo
from earmark.tasks.annotation.answers import NO_USAGE, Reply, answer_value, first_tokens, model_name, token_counts
from earmark.tasks.annotation.backend import Media, backend
from earmark.tasks.annotation.errors import (
    AskError,
    BadAnswer,
    BadRequest,
    ConnectionFailed,
    Empty,
    Misshapen,
    RowRefused,
    Streamed,
    Truncated,
    Unsupported,
    one_line,
)
from earmark.tasks.annotation.http import Base64, Http, HttpBackend, json_bytes, parsed_reply
from earmark.tasks.annotation.request import Request, Sampling

if TYPE_CHECKING:
    from earmark.tasks.annotation.batch_openai import OpenAIBatches

LOG = logging.getLogger("earmark.annotation")
LOOK_S = 10.0
FIELDS = frozenset({"structured_outputs", "guided_choice", "grammar", "regex", "response_format", "tools"})
"""Fields with a constraint: a config's own one, in `extra_body`, wins."""
Form: TypeAlias = Callable[[Sequence[str]], dict[str, Any]]


def _none(_: Sequence[str]) -> dict[str, Any]:
    return {}


def _enum(words: Sequence[str]) -> dict[str, Any]:
    """Return the form for unknown servers; the answer is then a JSON string, and is read as one."""
    schema = {"name": "choice", "schema": {"type": "string", "enum": [*words]}, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


FORMS: dict[str, Form] = {
    "vllm": lambda words: {"structured_outputs": {"choice": [*words]}},
    "vllm before 0.11": lambda words: {"guided_choice": [*words]},
    "sglang": lambda words: {"regex": f"({'|'.join(map(re.escape, words))})"},
    "llamacpp": lambda words: {"grammar": "root ::= " + " | ".join(map(json.dumps, words))},
}
"""Forms by `owned_by` in the server's list of models."""


class Choices:
    """Constraint of choices at one server, found at the first choice and dropped where the server does not hold it.

    A constraint is a matter of transport: no key holds it, and an answer that is a choice by itself stays the same.
    Yes/no questions and ratings have none: it would change the probabilities that are read.

    Args:
        http: connections to the server.
        base_url: its address, with `/v1`.
        held: whether to constrain at all; OpenAI's own server takes no schema of a single word.
    """

    def __init__(self, http: Http, base_url: str, *, held: bool) -> None:
        self._http, self._base_url = http, base_url
        self._form: Form | None = None if held else _none
        self._lock = asyncio.Lock()
        self.proved = False  # whether a constrained answer was one of its choices

    async def fields(self, request: Request) -> dict[str, Any]:
        """Return the fields of a request's body that constrain its answer; none for other forms of answer.

        Raises:
            ConnectionFailed: the server cannot be reached.
        """
        sampling = request.sampling
        if not isinstance(request.ask, Choice) or sampling.structured != "response_format":
            return {}
        if FIELDS & json.loads(sampling.extra).keys():
            return {}
        async with self._lock:
            self._form = self._form or await self._found()
        return self._form(request.ask.choices)

    async def _found(self) -> Form:
        owner = ""
        with suppress(LookupError, TypeError, AttributeError):
            owners = {one["owned_by"] for one in (await self._get(f"{self._base_url}/models"))["data"]}
            owner = str(owners.pop()) if len(owners) == 1 else ""
            if owner == "vllm":
                version = (await self._get(f"{self._base_url.removesuffix('/v1')}/version"))["version"]
                owner += " before 0.11" if re.match(r"0\.(\d|10)\.", version) else ""
        return FORMS.get(owner, _enum)

    async def _get(self, url: str) -> Any:
        try:
            async with asyncio.timeout(LOOK_S):
                return json.loads((await self._http.exchange("GET", URL(url)))[1])
        except ConnectionFailed:
            raise
        except (AskError, ValueError, RecursionError, TimeoutError):
            return None

    def heard(self, request: Request, reply: Reply) -> None:
        """Note the answer to a constrained request: another text than a choice shows that nothing constrains it."""
        try:
            answer_value(request.ask, reply)
            self.proved = True
        except (Empty, Truncated):
            return
        except BadAnswer as error:
            self.drop(f"does not hold answers to them ({error})")
        except AskError:
            return

    def drop(self, said: str) -> None:
        """Constrain no more; tell it once."""
        if self._form is not _none:
            LOG.warning("choices are asked for in words alone: %s %s", self._base_url, one_line(said))
        self._form = _none


KEYWORDS = {
    *("type", "enum", "const", "anyOf", "properties", "required", "additionalProperties", "items", "pattern", "format"),
    *("minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("description", "title"),
}
HOSTS = ("openai.com", "openai.azure.com")


def strict_schema(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema without refused keywords, such as `maxLength`; answers are checked against the whole schema.

    Returns:
        A schema at least as permissive; None if strict mode cannot express it: an object with optional fields, or with
        fields of any name, or a reference.
    """
    if "$ref" in schema or "$defs" in schema:
        return None
    kept = {key: value for key, value in schema.items() if key in KEYWORDS}
    if "enum" in kept and "type" not in kept and all(isinstance(word, str) for word in kept["enum"]):
        kept |= {"type": "string"}
    fields = kept.get("properties", {})
    if kept.get("type") == "object" or fields:
        if kept.get("additionalProperties") is not False or {*kept.get("required", ())} != {*fields}:
            return None
        kept |= {"properties": {name: strict_schema(one) for name, one in fields.items()}}
    if "items" in kept:
        kept |= {"items": strict_schema(kept["items"])}
    if "anyOf" in kept:
        kept |= {"anyOf": [strict_schema(one) for one in kept["anyOf"]]}
    parts = [*kept.get("properties", {}).values(), kept.get("items", {}), *kept.get("anyOf", ())]
    return None if None in parts else kept


OPENAI_URL = "https://api.openai.com/v1"
TOP_LOGPROBS = 20  # greatest number of alternatives listed by OpenAI
LEAST_LISTED = 5  # smallest number of alternatives to ask for instead


ENDS = frozenset({"stop", "eos", "eos_token", "stop_sequence", "end_turn", "STOP"})
"""Servers' words for the end of a complete answer."""
CUT = frozenset({"length", "max_tokens", "MAX_TOKENS", "model_length"})
FILTERED = frozenset({"content_filter", "refusal", "SAFETY", "sensitive"})
THOUGHTS = frozenset({"thinking", "reasoning", "redacted_thinking"})  # message parts outside the answer
TOO_MANY = re.compile(r"logprobs\D{0,80}?(\d{1,3})\b|(\d{1,3})\D{0,40}logprobs", re.IGNORECASE)


@backend("openai", hosted=True, batches=True)
class OpenAICompatible(HttpBackend):
    """Client of chat completions over HTTP; its key in `OPENAI_API_KEY`, or in the variable `api_key_env`, goes to the
    servers bound to it in the environment (`tasks/annotation/keys.py`)."""

    def __init__(self, config: AnnotatorConfig, media: Media) -> None:
        super().__init__(config, media, OPENAI_URL, ("OPENAI_API_KEY",), "Authorization", "Bearer {}")
        self._url = URL(f"{self.base_url}/chat/completions")
        self._most_listed = TOP_LOGPROBS  # number of alternatives of the first token listed by the server
        self._choices = Choices(self.http, self.base_url, held=not is_openai(self._url.host or ""))

    async def send(self, request: Request) -> str:
        """Ask once and return the response's body; after a refusal of the number of alternatives, ask for fewer; after
        one of a constrained choice, ask without the constraint."""
        listed, constraint = self._most_listed, await self._choices.fields(request)
        try:
            raw = await self._send(request, constraint)
        except (BadRequest, Unsupported) as error:
            if constraint and not self._choices.proved and not isinstance(error, RowRefused | Streamed):
                raw = await self._send(request)
                self._choices.drop(f"refuses a constraint ({error})")
                return raw
            if not isinstance(request.ask, YesNo | ScaleRating) or not self._lists_fewer(listed, str(error)):
                raise
            return await self._send(request)
        with suppress(AskError):  # the engine reads it again
            if constraint:
                self._choices.heard(request, self.read(request, raw))
        return raw

    def _lists_fewer(self, asked: int, said: str) -> bool:
        """Return whether a refusal is about the number of alternatives; note its number, or 5."""
        if "logprobs" not in said or asked <= LEAST_LISTED:
            return False
        if self._most_listed < asked:  # another request noted it before
            return True
        numbers = [int(one or other) for one, other in TOO_MANY.findall(said)]
        self._most_listed = max([n for n in numbers if LEAST_LISTED <= n < self._most_listed], default=LEAST_LISTED)
        return True

    async def _send(self, request: Request, constraint: Mapping[str, Any] | None = None) -> str:
        if all(map(self._media.at_hand, request.parts())):
            body = self.encoded(request, constraint)
        else:
            body = await asyncio.to_thread(self.encoded, request, constraint)
        return await self.http.post_json(self._url, body)

    def read(self, request: Request, raw: str) -> Reply:
        """Read a chat completion."""
        return read_chat_completion(raw)

    def batches(self) -> OpenAIBatches:
        """Return the batch API of the same account."""
        from earmark.tasks.annotation.batch_openai import OpenAIBatches

        return OpenAIBatches(self.http, self.base_url, self.body)

    def encoded(self, request: Request, constraint: Mapping[str, Any] | None = None) -> bytes:
        """Return the request's body, including media and the fields of a constraint.

        Raises:
            BadMedia: a clip or image cannot be read.
        """
        return json_bytes(self.body(request) | dict(constraint or {}))

    def body(self, request: Request) -> dict[str, Any]:
        """Return the request's body before encoding, with media as `Base64`."""
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": request.model.partition(":")[2],
            "messages": [message_body(message, self._media) for message in request.messages],
            self._config.max_tokens_field: sampling.max_tokens,
        }
        body |= sampled(request)
        if sampling.extra != "{}":
            body.update(json.loads(sampling.extra))
        narrow = is_openai(self._url.host or "")
        constrain(body, request.ask, sampling, self._config.max_tokens_field, self._most_listed, narrow=narrow)
        return body


def is_openai(host: str) -> bool:
    """Return whether a host is OpenAI's own, or Azure's for it."""
    return any(host == known or host.endswith(f".{known}") for known in HOSTS)


def sampled(request: Request) -> dict[str, Any]:
    """Return the set sampling parameters, except the token cap, by the names of chat completions."""
    sampling = request.sampling
    values = {"temperature": request.temperature, "top_p": sampling.top_p, "seed": request.seed}
    stop = {"stop": list(sampling.stop)} if sampling.stop else {}
    return {name: value for name, value in values.items() if value is not None} | stop


def message_body(message: Message, media: Media) -> dict[str, Any]:
    """Return a turn as a chat-completion message, with media as `Base64`."""
    if len(message.parts) == 1 and isinstance(message.parts[0], Text):
        return {"role": message.role, "content": message.parts[0].text}
    return {"role": message.role, "content": [_part_body(part, media) for part in message.parts]}


def _part_body(part: Part, media: Media) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Audio():
            data = Base64(media.audio(part))
            return {"type": "input_audio", "input_audio": {"data": data, "format": part.form.codec}}
        case Image():
            url = Base64(media.image(part), f"data:{part.media_type};base64,")
            return {"type": "image_url", "image_url": {"url": url}}


def read_chat_completion(raw: str) -> Reply:
    """Read a chat completion.

    Raises:
        MalformedResponse: not JSON.
        Misshapen: not a chat completion.
    """
    body = parsed_reply(raw)
    try:
        choice = body["choices"][0]
        message = choice["message"]
        content, ended = message.get("content"), choice.get("finish_reason")
        finish = ended if isinstance(ended, str) else None
        refusal = message.get("refusal") or ("content filter" if finish in FILTERED else None)
        text, unreadable = _text(content)
        return Reply(
            text=text,
            refusal=None if refusal is None else str(refusal),
            cut=finish in CUT,
            broken=None if finish in ENDS | CUT | FILTERED and not choice.get("error") else _broken(ended, choice),
            unreadable=unreadable,
            model=model_name(body.get("model")),
            **_usage(body.get("usage"), text),
            first_token=_first_token(choice.get("logprobs")),
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError):
        raise Misshapen(_misshapen(body)) from None


def _text(content: Any) -> tuple[str, str | None]:
    """Return the text of a message without thoughts, or the kind of content in its place."""
    if content is None or isinstance(content, str):
        return content or "", None
    if not isinstance(content, list):
        return "", type(content).__name__
    said = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if kind in ("text", "output_text") and isinstance(part.get("text"), str):
            said.append(part["text"])
        elif kind not in THOUGHTS:
            return "", f"a part '{kind}'"
    return "".join(said), None


def _broken(finish: Any, choice: Any) -> str:
    """Return the unknown end of an answer, with a gateway's message about it."""
    error = choice.get("error")
    said = f": {error.get('message')}" if isinstance(error, dict) else ""
    return f"finish_reason {json.dumps(finish)[:100]}{said}"


def _usage(usage: Any, text: str) -> dict[str, Any]:
    if not isinstance(usage, dict):
        return {"odd_usage": NO_USAGE}
    details = usage.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    read, audio, cached = usage.get("prompt_tokens"), details.get("audio_tokens"), details.get("cached_tokens")
    heard, said = [0 if audio is None else audio], [usage.get("completion_tokens")]
    read = cached if read == 0 and cached else read  # some count cached tokens apart
    return token_counts(read, heard, said, usage.get("total_tokens"), text=text)


def _misshapen(body: Any) -> str:
    if isinstance(body, dict) and "error" in body:
        return f"a success status with an error: {' '.join(str(body['error']).split())[:200]}"
    kind = f"keys {', '.join(sorted(map(str, body))[:8])}" if isinstance(body, dict) else type(body).__name__
    return f"expected a chat completion with choices and a message, found {kind}"


def _first_token(logprobs: Any) -> tuple[tuple[str, float], ...]:
    content = (logprobs or {}).get("content") or []
    if not content:
        return ()
    first = content[0]
    listed = first.get("top_logprobs") or []
    chosen, *others = [(str(item["token"]), float(item["logprob"])) for item in [first, *listed]]
    return first_tokens([chosen], others)


def constrain(body: dict[str, Any], ask: Ask, sampling: Sampling, cap: str, most_listed: int, *, narrow: bool) -> None:
    """Constrain the form of the answer as far as the server can.

    A `narrow` server, OpenAI's own, refuses schema keywords needed by other servers against endless answers.
    """
    structured = sampling.structured
    match ask:
        case YesNo() | ScaleRating():
            body |= {cap: 1, "logprobs": True}
            body.setdefault("top_logprobs", most_listed)
            # vLLM: the full vocabulary's log-probabilities of these words alone
            if isinstance(ask, YesNo) and sampling.yes_no_token_ids:
                body |= {"logprob_token_ids": list(sampling.yes_no_token_ids)}
        case Json(schema, name) if structured == "response_format":
            asked = json.loads(schema)
            if narrow and asked.get("type") != "object":
                return  # it takes no list as a form of answer; the prompt asks for it
            taken = strict_schema(asked) if narrow else asked
            form = {"name": name, "schema": asked if taken is None else taken, "strict": taken is not None}
            body |= {"response_format": {"type": "json_schema", "json_schema": form}}
        case Json(schema, _) if structured == "vllm":
            body |= {"structured_outputs": {"json": json.loads(schema)}}
        case Choice(choices) if structured == "vllm":
            body |= {"structured_outputs": {"choice": list(choices)}}
