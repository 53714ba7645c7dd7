"""Ends what `earmark serve` has started when that is gone, even if it was killed.

A killed process cannot clean up: `earmark serve` would leave its server, its worker and their runs behind. So it starts
this module as a process of its own and holds its standard input open: when that closes, what carries its mark in the
environment is ended.

    python -m earmark.flows.command.supervisor MARK < pipe
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

import psutil

SERVE_MARK = "EARMARK_SERVE"
STOP_S = 30  # how long a process may take to end in order


def start_supervisor(mark: str) -> subprocess.Popen[bytes]:
    """Watch over processes whose environment has a mark in `EARMARK_SERVE`, until the supervisor's standard input
    closes."""
    return subprocess.Popen(
        [sys.executable, "-m", "earmark.flows.command.supervisor", mark],
        stdin=subprocess.PIPE,
        start_new_session=True,  # an interrupt from the terminal must not reach it
    )


def end_family(mark: str) -> None:
    """End what `earmark serve` has started: the runs, the worker that tells the server so, the server; what stays."""
    workers = list(_marked(mark, lambda words: words[2:5] == ["prefect", "worker", "start"]))
    runs: list[psutil.Process] = []
    for worker in workers:
        with suppress(psutil.NoSuchProcess):
            runs += worker.children()
    _signal(workers, signal.SIGINT)  # takes no more runs, and ends after those that it has
    _signal(runs, signal.SIGTERM)
    _kill_after(runs, STOP_S)
    _kill_after(workers, STOP_S)
    servers = list(_marked(mark, lambda words: words[2:5] == ["prefect", "server", "start"]))
    _signal(servers, signal.SIGINT)
    _kill_after(servers, STOP_S)
    _kill_after(list(_marked(mark, lambda words: True)), 0)


def _signal(processes: list[psutil.Process], number: int) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _kill_after(processes: list[psutil.Process], seconds: float) -> None:
    _, stay = psutil.wait_procs(processes, seconds)
    _signal(stay, signal.SIGKILL)
    psutil.wait_procs(stay, STOP_S)


def _marked(mark: str, wanted: Callable[[list[str]], bool]) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        try:
            if process.environ().get(SERVE_MARK) == mark and wanted(process.cmdline()):
                yield process
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue  # it has ended, or it is somebody else's


if __name__ == "__main__":
    sys.stdin.buffer.read()
    end_family(sys.argv[1])
