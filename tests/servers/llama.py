"""Start llama.cpp's server with a real language model, and LiteLLM's proxy; count what the model is asked."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.conftest import ROOT

SLOTS = THREADS = max(1, (os.cpu_count() or 1) // 2)


class Proxy(ThreadingHTTPServer):
    """Pass requests on to a server, and count them by their bytes."""

    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), Passing)
        self.target, self.lock, self.began = target, Lock(), time.monotonic()
        self.asked: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self.base_url = f"http://127.0.0.1:{self.server_port}/v1"
        Thread(target=self.serve_forever, daemon=True).start()

    def annotator(self, **options: Any) -> dict[str, Any]:
        """Return the options that ask the model once a draw."""
        once = {"repairs": 0, "max_tokens": 120, "max_concurrency": SLOTS}
        patience = {"read_timeout_s": 600.0, "total_timeout_s": 900.0}
        return {"annotator": "openai:smollm2", "base_url": self.base_url, **once, **patience, **options}


class Passing(BaseHTTPRequestHandler):
    """One request."""

    server: Proxy

    def do_GET(self) -> None:
        """Pass on a look at the server."""
        self._pass(None)

    def do_POST(self) -> None:
        """Count a question and pass it on."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            self.server.asked[hashlib.sha256(body).hexdigest()] += 1
        self._pass(body)

    def _pass(self, body: bytes | None) -> None:
        request = Request(self.server.target + self.path, body, {"Content-Type": "application/json"})
        try:
            with urlopen(request, timeout=900) as reply:
                status, said = reply.status, reply.read()
        except HTTPError as error:
            status, said = error.code, error.read()
        if body is not None and status == 200:
            with self.server.lock:
                self.server.tokens.update(
                    {name: n for name, n in json.loads(said)["usage"].items() if isinstance(n, int)}
                )
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: Any) -> None:
        """Write no line a request."""


def program(variable: str, made: str) -> Path:
    """Return the file that a variable names, or that `make test-llama` made; skip without it."""
    named = os.environ.get(variable)
    found = [Path(named)] if named else sorted((ROOT / ".venv-llama").glob(made))
    if not found or not found[0].is_file():
        pytest.skip(f"needs {variable}, or what `make test-llama` makes: see tests/README.md")
    return found[0]


@contextmanager
def started(command: list[str | Path], health: str, log: Path) -> Iterator[None]:
    """Run a server within the block, from its first answer."""
    with log.open("wb") as file:
        child = subprocess.Popen(command, stdout=file, stderr=file)
        try:
            until = time.monotonic() + 240
            while not answers(health):
                assert child.poll() is None, log.read_text("utf-8", "replace")[-2000:]
                assert time.monotonic() < until
                time.sleep(0.2)
            yield
        finally:
            child.terminate()
            child.wait(30)


def answers(url: str) -> bool:
    """Return whether a server answers."""
    try:
        with urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def free_port() -> str:
    """Return a port that nothing listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])
