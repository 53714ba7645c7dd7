"""Children end with their parent, however it ends, and with all that they started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from earmark.tasks.annotation.children import Child, end_orphans, orphan_mark

WORKS = """
import os, signal, subprocess, sys, time
if len(sys.argv) > 2:
    signal.signal(signal.SIGTERM, lambda *_: None if sys.argv[2] == "stubborn" else sys.exit(3))
for number in range(2):  # one that leaves the group and the session, and one below that
    code = "import subprocess, sys, time; subprocess.Popen(['sleep', '600']); time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", code], start_new_session=bool(number))
open(sys.argv[1], "w").write("up")
while True:
    time.sleep(1)
"""
PARENT = """
import sys, time
from earmark.tasks.annotation.children import Child
child = Child(sys.argv[1:])
time.sleep(600)
"""
SLACK_S = 8.0  # of a busy machine


def until(true: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def family(pid: int, up: Path) -> list[psutil.Process]:
    """All below a process, once its child is up: the child, two of its own, one of each of them."""
    until(up.exists)
    until(lambda: len(psutil.Process(pid).children(recursive=True)) >= 5)
    return psutil.Process(pid).children(recursive=True)


def works(up: Path, *how: str) -> list[str]:
    return [sys.executable, "-c", WORKS, str(up), *how]


@pytest.mark.slow
def test_a_killed_parent_leaves_no_process(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, *works(tmp_path / "up", "stubborn")])
    below = family(parent.pid, tmp_path / "up")
    parent.kill()
    parent.wait()
    until(lambda: not [one for one in below if lives(one)], 2 + SLACK_S)


@pytest.mark.skipif(sys.platform != "linux", reason="a parent-death signal is Linux's")
def test_a_child_dies_with_its_guard(tmp_path: Path) -> None:
    child = Child(["sleep", "600"])
    guard = psutil.Process(child._guard.pid)
    until(guard.children)
    (process,) = guard.children()
    guard.kill()
    until(lambda: not lives(process), SLACK_S)
    child.end()


@pytest.mark.slow
def test_a_child_that_is_ended_ends_in_order_and_leaves_nothing(tmp_path: Path) -> None:
    with Child(works(tmp_path / "up", "in order")) as child:
        below = family(child._guard.pid, tmp_path / "up")
        assert child.poll() is None
    assert child.poll() == 3
    assert not [one for one in below if lives(one)]


def test_a_child_that_does_not_end_in_order_is_killed(tmp_path: Path) -> None:
    child = Child(works(tmp_path / "up", "stubborn"), grace_s=0.1)
    below = family(child._guard.pid, tmp_path / "up")
    child.end()
    assert child.poll() == 128 + signal.SIGKILL
    assert not [one for one in below if lives(one)]


def test_a_child_that_ends_by_itself_is_seen_to(tmp_path: Path) -> None:
    with (tmp_path / "said").open("wb") as said:
        with Child([sys.executable, "-c", "print('so'); raise SystemExit(7)"], stdout=said) as child:
            assert child.wait(30) == 7
        with Child(["no-such-program"], stderr=said) as missing:
            assert missing.wait(30) == 127
    assert (tmp_path / "said").read_text().split() == [
        "so",
        "no-such-program:",
        "No",
        "such",
        "file",
        "or",
        "directory",
    ]


def test_only_processes_whose_parent_is_gone_are_orphans_whatever_the_clock_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = "from earmark.tasks.annotation.children import MARK, orphan_mark; print(orphan_mark()[MARK])"
    gone = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    (mark,) = orphan_mark()
    marks = (orphan_mark(), {mark: gone})
    mine, orphan = (subprocess.Popen(["sleep", "600"], env=os.environ | one) for one in marks)
    try:
        created = psutil.Process.create_time
        monkeypatch.setattr(psutil.Process, "create_time", lambda self: created(self) + 3600)
        end_orphans()
        assert orphan.wait(SLACK_S) == -signal.SIGKILL
        assert mine.poll() is None
    finally:
        for one in (mine, orphan):
            one.kill()
            one.wait()
