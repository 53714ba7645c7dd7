"""Run child processes that end with their parent, even if it is killed.

    with Child(["vllm", "serve", model], env=environment, stdout=log, stderr=log) as server:
        ...  # server.poll() is its exit code after its end; server.wait(seconds) waits for it

The block's end asks the child to end (SIGTERM), and kills the rest after `grace_s`. A killed parent can end nothing. So
a guard process starts the child in a process group, and watches a pipe held by the parent: when the pipe closes, the
guard ends the child and all its descendants within `ORPHAN_S`. With a parent-death signal in the kernel (Linux), the
child also dies with its guard, and the guard inherits orphaned descendants. If parent and guard are killed at once,
`end_orphans` finds processes with the mark of `orphan_mark`. The guard needs no code of Earmark but this file.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

import psutil

MARK = "EARMARK_CHILD_OF"
ORPHAN_S = 1.0  # seconds for an orphaned child to end in order
ALONE_S = 2.0  # seconds for a child without children of its own, and for its remains
KILL_S = 5.0  # seconds for killed processes: the kernel may be busy with them
SET_DEATH_SIGNAL, SET_SUBREAPER = 1, 36  # prctl(2)


class Child:
    """Running child process.

    Args:
        command: program and arguments; its standard input is empty.
        env, cwd, stdout, stderr: as `subprocess.Popen`.
        grace_s: time to end in order, in seconds.
        and_its_own: whether to signal its own children too, for a child waiting for them.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        stdout: IO[bytes] | int | None = None,
        stderr: IO[bytes] | int | None = None,
        grace_s: float = 5.0,
        and_its_own: bool = False,
    ) -> None:
        self._grace_s = grace_s
        self._guard = subprocess.Popen(
            [sys.executable, "-P", __file__, str(grace_s), str(int(and_its_own)), *command],
            env=env,
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,  # an interrupt from the terminal does not reach it: the parent decides the order
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def poll(self) -> int | None:
        """Return the exit code, 128 plus the signal's number after a signal, or None while it runs."""
        return self._guard.poll()

    def wait(self, seconds: float | None = None) -> int:
        """Wait for the child's own end and return its exit code.

        Raises:
            subprocess.TimeoutExpired: it runs longer.
        """
        return self._guard.wait(seconds)

    def end(self) -> None:
        """End the child and all its descendants; return after their end."""
        assert self._guard.stdin is not None
        if self._guard.poll() is None:
            with suppress(BrokenPipeError):
                self._guard.stdin.write(b"end\n")
                self._guard.stdin.flush()
        try:
            self._guard.wait(self._grace_s + 3 * KILL_S)
        except subprocess.TimeoutExpired:
            self._guard.kill()  # the child dies with it
            self._guard.wait()
        with suppress(BrokenPipeError):
            self._guard.stdin.close()


def orphan_mark() -> dict[str, str]:
    """Return the environment variable by which a later process finds this process's orphans."""
    return {MARK: f"{os.getpid()} {_born(os.getpid())} {_machine()}"}


def end_orphans() -> None:
    """Kill marked processes without their parent: a parent and a guard were killed at once."""
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError, ValueError):
            pid, born, machine = process.environ().get(MARK, "").split(maxsplit=2)
            if machine == _machine() and _born(int(pid)) != born:
                process.kill()


def _machine() -> str:
    """Return the scope of process ids: a machine, and on Linux a container's namespace."""
    with suppress(OSError):
        return f"{socket.gethostname()} {Path('/proc/self/ns/pid').readlink()}"
    return socket.gethostname()


def _born(pid: int) -> str:
    """Return when a process began, on Linux in ticks since the machine's start, which no setting of the clock moves.

    Without such a process, return an empty text.
    """
    with suppress(OSError, psutil.NoSuchProcess):
        if sys.platform == "linux":
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        return f"{psutil.Process(pid).create_time():.0f}"
    return ""


def guard(command: Sequence[str], grace_s: float, and_its_own: bool) -> int:
    """Run a command until its end, a request to end it, or the parent's death; return its exit code."""
    call = ctypes.CDLL(None).prctl if sys.platform == "linux" else lambda *_: 0
    call(SET_SUBREAPER, 1, 0, 0, 0)
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            process_group=0,
            preexec_fn=lambda: call(SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0),
        )
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127

    lock = threading.Lock()

    def end(seconds: float) -> None:
        with lock:
            end_all(seconds)

    def end_all(seconds: float) -> None:
        with suppress(psutil.NoSuchProcess):
            top = psutil.Process(child.pid)
            for process in [top, *(top.children() if and_its_own else [])]:
                _signal(process, signal.SIGTERM)
        deadline = time.monotonic() + seconds
        while (left := _below()) and time.monotonic() < deadline:
            if (and_its_own and len(left) == 1) or (child.poll() is not None and not and_its_own):
                deadline = min(deadline, time.monotonic() + ALONE_S)  # no process with anything to save is left
            time.sleep(0.02)
        deadline = time.monotonic() + KILL_S
        while (left := _below()) and time.monotonic() < deadline:  # parents first: they see no child die
            for process in left:
                _signal(process, signal.SIGKILL)
            time.sleep(0.02)

    def watch() -> None:
        told = os.read(0, 16)  # sys.stdin would hold a lock at the end of this process
        end(grace_s if told else ORPHAN_S)

    def terminated(*_: object) -> None:
        threading.Thread(target=end, args=(grace_s,), daemon=True).start()

    signal.signal(signal.SIGTERM, terminated)
    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    code = child.wait()
    end(ORPHAN_S)  # its remains
    return code if code >= 0 else 128 - code


def _below() -> list[psutil.Process]:
    """Return all running processes below this process, a parent before its children."""
    below = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                below.append(process)
    return below


def _signal(process: psutil.Process, number: int) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)


if __name__ == "__main__":
    raise SystemExit(guard(sys.argv[3:], float(sys.argv[1]), sys.argv[2] == "1"))
