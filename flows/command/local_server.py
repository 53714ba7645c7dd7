"""Serve an application on this machine alone, for commands."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

    from starlette.applications import Starlette

STOP_S = 15.0  # time for the end: nothing is lost, but the server's end is no failure


def serve_locally(app: Starlette, port: int, says: Callable[[str], str], *, answer_s: int = 1) -> None:
    """Serve until Ctrl-C.

    Args:
        port: 0 for a free one.
        says: words the line for the address, such as `http://127.0.0.1:8017`.
        answer_s: time for answers in flight at the end.
    """
    import uvicorn

    from earmark.flows.command import ending
    from earmark.flows.command.console import tell
    from earmark.schemas.errors import InputError

    class LoopbackServer(uvicorn.Server):
        """Server that ends once: uvicorn raises its signals again after the last answer, as if a person had."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            """Start, and print the address: from here on, signals end the server."""
            await super().startup(sockets)
            tell(says(f"http://127.0.0.1:{listening.getsockname()[1]}"))

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            """End after the answers in flight; at a second signal, at once."""
            self.should_exit, self.force_exit = True, self.should_exit

    try:
        listening = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise InputError(f"--port {port}: {os.strerror(error.errno or 0)}; choose another") from None
    with listening:
        server = LoopbackServer(
            uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=answer_s)
        )
        ending.take(STOP_S)
        server.run(sockets=[listening])
        tell("stopped")
