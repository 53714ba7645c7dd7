"""Ask Google's Gemini API: generateContent with inline audio, the Files API for large media, JSON schemas."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from yarl import URL

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.errors import ConfigError
from earmark.schemas.questions import Audio, Image, Json, Message, Part, ScaleRating, Text, YesNo
from earmark.tasks.annotation.answers import NO_USAGE, Reply, first_tokens, model_name, token_counts
from earmark.tasks.annotation.backend import Media, backend
from earmark.tasks.annotation.errors import Misshapen
from earmark.tasks.annotation.http import Base64, HttpBackend, json_bytes, parsed_reply
from earmark.tasks.annotation.request import Request

if TYPE_CHECKING:
    from earmark.tasks.annotation.google_files import GeminiBatches, GoogleFiles

GEMINI_URL = "https://generativelanguage.googleapis.com/v1beta"
KEYS = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
TOP_LOGPROBS = 5
BLOCKED = frozenset(
    {"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE", "IMAGE_SAFETY", "MODEL_ARMOR"}
)


@backend("gemini", hosted=True, batches=True)
class Gemini(HttpBackend):
    """Client of generateContent over HTTP; its key in GOOGLE_API_KEY or GEMINI_API_KEY, or in the variable
    `api_key_env`, goes to the servers bound to it in the environment (`tasks/annotation/keys.py`); Vertex AI gets a
    token of the machine's application-default credentials."""

    def __init__(self, config: AnnotatorConfig, media: Media) -> None:
        super().__init__(config, media, GEMINI_URL, KEYS, "x-goog-api-key", "{}", google=True)
        self._model = config.annotator.partition(":")[2]
        self._url = URL(f"{self.base_url}/models/{self._model}:generateContent")
        self._files: GoogleFiles | None = None

    async def send(self, request: Request) -> str:
        """Ask once; upload large media first, each once for the upload's life."""
        heard = any(not isinstance(part, Text) for part in request.parts())
        media = await asyncio.to_thread(self._load, request) if heard else {}
        if self.login is None and sum(map(len, media.values())) > self._config.files_api_bytes:
            from earmark.tasks.annotation.google_files import GoogleFiles

            files = self._files = self._files or GoogleFiles(self.http, self.base_url)
            uris = {part: await files.uri(content, _media_type(part)) for part, content in media.items()}
            body = json.dumps(self._body(request, lambda part: _file_part(uris[part], _media_type(part)))).encode()
        else:
            body = await asyncio.to_thread(self._inline, request, media) if media else self._inline(request, media)
        return await self.http.post_json(self._url, body)

    def read(self, request: Request, raw: str) -> Reply:
        """Read a generateContent response."""
        return read_generate_content(raw)

    def batches(self) -> GeminiBatches:
        """Return the batch API of the same account.

        Raises:
            ConfigError: on Vertex AI, which needs files in Cloud Storage.
        """
        if self.login is not None:
            raise ConfigError("batch = true: Vertex AI reads batches from Cloud Storage alone; set batch = false")
        from earmark.tasks.annotation.google_files import GeminiBatches

        return GeminiBatches(self.http, self.base_url, self.body, self._model)

    def body(self, request: Request) -> dict[str, Any]:
        """Return the request's body with all media inline, as `Base64`."""
        media = self._load(request)
        return self._body(request, lambda part: _inline_part(media[part], _media_type(part)))

    def _inline(self, request: Request, media: dict[Part, bytes]) -> bytes:
        return json_bytes(self._body(request, lambda part: _inline_part(media[part], _media_type(part))))

    def _load(self, request: Request) -> dict[Part, bytes]:
        media: dict[Part, bytes] = {}
        for part in request.parts():
            if part not in media and isinstance(part, Audio):
                media[part] = self._media.audio(part)
            elif part not in media and isinstance(part, Image):
                media[part] = self._media.image(part)
        return media

    def _body(self, request: Request, media_part: Callable[[Part], dict[str, Any]]) -> dict[str, Any]:
        system = [part for message in request.messages if message.role == "system" for part in message.parts]
        turns = [message for message in request.messages if message.role != "system"]
        body: dict[str, Any] = {"contents": [_turn(message, media_part) for message in turns]}
        if system:
            body |= {"systemInstruction": {"parts": [_part(part, media_part) for part in system]}}
        extra: dict[str, Any] = json.loads(request.sampling.extra)
        return {**body, "generationConfig": _generation(request) | extra.pop("generationConfig", {}), **extra}


def read_generate_content(raw: str) -> Reply:
    """Read a generateContent response.

    Raises:
        MalformedResponse: not JSON.
        Misshapen: not such a response.
    """
    body = parsed_reply(raw)
    try:
        model, usage = model_name(body.get("modelVersion")), body.get("usageMetadata")
        blocked = (body.get("promptFeedback") or {}).get("blockReason")
        if blocked:
            return Reply("", refusal=f"prompt blocked: {blocked}", model=model, **_usage(usage, ""))
        candidate = body["candidates"][0]
        finish = str(candidate.get("finishReason"))
        parts = (candidate.get("content") or {}).get("parts") or []
        text = "".join(str(part.get("text") or "") for part in parts if not part.get("thought"))
        return Reply(
            text,
            refusal=f"finish reason {finish}" if finish in BLOCKED else None,
            cut=finish == "MAX_TOKENS",
            broken=None if finish in ("STOP", "MAX_TOKENS") or finish in BLOCKED else f"finishReason {finish}",
            model=model,
            **_usage(usage, text),
            first_token=_first_token(candidate.get("logprobsResult")),
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError):
        keys = ", ".join(sorted(map(str, body))[:8]) if isinstance(body, dict) else type(body).__name__
        raise Misshapen(f"expected candidates with content, found {keys}") from None


def _usage(usage: Any, text: str) -> dict[str, Any]:
    """Return the token counts; Google's JSON omits counts of 0."""
    if not isinstance(usage, dict):
        return {"odd_usage": NO_USAGE}
    details = usage.get("promptTokensDetails")
    parts = [part for part in details if isinstance(part, dict)] if isinstance(details, list) else []
    audio = [part.get("tokenCount", 0) for part in parts if part.get("modality") == "AUDIO"]
    out = [usage.get(name, 0) for name in ("candidatesTokenCount", "thoughtsTokenCount")]
    return token_counts(usage.get("promptTokenCount"), audio, out, usage.get("totalTokenCount"), text=text)


def _first_token(result: Any) -> tuple[tuple[str, float], ...]:
    listed = (result or {}).get("topCandidates") or []
    chosen = (result or {}).get("chosenCandidates") or []
    named = [
        [(str(item["token"]), float(item["logProbability"])) for item in items]
        for items in (chosen[:1], (listed[0].get("candidates") or []) if listed else [])
    ]
    return first_tokens(*named)


def _generation(request: Request) -> dict[str, Any]:
    sampling = request.sampling
    config: dict[str, Any] = {"maxOutputTokens": sampling.max_tokens}
    for name, value in (("temperature", request.temperature), ("topP", sampling.top_p), ("seed", request.seed)):
        if value is not None:
            config[name] = value
    if sampling.stop:
        config |= {"stopSequences": list(sampling.stop)}
    match request.ask:
        case Json(schema, _) if sampling.structured != "none":
            config |= {"responseMimeType": "application/json", "responseJsonSchema": json.loads(schema)}
        case YesNo() | ScaleRating():
            config |= {"maxOutputTokens": 1, "responseLogprobs": True, "logprobs": TOP_LOGPROBS}
    return config


def _turn(message: Message, media_part: Callable[[Part], dict[str, Any]]) -> dict[str, Any]:
    role = "model" if message.role == "assistant" else "user"
    return {"role": role, "parts": [_part(part, media_part) for part in message.parts]}


def _part(part: Part, media_part: Callable[[Part], dict[str, Any]]) -> dict[str, Any]:
    return {"text": part.text} if isinstance(part, Text) else media_part(part)


def _inline_part(content: bytes, media_type: str) -> dict[str, Any]:
    return {"inlineData": {"mimeType": media_type, "data": Base64(content)}}


def _file_part(uri: str, media_type: str) -> dict[str, Any]:
    return {"fileData": {"mimeType": media_type, "fileUri": uri}}


def _media_type(part: Part) -> str:
    return part.media_type if isinstance(part, Image) else f"audio/{part.form.codec}" if isinstance(part, Audio) else ""
