"""OpenAI's batch API: an input file of requests, a batch over it, and files of outputs and errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import aiohttp
from yarl import URL

from earmark.tasks.annotation.backend import BatchState
from earmark.tasks.annotation.bodies import json_bytes
from earmark.tasks.annotation.errors import MalformedResponse, one_line, shaped
from earmark.tasks.annotation.http import Http
from earmark.tasks.annotation.request import Request

INTENT = "earmark_intent"
ENDED = ("completed", "failed", "expired", "cancelled")
MOST_RESULT_BYTES = 1 << 31
PAGES = 50


class OpenAIBatches:
    """One account's batches.

    Args:
        http: an open pool of connections.
        base_url: the server, up to and with `/v1`.
        body: a request's body, media in it as `Base64`.
    """

    def __init__(self, http: Http, base_url: str, body: Callable[[Request], dict[str, Any]]) -> None:
        self._http = http
        self._base = base_url
        self._body = body

    def line(self, request: Request) -> bytes:
        """The request as a line of an input file."""
        held = {"custom_id": request.key, "method": "POST", "url": "/v1/chat/completions", "body": self._body(request)}
        return json_bytes(held)

    async def submit(self, intent: str, lines: Sequence[bytes]) -> str:
        """Upload the lines and start a batch whose metadata carries the intent."""
        form = aiohttp.FormData()
        form.add_field("purpose", "batch")
        form.add_field("file", b"\n".join(lines) + b"\n", filename=f"{intent}.jsonl", content_type="application/jsonl")
        uploaded = await self._json("POST", "files", form)
        body = {
            "input_file_id": _text(uploaded, "id"),
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
            "metadata": {INTENT: intent},
        }
        return _text(await self._json("POST", "batches", body), "id")

    async def find(self, intent: str) -> str | None:
        """The batch whose metadata carries the intent, newest first."""
        after = ""
        for _ in range(PAGES):
            page = await self._json("GET", f"batches?limit=100{after}")
            with shaped("a list of batches"):
                for batch in page.get("data") or []:
                    if (batch.get("metadata") or {}).get(INTENT) == intent:
                        return _text(batch, "id")
                if not page.get("has_more") or not page.get("data"):
                    return None
                after = f"&after={_text(page['data'][-1], 'id')}"
        return None

    async def state(self, provider_id: str) -> BatchState:
        """How far a batch is."""
        batch = await self._json("GET", f"batches/{provider_id}")
        word = _text(batch, "status")
        files = tuple(_text(batch, name) for name in ("output_file_id", "error_file_id") if batch.get(name))
        return BatchState(provider_id, word in ENDED, word, files)

    async def results(self, state: BatchState) -> list[tuple[str, str | None, str | None]]:
        """Key, raw response and error of each line of the output and error files."""
        found: list[tuple[str, str | None, str | None]] = []
        for name in state.outputs:
            url = URL(f"{self._base}/files/{name}/content")
            _, text = await self._http.exchange("GET", url, any_type=True, most_bytes=MOST_RESULT_BYTES)
            found += [_result(line) for line in text.splitlines() if line.strip()]
        return found

    async def _json(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        url, headers = URL(f"{self._base}/{path}"), None
        if isinstance(body, dict):
            body, headers = json.dumps(body).encode(), self._http.headers({"Content-Type": "application/json"})
        _, text = await self._http.exchange(method, url, body, headers)
        with shaped(f"JSON from /{path.partition('?')[0]}"):
            held = json.loads(text)
        if not isinstance(held, dict):
            raise MalformedResponse(f"expected a JSON object from /{path.partition('?')[0]}, found something else")
        return held


def _result(line: str) -> tuple[str, str | None, str | None]:
    with shaped("a line with custom_id and response"):
        held = json.loads(line)
        key, response, error = str(held["custom_id"]), held.get("response") or {}, held.get("error")
        if error is None and response.get("status_code") == 200:
            return key, json.dumps(response["body"]), None
        said = error or (response.get("body") or {}).get("error") or response.get("status_code")
        return key, None, one_line(str(said), 300)


def _text(held: dict[str, Any], name: str) -> str:
    value = held.get(name)
    if not isinstance(value, str):
        raise MalformedResponse(f"expected '{name}', found keys {', '.join(sorted(held))[:120]}")
    return value
