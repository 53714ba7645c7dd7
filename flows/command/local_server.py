"""Serve an application on this machine alone, for commands."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.applications import Starlette

STOP_S = 15.0  # time for answers in flight: nothing is lost, but the server's end is no failure


def serve_locally(app: Starlette, port: int, says: Callable[[str], str]) -> None:
    """Serve until Ctrl-C.

    Args:
        port: 0 for a free one.
        says: words the line for the address, such as `http://127.0.0.1:8017`.
    """
    import uvicorn

    from earmark.flows.command import ending
    from earmark.flows.command.console import tell
    from earmark.schemas.errors import InputError

    try:
        listening = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise InputError(f"--port {port}: {os.strerror(error.errno or 0)}; choose another") from None
    with listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=1))
        ending.take(STOP_S)
        try:
            tell(says(f"http://127.0.0.1:{listening.getsockname()[1]}"))
            server.run(sockets=[listening])
        except KeyboardInterrupt:
            tell("stopped")
