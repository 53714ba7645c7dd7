"""The server that strangers may reach: requests that never come take no place for good, and others are answered."""

from __future__ import annotations

import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from earmark.tasks.people import server as bounded
from earmark.tasks.people.server import make_bounded_server

HEADS = {
    "nothing": b"",
    "half a line": b"GET /x",
    "half a head": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",
    "half a body": b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 8000000\r\n\r\n[",
}


def app(environ: Any, start_response: Any) -> list[bytes]:
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"page"]


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(bounded, "MOST_CONNECTIONS", 8)
    monkeypatch.setattr(bounded, "REQUEST_S", 1.0)
    server = make_bounded_server(app, "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def page(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
        return bytes(answer.read())


@pytest.mark.slow
@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_requests_that_never_come_take_few_threads_and_end(port: int, head: bytes) -> None:
    before = threading.active_count()
    opened = []
    for _ in range(40):
        connection = socket.create_connection(("127.0.0.1", port), timeout=10)
        opened.append(connection)
        try:
            connection.sendall(head)
        except OSError:
            continue  # it was closed at once
    assert threading.active_count() - before <= 8
    deadline = time.monotonic() + 60
    while True:  # the places are free again, though nobody closed a connection
        try:
            assert page(port) == b"page"
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    for connection in opened:
        connection.close()


@pytest.mark.slow
def test_a_request_that_comes_byte_by_byte_ends_too(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nX: ")
        until = time.monotonic() + 60
        try:
            while time.monotonic() < until:
                connection.sendall(b"x")
                time.sleep(0.05)
        except OSError:  # the server has shut it
            return
    pytest.fail("the request was still read after a minute")


@pytest.mark.slow
def test_an_answer_may_take_longer_than_a_request(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        time.sleep(2)
        content = b""
        while block := connection.recv(1000):
            content += block
    assert content.endswith(b"page")
