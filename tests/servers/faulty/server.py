"""The server itself.

A request names the kind that it meets in its last message (`meet gzip_bomb`); any other name gets a good answer. The
host that redirects point to keeps all that reaches it: nothing ever should.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter

from tests.servers.faulty import bodies, transport
from tests.servers.faulty.kinds import KINDS, Meeting, http, whole

CATALOGUE = (transport, bodies)
"""Modules whose import fills `KINDS`."""


class FaultyServer:
    """Answers on 127.0.0.1 as the last message asks, and counts how often each kind was met.

    Attributes:
        canary: all bytes that reached the host that redirects point to.
    """

    def __init__(self) -> None:
        self.met: Counter[str] = Counter()
        self.canary = bytearray()
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> FaultyServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 24)
        self._elsewhere = await asyncio.start_server(self._overhear, "127.0.0.1", 0)
        self.here, self.elsewhere = (
            f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in (self._server, self._elsewhere)
        )
        self.base_url = f"{self.here}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        self._elsewhere.close()

    async def _overhear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.canary += b"connected: " + await reader.read(1 << 16)
        writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while not writer.is_closing():
                lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:-2]
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                body = json.loads(await reader.readexactly(int(headers["content-length"])))
                name = body["messages"][-1]["content"].split()[1]
                self.met[name] += 1
                meeting = Meeting(body, headers, writer, self.elsewhere, self.here)
                if name in KINDS:
                    await KINDS[name].answer(meeting)
                else:
                    await meeting.send(http("200 OK", whole(meeting)))
        writer.close()
