"""A local server that speaks S3's protocol (moto's), and tells or is interrupted when something is put."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Self


class S3Server:
    """An S3 server in a thread.

    Attributes:
        put: paths of all objects that clients put, in order.
        on_put: called with the path before an object is stored.
    """

    def __init__(self) -> None:
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        self.put: list[str] = []
        self.on_put: Callable[[str], None] = lambda path: None
        self._app: Any = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "PUT" and environ["PATH_INFO"].count("/") > 1:
            self.put.append(environ["PATH_INFO"])
            self.on_put(environ["PATH_INFO"])
        answer: Iterable[bytes] = self._app(environ, start)
        return answer
