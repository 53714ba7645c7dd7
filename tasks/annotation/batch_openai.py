"""Run batches by OpenAI's batch API, also Azure's: a file of requests, a batch over it, files of outputs and errors."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from openai import AsyncOpenAI

from earmark.tasks.annotation.backend import BatchState, Held, ResultLine
from earmark.tasks.annotation.errors import (
    AskError,
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
from earmark.tasks.annotation.server_faults import fault_of, status_within

INTENT = "earmark_intent"
ENDED = ("completed", "failed", "expired", "cancelled")
RUNNING = ("validating", "in_progress", "finalizing", "cancelling")


class OpenAIBatches:
    """Batches of one account.

    Args:
        http: an open pool of connections.
        base_url: the server, up to and with the API's version.
        body: makes a request's body, with media as `Base64`.
    """

    def __init__(self, http: Http, base_url: str, body: Callable[[Request], dict[str, Any]]) -> None:
        self._client = AsyncOpenAI(api_key=NO_KEY, base_url=base_url, http_client=client_over(http), max_retries=0)
        self._body = body
        self._inputs: dict[str, list[str]] = {}  # the input files of an intent of this process

    def line(self, key: str, request: Request) -> bytes:
        """Return the request as a line of an input file, named by the key."""
        head = {"custom_id": key, "method": "POST", "url": "/v1/chat/completions"}
        return json_bytes({**head, "body": self._body(request)})

    async def submit(self, intent: str, lines: Sequence[bytes], held: Held) -> str:
        """Upload the lines and start a batch with the intent in its metadata."""
        content = (_file_name(intent), b"\n".join(lines) + b"\n", "application/jsonl")
        inputs = self._inputs.setdefault(intent, [])
        file = await result_of(self._client.files.create(file=content, purpose="batch"), "a file")
        inputs.append(_text(file, "id"))
        await held()
        create = self._client.batches.create(
            input_file_id=inputs[-1],
            endpoint="/v1/chat/completions",
            completion_window="24h",
            metadata={INTENT: intent},
        )
        return _text(await result_of(create, "a batch"), "id")

    async def find(self, intent: str) -> str | None:
        """Return the newest batch with the intent in its metadata or, where these are dropped, in its file's name."""
        unmarked: dict[str, str] = {}  # batches without Earmark's metadata, by input file

        async def listed() -> AsyncIterator[tuple[Any, Any]]:
            async for batch in self._client.batches.list(limit=100):
                if not (mark := (batch.metadata or {}).get(INTENT)):
                    unmarked.setdefault(batch.input_file_id, batch.id)
                yield mark, batch.id

        async def named() -> AsyncIterator[tuple[Any, Any]]:
            async for file in self._client.files.list(purpose="batch"):
                yield file.id in unmarked and file.filename, unmarked.get(file.id)

        found = await first_with(intent, listed())
        found = found or next((unmarked[name] for name in self._inputs.get(intent, ()) if name in unmarked), None)
        if found or not unmarked:
            return found
        try:
            return await first_with(_file_name(intent), named())
        except AskError as error:  # a server without a list of files; this process knows its own without it
            if intent in self._inputs or isinstance(error, ModelMissing | BadRequest):
                return None
            raise

    async def state(self, provider_id: str) -> BatchState:
        """Return the state of a batch."""
        batch = await result_of(self._client.batches.retrieve(provider_id), "a batch")
        word = _text(batch, "status").lower()
        with shaped("a batch with its state"):
            files = tuple(filter(None, [batch.output_file_id, batch.error_file_id]))
            faults = (batch.errors.data or []) if batch.errors else []
            detail = one_line("; ".join(str(fault.message or fault.code) for fault in faults), 300)
            full = any(fault.code == "token_limit_exceeded" for fault in faults)
            kinds = {"completed": batch.output_file_id, "failed": batch.error_file_id}
            counts = [getattr(batch.request_counts, kind, None) for kind, file in kinds.items() if file]
            lines = sum(count for count in counts if isinstance(count, int))
        ended = word in ENDED or (word not in RUNNING and bool(files))  # other servers have words of their own
        late = word == "completed" and not files
        return BatchState(provider_id, ended, word, files, detail, full, late, lines)

    async def results(self, state: BatchState) -> list[ResultLine]:
        """Return key, raw response and fault of each line of the result files."""
        results = []
        for name in state.outputs:
            content = await result_of(self._client.files.content(name), "a file's content")
            results += read_lines(content.text, _result)
        return results


def _file_name(intent: str) -> str:
    return f"{intent}.jsonl"


def _result(line: str) -> ResultLine:
    with shaped("a line with custom_id and response"):
        record = json.loads(line)
        key, response, error = str(record["custom_id"]), record.get("response") or {}, record.get("error")
        error = None if isinstance(error, dict) and not any(error.values()) else error
        body = response.get("body")
        body = body if isinstance(body, str) else json.dumps(body)  # some servers send it as text
        status = int(response.get("status_code") or 200)
        status = status_within(body) or status if status == 200 else status
        if not error and status == 200 and body != "null":
            return key, body, None
        if not error and 400 <= status < 600:
            return key, None, fault_of(status, body, {}, where="a line of a batch", advice="check the key")
        return key, None, ServerError(f"in a batch: {one_line(str(error or response), 300)}")


def _text(record: object, name: str) -> str:
    value = getattr(record, name, None)
    if not isinstance(value, str) or not value:
        raise MalformedResponse(f"expected '{name}' in a record of the batch API, found none")
    return value
