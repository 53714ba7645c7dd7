"""OpenAI's batch API: an input file of requests, a batch over it, and files of outputs and errors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import aiohttp

from earmark.tasks.annotation.backend import BatchState
from earmark.tasks.annotation.bodies import json_bytes
from earmark.tasks.annotation.errors import MalformedResponse, one_line, shaped
from earmark.tasks.annotation.http import HttpBatches
from earmark.tasks.annotation.request import Request

INTENT = "earmark_intent"
ENDED = ("completed", "failed", "expired", "cancelled")


class OpenAIBatches(HttpBatches):
    """One account's batches."""

    content = "files/{}/content"

    def line(self, request: Request) -> bytes:
        """The request as a line of an input file."""
        head = {"custom_id": request.key, "method": "POST", "url": "/v1/chat/completions"}
        return json_bytes({**head, "body": self._body(request)})

    async def submit(self, intent: str, lines: Sequence[bytes]) -> str:
        """Upload the lines and start a batch whose metadata carries the intent."""
        form = aiohttp.FormData()
        form.add_field("purpose", "batch")
        form.add_field("file", b"\n".join(lines) + b"\n", filename=f"{intent}.jsonl", content_type="application/jsonl")
        uploaded = await self.exchange("POST", "files", form)
        body = {
            "input_file_id": _text(uploaded, "id"),
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
            "metadata": {INTENT: intent},
        }
        return _text(await self.exchange("POST", "batches", body), "id")

    def page(self, listed: dict[str, Any]) -> tuple[list[tuple[Any, str]], str]:
        """As `HttpBatches.page`."""
        batches = [((one.get("metadata") or {}).get(INTENT), _text(one, "id")) for one in listed.get("data") or []]
        return batches, f"after={batches[-1][1]}&" if batches and listed.get("has_more") else ""

    def result(self, line: str) -> tuple[str, str | None, str | None]:
        """As `HttpBatches.result`."""
        return _result(line)

    async def state(self, provider_id: str) -> BatchState:
        """How far a batch is."""
        batch = await self.exchange("GET", f"batches/{provider_id}")
        word = _text(batch, "status")
        files = tuple(_text(batch, name) for name in ("output_file_id", "error_file_id") if batch.get(name))
        return BatchState(provider_id, word in ENDED, word, files)


def _result(line: str) -> tuple[str, str | None, str | None]:
    with shaped("a line with custom_id and response"):
        record = json.loads(line)
        key, response, error = str(record["custom_id"]), record.get("response") or {}, record.get("error")
        if error is None and response.get("status_code") == 200:
            return key, json.dumps(response["body"]), None
        fault = error or (response.get("body") or {}).get("error") or response.get("status_code")
        return key, None, one_line(str(fault), 300)


def _text(record: dict[str, Any], name: str) -> str:
    value = record.get(name)
    if not isinstance(value, str):
        raise MalformedResponse(f"expected '{name}', found keys {', '.join(sorted(record))[:120]}")
    return value
