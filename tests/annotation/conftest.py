"""What the tests of the engine share: configs without long waits, and requests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from earmark.schemas.annotation import AnnotatorConfig
from earmark.schemas.questions import Json, Message
from earmark.tasks.annotation.backend import Media, question
from earmark.tasks.annotation.engine import Annotator
from earmark.tasks.annotation.ledger import Ledger, connect, open_ledger
from earmark.tasks.annotation.ledger_rows import free
from earmark.tasks.annotation.request import Report, Request
from earmark.tasks.annotation.session import Session
from tests.servers.faults import Faults
from tests.servers.openai_server import AnswerText, OpenAIServer

SCHEMA = {
    "type": "object",
    "properties": {
        "musicality": {"enum": ["A", "B", "tie"]},
        "alignment": {"enum": ["A", "B", "tie"]},
        "reason": {"type": "string", "maxLength": 300},
    },
    "required": ["musicality", "alignment", "reason"],
    "additionalProperties": False,
}
QUICK: dict[str, Any] = {
    "retry_base_s": 0.01,
    "read_timeout_s": 0.5,
    "total_timeout_s": 5.0,
    "max_concurrency": 16,
}


def config_for(server: Any, **options: Any) -> AnnotatorConfig:
    """A config that asks a local server and does not wait long."""
    return AnnotatorConfig(**{"annotator": "openai:tiny", "base_url": server.base_url, **QUICK, **options})


def requests_for(config: AnnotatorConfig, count: int, first: int = 0) -> list[Request]:
    """Requests with a schema, all different."""
    ask = Json.of(SCHEMA)
    system = Message.of("system", "You compare two clips and answer in JSON. " * 8)
    return [question(config, [system, Message.of("user", f"pair {n}")], ask) for n in range(first, first + count)]


@pytest.fixture
def run() -> Callable[[Callable[[], Awaitable[Any]]], Any]:
    """Run a coroutine function to its end."""
    return lambda story: asyncio.run(asyncio.wait_for(_as_coroutine(story), 60))


async def _as_coroutine(story: Callable[[], Awaitable[Any]]) -> Any:
    return await story()


def ask_all(config: AnnotatorConfig, requests: list[Request], *, ledger: Path, media: Media | None = None) -> Report:
    """One session that asks once."""
    with Session(config, ledger=ledger, media=media) as session:
        return session.ask(requests)


class Bench:
    """A server, a ledger and annotators for one test."""

    def __init__(self, ledger: Path | str, server: Any) -> None:
        self.ledger = ledger
        self.server = server

    async def ask(self, config: AnnotatorConfig, requests: list[Request], media: Media | None = None) -> Report:
        """One process's run: open the ledger, ask, close."""
        async with open_ledger(self.ledger) as ledger, Annotator(config, ledger, media=media) as annotator:
            return await annotator.ask(requests)


def take_for_dead(opened: Ledger, address: Path | str) -> None:
    """End the claims of an open ledger, as another process does a minute after its last heartbeat."""
    other = connect(address)
    other.begin()
    free(other, opened.owner)
    other.commit()
    other.close()
    opened._beat_at = 0.0


async def serving(faults: Faults | None = None, **options: Any) -> OpenAIServer:
    """A started OpenAI server."""
    return await OpenAIServer(faults, **options).start()


class LocalServer:
    """An OpenAI server in a thread, for callers that block."""

    def __init__(self, faults: Faults) -> None:
        self._server = OpenAIServer(faults)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> OpenAIServer:
        self._thread.start()
        return asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result()

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def asked(server: OpenAIServer) -> int:
    """The server's own count."""
    return sum(server.faults.asked.values())


def model_server(answer: AnswerText | None = None, *, keep_bodies: bool = False, **faults: Any) -> Any:
    """A fixture: a model on this machine that says what `answer` makes of a request."""

    @pytest.fixture
    def server() -> Iterator[OpenAIServer]:
        with LocalServer(Faults(**faults)) as started:
            started.answer, started.keep_bodies = answer or started.answer, keep_bodies
            yield started

    return server
