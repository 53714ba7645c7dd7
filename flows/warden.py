"""Ends Prefect's temporary server when the build that started it is gone, even if it was killed.

Prefect stops that server when its process exits; a killed process cannot. So a build starts this module as a process
of its own and holds its standard input open: when that closes, servers that carry the build's mark are ended.

    python -m flows.warden MARK < pipe
"""

from __future__ import annotations

import atexit
import os
import secrets
import subprocess
import sys
from functools import cache

import psutil

MARK = "EARMARK_BUILD"
SERVER = "prefect.server.api.server:create_app"


@cache
def watch() -> None:
    """Have the servers that Prefect starts in this process ended with it. The first call counts.

    Prefect keeps one server for all flows of a process, so the warden lives as long as the process does.
    """
    if os.environ.get("PREFECT_API_URL"):
        return  # a server that somebody else looks after
    mark = os.environ[MARK] = secrets.token_hex(8)
    warden = subprocess.Popen(
        [sys.executable, "-m", "flows.warden", mark],
        stdin=subprocess.PIPE,
        start_new_session=True,  # an interrupt from the terminal must not reach it
    )
    atexit.register(warden.communicate)  # runs after Prefect's own, which was registered later: nothing is left to end


def end_servers(mark: str) -> None:
    """End the temporary servers of the build that set the mark."""
    for process in psutil.process_iter():
        try:
            if SERVER in process.cmdline() and process.environ().get(MARK) == mark:
                process.terminate()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue  # it has ended, or it is somebody else's


if __name__ == "__main__":
    sys.stdin.buffer.read()
    end_servers(sys.argv[1])
