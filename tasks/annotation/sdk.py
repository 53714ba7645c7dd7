"""Use the providers' own clients for batches and files, which need no speed.

Their exchanges use Earmark's connections, and so the same rules: a key reaches only its own servers, redirects are not
followed, answers have a size limit, no response holds the key, and every failure has its type.
"""

import json
import logging
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, TypeVar

import httpx2
from yarl import URL

from earmark.tasks.annotation.backend import ResultLine
from earmark.tasks.annotation.errors import AskError, MalformedResponse, one_line, shaped
from earmark.tasks.annotation.http import Http
from earmark.tasks.annotation.server_faults import fault_of, status_within

MOST_RESULT_BYTES = 1 << 31
MOST_LISTED = 5_000  # number of listed batches searched
NO_KEY = "not-here"  # placeholder for a client's key: the connections add the true key for its own servers
OURS = frozenset({"host", "connection", "content-length", "accept-encoding", "user-agent"})
KEYS = frozenset({"authorization", "api-key", "x-goog-api-key"})
Got = TypeVar("Got")
LOG = logging.getLogger("earmark.annotation")


class Connections(httpx2.AsyncBaseTransport):
    """Transport of a provider's client over Earmark's connections."""

    def __init__(self, http: Http) -> None:
        self._http = http

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Make one exchange; only a success returns a response."""
        url, body = URL(str(request.url), encoded=True), await request.aread()
        headers = {name: value for name, value in request.headers.items() if name.lower() not in OURS | KEYS}
        most = MOST_RESULT_BYTES if url.path.endswith(("/content", ":download")) else None
        reply, text = await self._http.exchange(
            request.method, url, body or None, headers, any_type=True, most_bytes=most
        )
        kept = {name: value for name, value in reply.items() if name.lower().startswith("x-goog-")}
        if most is None and (text or not kept):  # Google starts an upload in headers alone
            _believe_record(text, str(url.origin()))
            kept["content-type"] = "application/json"  # whatever the server calls it: a client would return a text
        return httpx2.Response(200, headers=kept, content=text.encode(), request=request)


def _believe_record(text: str, where: str) -> None:
    """Refuse a page, and an error sent as a success: a client takes both for an empty list, and a batch for lost."""
    with shaped("a JSON object"):
        names = json.loads(text).keys()
    if not names & {"id", "name"} and (status := status_within(text)):
        raise fault_of(status, text, {}, where=where, advice="check the key")


def client_over(http: Http) -> httpx2.AsyncClient:
    """Return the HTTP client for a provider's client."""
    return httpx2.AsyncClient(transport=Connections(http), follow_redirects=False)


async def result_of(call: Awaitable[Got], what: str) -> Got:
    """Return the result of a call of a provider's client."""
    with typed(what):
        return await call


@contextmanager
def typed(what: str) -> Iterator[None]:
    """Convert a client's faults to Earmark's: the connection's own fault, or an unreadable shape."""
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
    """Return the id of the first listed batch with an intent, newest first."""
    looked = 0
    with typed("a list of batches"):
        async for carried, name in batches:
            looked += 1
            if carried == intent:
                return str(name)
            if looked == MOST_LISTED:
                break
    return None


def read_lines(text: str, read: Callable[[str], ResultLine]) -> list[ResultLine]:
    """Read each line. Lines end at a line feed alone, as JSON may hold other separators.

    An unreadable line that no line feed ends is left out: the text is cut there.

    Raises:
        MalformedResponse: no line can be read: this is a gateway's page, and the results are still at the provider.
    """
    results: list[ResultLine] = []
    bad = None
    *ended, rest = text.split("\n")
    for line, whole in [*((line, True) for line in ended), (rest, False)]:
        if not line.strip():
            continue
        try:
            results.append(read(line))
        except MalformedResponse as error:
            bad = bad or MalformedResponse(f"a batch's results: {error}: {one_line(line)}")
            if whole:
                LOG.warning("a line of a batch's results: %s", error)
                results.append(("", None, error))
    if bad and not any(key for key, *_ in results):
        raise bad
    return results
