"""A server of images on loopback that behaves well, badly and worse, as hosts of images do."""

from __future__ import annotations

import gzip
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class ImageServer:
    """What it was asked, and how it answers; each path behaves in its own way.

    Attributes:
        image: what `/good.png` gives, and every other path that begins so.
        images: what some of these give instead, by path.
        asked: how often each path was asked for.
        agents: the User-Agent of each request.
        moved_to: where `/moved.png` leads.
    """

    def __init__(self, image: bytes) -> None:
        self.image = image
        self.images: dict[str, bytes] = {}
        self.asked: Counter[str] = Counter()
        self.agents: set[str] = set()
        self.moved_to = "/good.png"
        self.port = 0


@contextmanager
def serving(image: bytes) -> Iterator[ImageServer]:
    """Serve until the block ends."""
    state = ImageServer(image)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked[self.path] += 1
            state.agents.add(self.headers["User-Agent"])
            getattr(self, "_" + self.path.strip("/").partition(".")[0].rstrip("0123456789"), self._lost)()

        def _send(self, status: int, content: bytes, kind: str = "image/png", **headers: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            for name, value in {"Content_Length": str(len(content)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(content)

        def _good(self) -> None:
            self._send(200, state.images.get(self.path, state.image))

        def _lost(self) -> None:
            self._send(404, b"", "text/plain")

        def _page(self) -> None:
            self._send(200, b"<html>", "text/html")

        def _busy(self) -> None:
            if state.asked[self.path] < 3:
                self._send(503, b"", "text/plain", Retry_After="0")
            else:
                self._good()

        def _broken(self) -> None:
            self._send(500, b"", "text/plain", Retry_After="0")

        def _moved(self) -> None:
            self._send(302, b"", Location=state.moved_to)

        def _round(self) -> None:
            self._send(302, b"", Location="/round.png")

        def _nowhere(self) -> None:
            self._send(302, b"", Location="http://[::")

        def _packed(self) -> None:
            self._send(200, gzip.compress(bytes(8 << 20)), Content_Encoding="gzip")

        def _large(self) -> None:
            self._send(200, b"", Content_Length=str(10**10))

        def _endless(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "image/png")
            self.end_headers()
            try:
                while True:
                    self.wfile.write(bytes(1 << 16))
            except OSError:
                return  # the client has had enough

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
