"""Ends what a command has started when the command is gone, even if it was killed.

A killed process cannot clean up: a build leaves Prefect's temporary server behind, `earmark serve` its server, its
worker and their runs. So the command starts this module as a process of its own and holds its standard input open: when
that closes, what carries the command's mark in its environment is ended.

    python -m earmark.flows.command.supervisor build MARK < pipe
    python -m earmark.flows.command.supervisor serve MARK < pipe
"""

from __future__ import annotations

import atexit
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache

import psutil

MARK = "EARMARK_BUILD"
SERVE_MARK = "EARMARK_SERVE"
SERVER = "prefect.server.api.server:create_app"
STOP_S = 30  # how long a process may take to end in order


@cache
def watch() -> None:
    """Have the servers that Prefect starts in this process ended with it. The first call counts.

    Prefect keeps one server for all flows of a process, so the supervisor lives as long as the process does.
    """
    if os.environ.get("PREFECT_API_URL"):
        return  # a server that somebody else looks after
    mark = os.environ[MARK] = secrets.token_hex(8)
    supervisor = start_supervisor("build", mark)
    atexit.register(
        supervisor.communicate
    )  # runs after Prefect's own, which was registered later: nothing is left to end


def start_supervisor(what: str, mark: str) -> subprocess.Popen[bytes]:
    """Watch over what carries a mark, until the supervisor's standard input closes.

    Args:
        what: `build` or `serve`.
        mark: what the environment of the processes holds, in `EARMARK_BUILD` or `EARMARK_SERVE`.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "earmark.flows.command.supervisor", what, mark],
        stdin=subprocess.PIPE,
        start_new_session=True,  # an interrupt from the terminal must not reach it
    )


def end_servers(mark: str) -> None:
    """End the temporary servers of the build that set the mark."""
    _signal(list(_marked(MARK, mark, lambda words: SERVER in words)), signal.SIGTERM)


def end_family(mark: str) -> None:
    """End what `earmark serve` has started: the runs, the worker that tells the server so, the server; what stays."""
    workers = list(_marked(SERVE_MARK, mark, lambda words: words[2:5] == ["prefect", "worker", "start"]))
    runs = [run for worker in workers for run in _children(worker)]
    _signal(workers, signal.SIGINT)  # takes no more runs, and ends after those that it has
    _signal(runs, signal.SIGTERM)
    _kill_after(runs, STOP_S)
    _kill_after(workers, STOP_S)
    servers = list(_marked(SERVE_MARK, mark, lambda words: words[2:5] == ["prefect", "server", "start"]))
    _signal(servers, signal.SIGINT)
    _kill_after(servers, STOP_S)
    _kill_after(list(_marked(SERVE_MARK, mark, lambda words: True)), 0)


def _children(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return process.children()
    return []


def _signal(processes: list[psutil.Process], number: int) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _kill_after(processes: list[psutil.Process], seconds: float) -> None:
    _, stay = psutil.wait_procs(processes, seconds)
    _signal(stay, signal.SIGKILL)
    psutil.wait_procs(stay, STOP_S)


def _marked(name: str, mark: str, wanted: Callable[[list[str]], bool]) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        try:
            if process.environ().get(name) == mark and wanted(process.cmdline()):
                yield process
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue  # it has ended, or it is somebody else's


ENDS = {"build": end_servers, "serve": end_family}

if __name__ == "__main__":
    sys.stdin.buffer.read()
    ENDS[sys.argv[1]](sys.argv[2])
