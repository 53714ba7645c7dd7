"""The providers' own clients, for what needs no speed: their batches and files.

Each exchange of theirs goes through our connections, and so under the same rules: a key reaches only the servers that
it is bound to, redirects are not followed, answers have a size limit, nothing that comes back holds the key, and every
failure has its type."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, TypeVar

import httpx2
from yarl import URL

from earmark.tasks.annotation.errors import AskError, shaped
from earmark.tasks.annotation.http import Http

MOST_RESULT_BYTES = 1 << 31
MOST_LISTED = 5_000
"""Batches of a list that are looked through."""
NO_KEY = "not-here"
"""What a client is given for a key: the connections add the true one, where it belongs."""
OURS = frozenset({"host", "connection", "content-length", "accept-encoding", "user-agent"})
KEYS = frozenset({"authorization", "api-key", "x-goog-api-key"})
Got = TypeVar("Got")


class Connections(httpx2.AsyncBaseTransport):
    """Exchanges of a provider's client over our connections."""

    def __init__(self, http: Http) -> None:
        self._http = http

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """One exchange; only a success comes back as a response.

        Raises:
            AskError: by status and transport.
        """
        url, body = URL(str(request.url), encoded=True), await request.aread()
        headers = {name: value for name, value in request.headers.items() if name.lower() not in OURS | KEYS}
        most = MOST_RESULT_BYTES if url.path.endswith(("/content", ":download")) else None
        reply, text = await self._http.exchange(
            request.method, url, body or None, headers, any_type=True, most_bytes=most
        )
        kept = {name: value for name, value in reply.items() if name.lower().startswith(("content-type", "x-goog-"))}
        return httpx2.Response(200, headers=kept, content=text.encode(), request=request)


def client_over(http: Http) -> httpx2.AsyncClient:
    """The HTTP client that a provider's client is made with."""
    return httpx2.AsyncClient(transport=Connections(http), follow_redirects=False)


async def result_of(call: Awaitable[Got], what: str) -> Got:
    """What a call of a provider's client gives.

    Raises:
        AskError: by status, transport or shape; clients wrap what their connection raises.
    """
    with typed(what):
        return await call


@contextmanager
def typed(what: str) -> Iterator[None]:
    """Faults of a provider's client as ours: what its connection raised, or a shape that it cannot read."""
    try:
        with shaped(what):
            yield
    except AskError:
        raise
    except Exception as error:
        for cause in chain([error.__cause__, error.__context__]):
            if isinstance(cause, AskError):
                raise cause from None
        raise


async def first_with(intent: str, batches: AsyncIterable[tuple[Any, Any]]) -> str | None:
    """The id of the first batch of a list, newest first, that carries an intent."""
    looked = 0
    with typed("a list of batches"):
        async for carried, name in batches:
            looked += 1
            if carried == intent:
                return str(name)
            if looked == MOST_LISTED:
                break
    return None
