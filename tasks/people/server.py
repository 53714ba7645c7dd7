"""Make an HTTP server for the open network: a limited number of connections, and timeouts for requests."""

from __future__ import annotations

import socket
import threading
import time
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

MOST_CONNECTIONS = 64  # each is a thread
REQUEST_S = 60.0  # time for a whole request to arrive, with its body
QUIET_S = 15.0  # time for its next bytes
ANSWER_S = 600.0  # time for an answer to be sent


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *arguments: Any) -> None:
        self.places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self.arriving: dict[socket.socket, float] = {}  # connections with requests still arriving, and their starts
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a connection a thread, or close it if all are taken."""
        if not self.places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self.arriving[request] = time.monotonic()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._done(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._done(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a connection that broke off."""

    def service_actions(self) -> None:
        """Close connections with requests taking too long to arrive; called twice a second."""
        late = time.monotonic() - REQUEST_S
        for connection, since in list(self.arriving.items()):
            if since < late:
                self.arriving.pop(connection, None)
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:  # it has already ended
                    continue

    def _done(self, request: Any) -> None:
        self.arriving.pop(request, None)
        self.places.release()


class _Handler(WSGIRequestHandler):
    server: _Server
    timeout = QUIET_S

    def parse_request(self) -> bool:
        """Read the request's head; a request without a body has then arrived."""
        parsed = super().parse_request()
        if parsed and self.command != "POST":
            self.server.arriving.pop(self.connection, None)
            self.connection.settimeout(ANSWER_S)
        return parsed

    def log_message(self, format: str, *args: object) -> None:  # addresses may hold keys
        pass


def make_bounded_server(app: WSGIApplication, host: str, port: int) -> WSGIServer:
    """Make a server of several threads that logs no address; `port` 0 takes a free port.

    Raises:
        OSError: the address is in use.
    """
    return make_server(host, port, app, _Server, _Handler)
