"""Implement `earmark inspect view`: a page on this machine over all rows of a version."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from earmark.flows.command.options import StoreOption, VersionArgument, open_store

STOP_S = 15.0  # time for answers in flight: nothing is lost, but the page's end is no failure


def view(
    corpus: VersionArgument,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 0,
    store: StoreOption = None,
) -> None:
    """Look through all rows of a version in a browser: filter, sort, listen, compare with another version.

    The page is for this machine alone, at a link that no other user can guess.

    **Example:** `earmark inspect view mos-preferences@v2`
    """
    import secrets

    import uvicorn

    from earmark.flows.command import ending
    from earmark.flows.command.console import tell
    from earmark.flows.command.viewing import make_view_app
    from earmark.schemas.errors import InputError
    from earmark.tasks.pipeline.registry import find_corpus

    place = open_store(store)
    version = place.fetch(place.find(corpus))
    known = find_corpus(version.corpus)
    try:
        listening = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise InputError(f"--port {port}: {os.strerror(error.errno or 0)}; choose another") from None
    token = secrets.token_hex(16)
    with listening, tempfile.TemporaryDirectory(prefix="earmark-") as spill:
        app = make_view_app(version, known, place, token, Path(spill))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=1))
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/{token}/"
        ending.take(STOP_S)
        try:
            tell(f"{version.corpus} {version.name}: {address} on this machine; Ctrl-C ends")
            server.run(sockets=[listening])
        except KeyboardInterrupt:
            tell("stopped")
