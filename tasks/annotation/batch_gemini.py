"""Gemini's batch API: an uploaded file of requests, a batch whose display name is our intent, a file of responses."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from yarl import URL

from earmark.tasks.annotation.backend import BatchState
from earmark.tasks.annotation.bodies import json_bytes
from earmark.tasks.annotation.errors import MalformedResponse, one_line, shaped
from earmark.tasks.annotation.http import Http
from earmark.tasks.annotation.request import Request

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED")
MOST_RESULT_BYTES = 1 << 31
PAGES = 50


class GeminiBatches:
    """One account's batches.

    Args:
        http: an open pool of connections.
        base_url: the server, up to and with `/v1beta`.
        model: the model's name.
        body: a request's body with media inline, as `Base64`.
        upload: uploads bytes of a media type; returns the file's record.
    """

    def __init__(
        self,
        http: Http,
        base_url: str,
        model: str,
        body: Callable[[Request], dict[str, Any]],
        upload: Callable[[bytes, str], Awaitable[dict[str, Any]]],
    ) -> None:
        self._http = http
        self._base = base_url
        self._model = model
        self._body = body
        self._upload = upload

    def line(self, request: Request) -> bytes:
        """The request as a line of an input file."""
        return json_bytes({"key": request.key, "request": self._body(request)})

    async def submit(self, intent: str, lines: Sequence[bytes]) -> str:
        """Upload the lines and start a batch that is named by the intent."""
        file = await self._upload(b"\n".join(lines) + b"\n", "application/jsonl")
        body = {"batch": {"displayName": intent, "inputConfig": {"fileName": file["name"]}}}
        return _name(await self._json("POST", f"models/{self._model}:batchGenerateContent", body))

    async def find(self, intent: str) -> str | None:
        """The batch that is named by the intent."""
        token = ""
        for _ in range(PAGES):
            page = await self._json("GET", f"batches?pageSize=100{token}")
            with shaped("a list of batches"):
                for batch in page.get("operations") or []:
                    if (batch.get("metadata") or {}).get("displayName") == intent:
                        return _name(batch)
            if not page.get("nextPageToken"):
                return None
            token = f"&pageToken={page['nextPageToken']}"
        return None

    async def state(self, provider_id: str) -> BatchState:
        """How far a batch is."""
        batch = await self._json("GET", provider_id)
        with shaped("a batch with its state"):
            metadata = batch.get("metadata") or {}
            word = one_line(str(metadata.get("state") or "")).removeprefix("BATCH_STATE_").removeprefix("JOB_STATE_")
            output = metadata.get("output") or batch.get("response") or {}
            files = (str(output["responsesFile"]),) if output.get("responsesFile") else ()
        return BatchState(provider_id, word in ENDED, word.lower(), files)

    async def results(self, state: BatchState) -> list[tuple[str, str | None, str | None]]:
        """Key, raw response and error of each line of the file of responses."""
        found: list[tuple[str, str | None, str | None]] = []
        for name in state.outputs:
            url = URL(f"{self._base}/{name}:download?alt=media")
            _, text = await self._http.exchange("GET", url, any_type=True, most_bytes=MOST_RESULT_BYTES)
            found += [_result(line) for line in text.splitlines() if line.strip()]
        return found

    async def _json(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        sent = None if body is None else json.dumps(body).encode()
        headers = self._http.headers({"Content-Type": "application/json"}) if sent else None
        _, text = await self._http.exchange(method, URL(f"{self._base}/{path}"), sent, headers)
        with shaped(f"JSON from {path.partition('?')[0]}"):
            held = json.loads(text)
        if not isinstance(held, dict):
            raise MalformedResponse(f"expected a JSON object from {path.partition('?')[0]}, found something else")
        return held


def _result(line: str) -> tuple[str, str | None, str | None]:
    with shaped("a line with key and response"):
        held = json.loads(line)
        key = str(held["key"])
        if held.get("response"):
            return key, json.dumps(held["response"]), None
        return key, None, one_line(str(held.get("error") or "neither response nor error"), 300)


def _name(held: dict[str, Any]) -> str:
    name = held.get("name")
    if not isinstance(name, str):
        raise MalformedResponse(f"expected a batch with a name, found keys {', '.join(sorted(held))[:120]}")
    return name
