"""A server that answers a request with a recorded error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.annotation.conftest import Bench
from tests.annotation.error_bodies import Recorded
from tests.servers.openai_server import OpenAIServer


class Bodies(OpenAIServer):
    """A server that answers well but for what `meets` gives for a request's number and body."""

    meets: Callable[[int, dict[str, Any]], Recorded | None] = staticmethod(lambda number, body: None)
    asked = 0

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """A completion or the error."""
        self.asked += 1
        if one := self.meets(self.asked, await request.json()):
            kind = "application/json" if one.body.startswith("{") else "text/html"
            return web.Response(status=one.status, text=one.body, content_type=kind, headers=dict(one.headers))
        return await super().chat(request)


def about(body: dict[str, Any]) -> int:
    """The number of the pair that a request of `requests_for` is about."""
    return int(body["messages"][-1]["content"].split()[-1])


async def bench_of(path: Path) -> tuple[Bodies, Bench]:
    server = Bodies()
    await server.start()
    return server, Bench(path, server)
