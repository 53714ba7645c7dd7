"""Use Google's Files and batch APIs through its own client: large media, and batches of requests."""

import asyncio
import hashlib
import io
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from google import genai
from google.genai import types

from earmark.tasks.annotation.backend import BatchState, Held, ResultLine
from earmark.tasks.annotation.errors import (
    AuthFailed,
    BadMedia,
    BadRequest,
    MalformedResponse,
    ModelMissing,
    ServerError,
    one_line,
    shaped,
)
from earmark.tasks.annotation.http import Http, json_bytes
from earmark.tasks.annotation.request import Request
from earmark.tasks.annotation.sdk import NO_KEY, client_over, first_with, read_lines, result_of
from earmark.tasks.annotation.server_faults import fault_of

RESOURCE_EXHAUSTED = 8
RPC_STATUS = {3: 400, 5: 404, 7: 403, 8: 429, 9: 400, 13: 500, 14: 503, 16: 401} | {n: n for n in range(400, 600)}
"""HTTP statuses of Google's error codes in a batch's lines."""
DONE = ("SUCCEEDED", "PARTIALLY_SUCCEEDED")
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED")
LEAST_LEFT_S = 600.0  # least remaining life of a file in seconds: a request may take as long; else it is uploaded again
FILE_READY_S = 60.0


def google_client(http: Http, base_url: str) -> Any:
    """Return Google's client over Earmark's connections; `base_url` ends with the API's version."""
    root, _, version = base_url.rpartition("/")
    options = types.HttpOptions(base_url=root, api_version=version, httpx_async_client=client_over(http))
    return genai.Client(api_key=NO_KEY, vertexai=False, http_options=options).aio


async def upload(client: Any, content: bytes, media_type: str, name: str | None = None) -> Any:
    """Upload a file; return the provider's record of it."""
    config = types.UploadFileConfig(mime_type=media_type, name=name)
    file = await result_of(client.files.upload(file=io.BytesIO(content), config=config), "a file's record")
    if not file.name:
        raise MalformedResponse("expected a file's record with its name, found something else")
    return file


class GoogleFiles:
    """Uploads of media, each once for its life. A name follows from the content, so other processes find it too.

    Args:
        http, base_url: as `google_client`.
    """

    def __init__(self, http: Http, base_url: str) -> None:
        self._client = google_client(http, base_url)
        self._files: dict[str, tuple[str, float]] = {}
        self._uploading: dict[str, asyncio.Lock] = {}

    async def uri(self, content: bytes, media_type: str) -> str:
        """Return the address of an uploaded file, reused while it exists."""
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
        except (ModelMissing, AuthFailed, BadRequest):  # Google answers 403 for a missing file
            return None


class GeminiBatches:
    """Batches of one account, from files of requests; a batch's display name is Earmark's intent.

    Args:
        http, base_url: as `google_client`.
        body: makes a request's body, with media as `Base64`.
        model: the model's name.
    """

    def __init__(self, http: Http, base_url: str, body: Callable[[Request], dict[str, Any]], model: str) -> None:
        self._client = google_client(http, base_url)
        self._body = body
        self._model = model

    def line(self, key: str, request: Request) -> bytes:
        """Return the request as a line of an input file, named by the key."""
        return json_bytes({"key": key, "request": self._body(request)})

    async def submit(self, intent: str, lines: Sequence[bytes], held: Held) -> str:
        """Upload the lines and start a batch named by the intent."""
        file = await upload(self._client, b"\n".join(lines) + b"\n", "application/jsonl")
        await held()
        create = self._client.batches.create(model=self._model, src=file.name, config={"display_name": intent})
        return _name(await result_of(create, "a batch"))

    async def find(self, intent: str) -> str | None:
        """Return the newest batch with the intent."""

        async def listed() -> AsyncIterator[tuple[Any, Any]]:
            async for batch in await self._client.batches.list(config={"page_size": 100}):
                yield batch.display_name, _name(batch)

        return await first_with(intent, listed())

    async def state(self, provider_id: str) -> BatchState:
        """Return the state of a batch."""
        batch = await result_of(self._client.batches.get(name=provider_id), "a batch with its state")
        with shaped("a batch with its state"):
            word = one_line(str(batch.state.value)).removeprefix("BATCH_STATE_").removeprefix("JOB_STATE_")
            fault = getattr(batch, "error", None)
            detail = one_line(str(getattr(fault, "message", "") or ""), 300)
            full = getattr(fault, "code", None) == RESOURCE_EXHAUSTED
        file = batch.dest.file_name if batch.dest else None
        late = word in DONE and not file
        return BatchState(provider_id, word in ENDED, word.lower(), (file,) if file else (), detail, full, late)

    async def results(self, state: BatchState) -> list[ResultLine]:
        """Return key, raw response and fault of each line of the result files."""
        results = []
        for name in state.outputs:
            content = await result_of(self._client.files.download(file=name), "a file's content")
            results += read_lines(content.decode("utf-8", "replace"), _result)
        return results


def _result(line: str) -> ResultLine:
    with shaped("a line with key and response"):
        record = json.loads(line)
        key, error = str(record["key"]), record.get("error")
        if record.get("response"):
            return key, json.dumps(record["response"]), None
        status = RPC_STATUS.get(error.get("code", 0)) if isinstance(error, dict) else None
        if status is not None:
            text = json.dumps({"error": error})
            return key, None, fault_of(status, text, {}, where="a line of a batch", advice="check the key")
        return key, None, ServerError(f"in a batch: {one_line(str(error or 'neither response nor error'), 300)}")


def _name(batch: Any) -> str:
    if not isinstance(batch.name, str):
        raise MalformedResponse("expected a batch with a name, found none")
    return batch.name


def _expiry(file: Any) -> float:
    """Return a file's time of deletion, in seconds since 1970; 0 if its record has none."""
    return file.expiration_time.timestamp() if file.expiration_time else 0.0
