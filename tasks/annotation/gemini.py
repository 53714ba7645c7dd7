"""Google's Gemini API: generateContent with inline audio, the Files API for what is large, JSON schemas."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from yarl import URL

from earmark.schemas.annotation import AnnotatorConfig
from earmark.tasks.annotation.answers import NO_USAGE, Reply, model_name, token_counts
from earmark.tasks.annotation.backend import Media
from earmark.tasks.annotation.batch_gemini import GeminiBatches
from earmark.tasks.annotation.bodies import Base64, json_bytes
from earmark.tasks.annotation.errors import AuthFailed, BadMedia, BadRequest, MalformedResponse, ModelMissing, shaped
from earmark.tasks.annotation.http import JSON, HttpBackend, parsed_reply
from earmark.tasks.annotation.request import Audio, Image, Json, Message, Part, Rating, Request, Text, YesNo

GEMINI_URL = "https://generativelanguage.googleapis.com/v1beta"
KEYS = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
LEAST_LEFT_S = 600.0
"""A file that expires sooner is uploaded again: a request may take that long."""
TOP_LOGPROBS = 5
BLOCKED = frozenset({"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE", "IMAGE_SAFETY"})
FILE_READY_S = 60.0


class Gemini(HttpBackend):
    """generateContent over HTTP. The key comes from GOOGLE_API_KEY or GEMINI_API_KEY, or where `api_key_env` says, and
    goes to the servers that the environment binds it to (`tasks/annotation/keys.py`)."""

    def __init__(self, config: AnnotatorConfig, media: Media) -> None:
        super().__init__(config, media, GEMINI_URL, KEYS, "x-goog-api-key", "{}")
        self._model = config.annotator.partition(":")[2]
        self._url = URL(f"{self.base_url}/models/{self._model}:generateContent")
        self._files: dict[str, tuple[str, float]] = {}
        self._uploading: dict[str, asyncio.Lock] = {}

    async def send(self, request: Request) -> str:
        """Ask once; large media are uploaded first, each once as long as the upload lives."""
        media = await asyncio.to_thread(self._load, request) if _has_media(request) else {}
        if sum(map(len, media.values())) > self._config.files_api_bytes:
            uris = {part: await self._uri(content, _media_type(part)) for part, content in media.items()}
            body = json.dumps(self._body(request, lambda part: _file_part(uris[part], _media_type(part)))).encode()
        else:
            body = await asyncio.to_thread(self._inline, request, media) if media else self._inline(request, media)
        return await self.http.post_json(self._url, body)

    def read(self, request: Request, raw: str) -> Reply:
        """What a generateContent response says."""
        return read_generate_content(raw)

    def batches(self) -> GeminiBatches:
        """The batch API of the same account."""
        return GeminiBatches(self.http, self.base_url, self.body, self._model, self.upload)

    def body(self, request: Request) -> dict[str, Any]:
        """The request's body with all media inline, as `Base64`."""
        media = self._load(request)
        return self._body(request, lambda part: _inline_part(media[part], _media_type(part)))

    async def upload(self, content: bytes, media_type: str, name: str | None = None) -> dict[str, Any]:
        """Upload a file in one piece by the resumable protocol; returns the provider's record of it."""
        root = self.base_url.replace("/v1beta", "/upload/v1beta")
        start = {
            "X-Goog-Upload-Protocol": "resumable",
            "X-Goog-Upload-Command": "start",
            "X-Goog-Upload-Header-Content-Length": str(len(content)),
            "X-Goog-Upload-Header-Content-Type": media_type,
            **JSON,
        }
        body = json.dumps({"file": {"mimeType": media_type} | ({"name": name} if name else {})}).encode()
        reply, _ = await self.http.exchange("POST", URL(f"{root}/files"), body, start, any_type=True)
        target = reply.get("x-goog-upload-url")
        if not target:
            raise MalformedResponse("expected x-goog-upload-url in the reply to an upload's start, found none")
        with shaped("an address to upload to"):
            address = URL(target)
        finish = {"X-Goog-Upload-Command": "upload, finalize", "X-Goog-Upload-Offset": "0"}
        _, text = await self.http.exchange("POST", address, content, finish)
        return _file(text, inside="file")

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

    async def _uri(self, content: bytes, media_type: str) -> str:
        """Address of an uploaded file, reused while it lives. Its name follows from its content, so that other
        processes find it too."""
        digest = hashlib.sha256(content).hexdigest()
        lock = self._uploading.setdefault(digest, asyncio.Lock())
        async with lock:
            uri, expires = self._files.get(digest, ("", 0.0))
            if expires - time.time() < LEAST_LEFT_S:
                record = await self._uploaded(f"files/earmark-{digest[:32]}", content, media_type)
                uri, expires = str(record.get("uri")), _expiry(record)
                self._files[digest] = (uri, expires)
        return uri

    async def _uploaded(self, name: str, content: bytes, media_type: str) -> dict[str, Any]:
        record = await self._file_named(name)
        if record is not None and _expiry(record) - time.time() < LEAST_LEFT_S:
            await self.http.exchange("DELETE", URL(f"{self.base_url}/{name}"), any_type=True)
            record = None
        if record is None:
            record = await self.upload(content, media_type, name)
        until = time.monotonic() + FILE_READY_S
        while record.get("state") == "PROCESSING" and time.monotonic() < until:
            await asyncio.sleep(0.5)
            record = await self._file_named(name) or record
        if record.get("state") not in (None, "ACTIVE"):
            raise BadMedia(f"the Files API says {record.get('state')} of {name}")
        return record

    async def _file_named(self, name: str) -> dict[str, Any] | None:
        try:
            _, text = await self.http.exchange("GET", URL(f"{self.base_url}/{name}"))
        except (ModelMissing, AuthFailed, BadRequest):  # Google answers 403 for a file that is not there
            return None
        return _file(text)

    def _body(self, request: Request, media_part: Callable[[Part], dict[str, Any]]) -> dict[str, Any]:
        system = [part for message in request.messages if message.role == "system" for part in message.parts]
        turns = [message for message in request.messages if message.role != "system"]
        body: dict[str, Any] = {"contents": [_turn(message, media_part) for message in turns]}
        if system:
            body["systemInstruction"] = {"parts": [_part(part, media_part) for part in system]}
        body["generationConfig"] = _generation(request)
        extra: dict[str, Any] = json.loads(request.sampling.extra)
        body["generationConfig"] |= extra.pop("generationConfig", {})
        return body | extra


def read_generate_content(raw: str) -> Reply:
    """What a generateContent response says.

    Raises:
        MalformedResponse: not JSON, or not such a response.
    """
    body = parsed_reply(raw)
    try:
        common = {"model": model_name(body.get("modelVersion")), **_usage(body.get("usageMetadata"))}
        blocked = (body.get("promptFeedback") or {}).get("blockReason")
        if blocked:
            return Reply("", refusal=f"prompt blocked: {blocked}", **common)
        candidate = body["candidates"][0]
        finish = candidate.get("finishReason")
        parts = (candidate.get("content") or {}).get("parts") or []
        text = "".join(str(part.get("text") or "") for part in parts if not part.get("thought"))
        return Reply(
            text,
            refusal=f"finish reason {finish}" if finish in BLOCKED else None,
            cut=finish == "MAX_TOKENS",
            first_token=_first_token(candidate.get("logprobsResult")),
            **common,
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError):
        keys = ", ".join(sorted(map(str, body))[:8]) if isinstance(body, dict) else type(body).__name__
        raise MalformedResponse(f"expected candidates with content, found {keys}") from None


def _usage(usage: Any) -> dict[str, Any]:
    """Token counts; of those that are 0, Google's JSON says nothing."""
    if not isinstance(usage, dict):
        return {"odd_usage": NO_USAGE}
    details = usage.get("promptTokensDetails")
    parts = [part for part in details if isinstance(part, dict)] if isinstance(details, list) else []
    audio = [part.get("tokenCount", 0) for part in parts if part.get("modality") == "AUDIO"]
    out = [usage.get(name, 0) for name in ("candidatesTokenCount", "thoughtsTokenCount")]
    return token_counts(usage.get("promptTokenCount"), audio, out)


def _first_token(result: Any) -> tuple[tuple[str, float], ...]:
    listed = (result or {}).get("topCandidates") or []
    chosen = (result or {}).get("chosenCandidates") or []
    first = [*chosen[:1], *((listed[0].get("candidates") or []) if listed else [])]
    return tuple({str(item["token"]): float(item["logProbability"]) for item in first}.items())


def _generation(request: Request) -> dict[str, Any]:
    sampling = request.sampling
    config: dict[str, Any] = {"maxOutputTokens": sampling.max_tokens}
    for name, value in (("temperature", request.temperature), ("topP", sampling.top_p), ("seed", request.seed)):
        if value is not None:
            config[name] = value
    if sampling.stop:
        config["stopSequences"] = list(sampling.stop)
    match request.ask:
        case Json(schema, _) if sampling.structured != "none":
            config["responseMimeType"] = "application/json"
            config["responseJsonSchema"] = json.loads(schema)
        case YesNo() | Rating():
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


def _has_media(request: Request) -> bool:
    return any(not isinstance(part, Text) for part in request.parts())


def _file(text: str, inside: str | None = None) -> dict[str, Any]:
    with shaped("a file's record"):
        record = json.loads(text)
        file: Any = record[inside] if inside else record
    if not isinstance(file, dict) or not file.get("name"):
        raise MalformedResponse("expected a file's record with its name, found something else")
    return dict(file)


def _expiry(record: dict[str, Any]) -> float:
    """When a file is deleted, in seconds since 1970; 0 where the record does not say."""
    expires = str(record.get("expirationTime") or "")
    try:
        return datetime.fromisoformat(expires.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0
