"""Servers that speak OpenAI's chat completions: OpenAI itself, vLLM's server, and many others."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from yarl import URL

from earmark.schemas.annotation import AnnotatorConfig
from earmark.tasks.annotation.answers import NO_USAGE, Reply, model_name, token_counts
from earmark.tasks.annotation.backend import Media
from earmark.tasks.annotation.bodies import Base64, json_bytes
from earmark.tasks.annotation.errors import MalformedResponse
from earmark.tasks.annotation.http import HttpBackend, parsed_reply
from earmark.tasks.annotation.request import (
    Ask,
    Audio,
    Choice,
    Image,
    Json,
    Message,
    Part,
    Rating,
    Request,
    Sampling,
    Text,
    YesNo,
)
from earmark.tasks.annotation.strict import HOSTS, strict_schema

if TYPE_CHECKING:
    from earmark.tasks.annotation.batch_openai import OpenAIBatches

OPENAI_URL = "https://api.openai.com/v1"
TOP_LOGPROBS = 20
"""The most alternatives that OpenAI lists."""


class OpenAICompatible(HttpBackend):
    """Chat completions over HTTP. The key comes from `OPENAI_API_KEY`, or from where `api_key_env` says, and goes to
    the servers that the environment binds it to (`tasks/annotation/keys.py`)."""

    def __init__(self, config: AnnotatorConfig, media: Media) -> None:
        super().__init__(config, media, OPENAI_URL, ("OPENAI_API_KEY",), "Authorization", "Bearer {}")
        self._url = URL(f"{self.base_url}/chat/completions")

    async def send(self, request: Request) -> str:
        """Ask once; returns the response's body."""
        if all(map(self._media.at_hand, request.parts())):
            body = self.encoded(request)
        else:
            body = await asyncio.to_thread(self.encoded, request)
        return await self.http.post_json(self._url, body)

    def read(self, request: Request, raw: str) -> Reply:
        """What a chat completion says."""
        return read_chat_completion(raw)

    def batches(self) -> OpenAIBatches:
        """The batch API of the same account."""
        from earmark.tasks.annotation.batch_openai import OpenAIBatches

        return OpenAIBatches(self.http, self.base_url, self.body)

    def encoded(self, request: Request) -> bytes:
        """The request's body, media included.

        Raises:
            BadMedia: a clip or image cannot be read.
        """
        return json_bytes(self.body(request))

    def body(self, request: Request) -> dict[str, Any]:
        """The request's body before it is encoded; media stand in it as `Base64`."""
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
        _constrain(body, request.ask, sampling, self._config.max_tokens_field, narrow=narrow)
        return body


def is_openai(host: str) -> bool:
    """Whether a host is OpenAI's own, or Azure's for it."""
    return any(host == known or host.endswith(f".{known}") for known in HOSTS)


def sampled(request: Request) -> dict[str, Any]:
    """The sampling parameters that are set, beside the most tokens, by the names of chat completions."""
    sampling = request.sampling
    values = {"temperature": request.temperature, "top_p": sampling.top_p, "seed": request.seed}
    stop = {"stop": list(sampling.stop)} if sampling.stop else {}
    return {name: value for name, value in values.items() if value is not None} | stop


def message_body(message: Message, media: Media) -> dict[str, Any]:
    """A turn as chat completions take it; media stand in it as `Base64`."""
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
    """What a chat completion says.

    Raises:
        MalformedResponse: not JSON, or not a chat completion.
    """
    body = parsed_reply(raw)
    try:
        choice = body["choices"][0]
        message = choice["message"]
        content = message.get("content") or ""
        finish = choice.get("finish_reason")
        refusal = message.get("refusal") or ("content filter" if finish == "content_filter" else None)
        if not isinstance(content, str):
            raise TypeError("content")
        return Reply(
            text=content,
            refusal=None if refusal is None else str(refusal),
            cut=finish == "length",
            model=model_name(body.get("model")),
            **_usage(body.get("usage")),
            first_token=_first_token(choice.get("logprobs")),
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError):
        raise MalformedResponse(_misshapen(body)) from None


def _usage(usage: Any) -> dict[str, Any]:
    if not isinstance(usage, dict):
        return {"odd_usage": NO_USAGE}
    details = usage.get("prompt_tokens_details")
    audio = details.get("audio_tokens") if isinstance(details, dict) else None
    return token_counts(usage.get("prompt_tokens"), [0 if audio is None else audio], [usage.get("completion_tokens")])


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
    pairs = {str(item["token"]): float(item["logprob"]) for item in [first, *listed]}
    return tuple(pairs.items())


def _constrain(body: dict[str, Any], ask: Ask, sampling: Sampling, cap: str, *, narrow: bool) -> None:
    """Tell the server what form the answer must have, as far as it takes such things.

    A `narrow` one, OpenAI's own, refuses schemas with keywords that other servers need, lest an answer never ends.
    """
    structured = sampling.structured
    match ask:
        case YesNo() | Rating():
            body[cap] = 1
            body["logprobs"] = True
            body["top_logprobs"] = TOP_LOGPROBS
            # vLLM: the full vocabulary's log-probabilities of exactly these
            if isinstance(ask, YesNo) and sampling.yes_no_token_ids:
                body["logprob_token_ids"] = list(sampling.yes_no_token_ids)
        case Json(schema, name) if structured == "response_format":
            asked = json.loads(schema)
            if narrow and asked.get("type") != "object":
                return  # it takes no list as an answer's form; the prompt says what is asked for
            taken = strict_schema(asked) if narrow else asked
            form = {"name": name, "schema": asked if taken is None else taken, "strict": taken is not None}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        case Json(schema, _) if structured == "vllm":
            body["structured_outputs"] = {"json": json.loads(schema)}
        case Choice(choices) if structured == "vllm":
            body["structured_outputs"] = {"choice": list(choices)}
