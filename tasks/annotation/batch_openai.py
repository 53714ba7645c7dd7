"""OpenAI's batch API, and Azure's of its form: a file of requests, a batch over it, files of outputs and errors."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from openai import AsyncOpenAI

from earmark.tasks.annotation.backend import BatchState
from earmark.tasks.annotation.bodies import json_bytes
from earmark.tasks.annotation.errors import MalformedResponse, one_line, shaped
from earmark.tasks.annotation.http import Http
from earmark.tasks.annotation.request import Request
from earmark.tasks.annotation.sdk import NO_KEY, client_over, first_with, result_of

INTENT = "earmark_intent"
ENDED = ("completed", "failed", "expired", "cancelled")


class OpenAIBatches:
    """One account's batches.

    Args:
        http: an open pool of connections.
        base_url: the server, up to and with the API's version.
        body: a request's body, media in it as `Base64`.
    """

    def __init__(self, http: Http, base_url: str, body: Callable[[Request], dict[str, Any]]) -> None:
        self._client = AsyncOpenAI(api_key=NO_KEY, base_url=base_url, http_client=client_over(http), max_retries=0)
        self._body = body

    def line(self, key: str, request: Request) -> bytes:
        """The request as a line of an input file, named by the key."""
        head = {"custom_id": key, "method": "POST", "url": "/v1/chat/completions"}
        return json_bytes({**head, "body": self._body(request)})

    async def submit(self, intent: str, lines: Sequence[bytes]) -> str:
        """Upload the lines and start a batch whose metadata carries the intent."""
        content = (f"{intent}.jsonl", b"\n".join(lines) + b"\n", "application/jsonl")
        file = await result_of(self._client.files.create(file=content, purpose="batch"), "a file")
        create = self._client.batches.create(
            input_file_id=_text(file.id, "id"),
            endpoint="/v1/chat/completions",
            completion_window="24h",
            metadata={INTENT: intent},
        )
        return _text((await result_of(create, "a batch")).id, "id")

    async def find(self, intent: str) -> str | None:
        """The batch that carries the intent, newest first."""

        async def listed() -> AsyncIterator[tuple[Any, Any]]:
            async for batch in self._client.batches.list(limit=100):
                yield (batch.metadata or {}).get(INTENT), batch.id

        return await first_with(intent, listed())

    async def state(self, provider_id: str) -> BatchState:
        """How far a batch is."""
        batch = await result_of(self._client.batches.retrieve(provider_id), "a batch")
        word = _text(batch.status, "status")
        files = tuple(filter(None, [batch.output_file_id, batch.error_file_id]))
        return BatchState(provider_id, word in ENDED, word, files)

    async def results(self, state: BatchState) -> list[tuple[str, str | None, str | None]]:
        """Key, raw response and error of each line of the files of results."""
        results = []
        for name in state.outputs:
            content = await result_of(self._client.files.content(name), "a file's content")
            results += [_result(line) for line in content.text.splitlines() if line.strip()]
        return results


def _result(line: str) -> tuple[str, str | None, str | None]:
    with shaped("a line with custom_id and response"):
        record = json.loads(line)
        key, response, error = str(record["custom_id"]), record.get("response") or {}, record.get("error")
        if error is None and response.get("status_code") == 200:
            return key, json.dumps(response["body"]), None
        fault = error or (response.get("body") or {}).get("error") or response.get("status_code")
        return key, None, one_line(str(fault), 300)


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise MalformedResponse(f"expected '{name}' in a record of the batch API, found none")
    return value
