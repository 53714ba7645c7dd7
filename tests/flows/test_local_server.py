"""Servers of commands end in order, also with a request in flight."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

SERVER = """
import asyncio

from starlette.applications import Starlette
from starlette.routing import Route

from earmark.flows.command.ending import end_in_order
from earmark.flows.command.local_server import serve_locally


async def held(request):
    print("held", flush=True)
    await asyncio.Event().wait()


end_in_order()
serve_locally(Starlette(routes=[Route("/", held)]), 0, lambda address: address)
"""


def test_an_interrupt_with_a_request_in_flight_is_no_failure(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        address = process.stdout.readline().strip().removeprefix("http://")
        with socket.create_connection(address.split(":")) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert process.stdout.readline() == "held\n"
            process.send_signal(signal.SIGINT)
            assert (process.stdout.read(), process.wait()) == ("stopped\n", 0)
        assert "interrupted" not in process.stderr.read()
