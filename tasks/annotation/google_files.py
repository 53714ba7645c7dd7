"""Google's Files and batch APIs, through its own client: what is too large for a request, and batches of requests."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from google import genai
from google.genai import types

from earmark.tasks.annotation.backend import BatchState
from earmark.tasks.annotation.bodies import json_bytes
from earmark.tasks.annotation.errors import (
    AuthFailed,
    BadMedia,
    BadRequest,
    MalformedResponse,
    ModelMissing,
    one_line,
    shaped,
)
from earmark.tasks.annotation.http import Http
from earmark.tasks.annotation.request import Request
from earmark.tasks.annotation.sdk import NO_KEY, client_over, first_with, result_of

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED")
LEAST_LEFT_S = 600.0
"""A file that expires sooner is uploaded again: a request may take that long."""
FILE_READY_S = 60.0


def google_client(http: Http, base_url: str) -> Any:
    """Google's client over our connections; `base_url` ends with the API's version."""
    root, _, version = base_url.rpartition("/")
    options = types.HttpOptions(base_url=root, api_version=version, httpx_async_client=client_over(http))
    return genai.Client(api_key=NO_KEY, vertexai=False, http_options=options).aio


async def upload(client: Any, content: bytes, media_type: str, name: str | None = None) -> Any:
    """Upload a file; returns the provider's record of it."""
    config = types.UploadFileConfig(mime_type=media_type, name=name)
    file = await result_of(client.files.upload(file=io.BytesIO(content), config=config), "a file's record")
    if not file.name:
        raise MalformedResponse("expected a file's record with its name, found something else")
    return file


class GoogleFiles:
    """Uploads of media, each once as long as it lives. A name follows from the content, so that other processes find
    it too.

    Args:
        http, base_url: as `google_client`.
    """

    def __init__(self, http: Http, base_url: str) -> None:
        self._client = google_client(http, base_url)
        self._files: dict[str, tuple[str, float]] = {}
        self._uploading: dict[str, asyncio.Lock] = {}

    async def uri(self, content: bytes, media_type: str) -> str:
        """Address of an uploaded file, reused while it lives."""
        digest = hashlib.sha256(content).hexdigest()
        async with self._uploading.setdefault(digest, asyncio.Lock()):
            uri, expires = self._files.get(digest, ("", 0.0))
            if expires - time.time() < LEAST_LEFT_S:
                file = await self._uploaded(f"files/earmark-{digest[:32]}", content, media_type)
                uri, expires = str(file.uri), _expiry(file)
                self._files[digest] = (uri, expires)
        return uri

    async def _uploaded(self, name: str, content: bytes, media_type: str) -> Any:
        file = await self._named(name)
        if file is not None and _expiry(file) - time.time() < LEAST_LEFT_S:
            await result_of(self._client.files.delete(name=name), "a deletion")
            file = None
        if file is None:
            file = await upload(self._client, content, media_type, name)
        until = time.monotonic() + FILE_READY_S
        while file.state == types.FileState.PROCESSING and time.monotonic() < until:
            await asyncio.sleep(0.5)
            file = await self._named(name) or file
        if file.state not in (None, types.FileState.ACTIVE):
            raise BadMedia(f"the Files API says {one_line(str(file.state.value))} of {name}")
        return file

    async def _named(self, name: str) -> Any:
        try:
            return await result_of(self._client.files.get(name=name), "a file's record")
        except (ModelMissing, AuthFailed, BadRequest):  # Google answers 403 for a file that is not there
            return None


class GeminiBatches:
    """One account's batches, of files of requests; a batch's display name is our intent.

    Args:
        http, base_url: as `google_client`.
        body: a request's body, media in it as `Base64`.
        model: the model's name.
    """

    def __init__(self, http: Http, base_url: str, body: Callable[[Request], dict[str, Any]], model: str) -> None:
        self._client = google_client(http, base_url)
        self._body = body
        self._model = model

    def line(self, key: str, request: Request) -> bytes:
        """The request as a line of an input file, named by the key."""
        return json_bytes({"key": key, "request": self._body(request)})

    async def submit(self, intent: str, lines: Sequence[bytes]) -> str:
        """Upload the lines and start a batch that is named by the intent."""
        file = await upload(self._client, b"\n".join(lines) + b"\n", "application/jsonl")
        create = self._client.batches.create(model=self._model, src=file.name, config={"display_name": intent})
        return _name(await result_of(create, "a batch"))

    async def find(self, intent: str) -> str | None:
        """The batch that carries the intent, newest first."""

        async def listed() -> AsyncIterator[tuple[Any, Any]]:
            async for batch in await self._client.batches.list(config={"page_size": 100}):
                yield batch.display_name, _name(batch)

        return await first_with(intent, listed())

    async def state(self, provider_id: str) -> BatchState:
        """How far a batch is."""
        batch = await result_of(self._client.batches.get(name=provider_id), "a batch with its state")
        with shaped("a batch with its state"):
            word = one_line(str(batch.state.value)).removeprefix("BATCH_STATE_").removeprefix("JOB_STATE_")
        file = batch.dest.file_name if batch.dest else None
        return BatchState(provider_id, word in ENDED, word.lower(), (file,) if file else ())

    async def results(self, state: BatchState) -> list[tuple[str, str | None, str | None]]:
        """Key, raw response and error of each line of the files of results."""
        results = []
        for name in state.outputs:
            content = await result_of(self._client.files.download(file=name), "a file's content")
            results += [_result(line) for line in content.decode("utf-8", "replace").splitlines() if line.strip()]
        return results


def _result(line: str) -> tuple[str, str | None, str | None]:
    with shaped("a line with key and response"):
        record = json.loads(line)
        key = str(record["key"])
        if record.get("response"):
            return key, json.dumps(record["response"]), None
        return key, None, one_line(str(record.get("error") or "neither response nor error"), 300)


def _name(batch: Any) -> str:
    if not isinstance(batch.name, str):
        raise MalformedResponse("expected a batch with a name, found none")
    return batch.name


def _expiry(file: Any) -> float:
    """When a file is deleted, in seconds since 1970; 0 where its record does not say."""
    return file.expiration_time.timestamp() if file.expiration_time else 0.0
