"""Gemini's batch API: an uploaded file of requests, a batch whose display name is our intent, a file of responses."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from earmark.tasks.annotation.backend import BatchState
from earmark.tasks.annotation.bodies import json_bytes
from earmark.tasks.annotation.errors import MalformedResponse, one_line, shaped
from earmark.tasks.annotation.http import Http, HttpBatches
from earmark.tasks.annotation.request import Request

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED")


class GeminiBatches(HttpBatches):
    """One account's batches.

    Args:
        http, base_url, body: as `HttpBatches`.
        model: the model's name.
        upload: uploads bytes of a media type; returns the file's record.
    """

    content = "{}:download?alt=media"
    page_size = "pageSize=100"

    def __init__(
        self,
        http: Http,
        base_url: str,
        body: Callable[[Request], dict[str, Any]],
        model: str,
        upload: Callable[[bytes, str], Awaitable[dict[str, Any]]],
    ) -> None:
        super().__init__(http, base_url, body)
        self._model = model
        self._upload = upload

    def line(self, request: Request) -> bytes:
        """The request as a line of an input file."""
        return json_bytes({"key": request.key, "request": self._body(request)})

    async def submit(self, intent: str, lines: Sequence[bytes]) -> str:
        """Upload the lines and start a batch that is named by the intent."""
        file = await self._upload(b"\n".join(lines) + b"\n", "application/jsonl")
        body = {"batch": {"displayName": intent, "inputConfig": {"fileName": file["name"]}}}
        return _name(await self.exchange("POST", f"models/{self._model}:batchGenerateContent", body))

    def page(self, listed: dict[str, Any]) -> tuple[list[tuple[Any, str]], str]:
        """As `HttpBatches.page`."""
        batches = [
            ((batch.get("metadata") or {}).get("displayName"), _name(batch)) for batch in listed.get("operations") or []
        ]
        token = listed.get("nextPageToken")
        return batches, f"pageToken={token}&" if token else ""

    def result(self, line: str) -> tuple[str, str | None, str | None]:
        """As `HttpBatches.result`."""
        return _result(line)

    async def state(self, provider_id: str) -> BatchState:
        """How far a batch is."""
        batch = await self.exchange("GET", provider_id)
        with shaped("a batch with its state"):
            metadata = batch.get("metadata") or {}
            word = one_line(str(metadata.get("state") or "")).removeprefix("BATCH_STATE_").removeprefix("JOB_STATE_")
            output = metadata.get("output") or batch.get("response") or {}
            files = (str(output["responsesFile"]),) if output.get("responsesFile") else ()
        return BatchState(provider_id, word in ENDED, word.lower(), files)


def _result(line: str) -> tuple[str, str | None, str | None]:
    with shaped("a line with key and response"):
        record = json.loads(line)
        key = str(record["key"])
        if record.get("response"):
            return key, json.dumps(record["response"]), None
        return key, None, one_line(str(record.get("error") or "neither response nor error"), 300)


def _name(record: dict[str, Any]) -> str:
    name = record.get("name")
    if not isinstance(name, str):
        raise MalformedResponse(f"expected a batch with a name, found keys {', '.join(sorted(record))[:120]}")
    return name
