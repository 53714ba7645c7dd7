"""Sizes of the machine, or of the container that a process may use of it, and the memory of this process."""

import ctypes
import gc
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

_GROUPS = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")


def memory_bytes(groups: Path = _GROUPS, mount: Path = _MOUNT) -> int:
    """Return the bytes of memory that this process may use: the machine's, or the least limit of its control groups.

    A container sees the machine's memory in `/proc/meminfo`, and is killed beyond its own limit.

    Args:
        groups: the groups of this process, as Linux lists them.
        mount: the folder of the control groups, of version 1 or 2.
    """
    limits = [int(psutil.virtual_memory().total)]
    for folder, old in _folders("memory", groups, mount):
        with suppress(OSError):
            text = (folder / ("memory.limit_in_bytes" if old else "memory.max")).read_text()
            limits += map(int, re.findall(r"^\d+$", text.strip()))
    return min(limits)


def processors(groups: Path = _GROUPS, mount: Path = _MOUNT) -> int:
    """Return the processors that this process may use: those it may run on, or its groups' least quota, rounded up.

    Args:
        groups: the groups of this process, as Linux lists them.
        mount: the folder of the control groups, of version 1 or 2.
    """
    # macOS has no affinity
    counts = [len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1]
    for folder, old in _folders("cpu", groups, mount):
        with suppress(OSError, ValueError, ZeroDivisionError):  # no limit that can be read
            names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if old else ("cpu.max",)
            quota, period = " ".join((folder / name).read_text() for name in names).split()
            counts += [max(1, -(-int(quota) // int(period)))] if quota not in {"max", "-1"} else []
    return min(counts)


def give_back() -> None:
    """Return freed memory to the system: glibc keeps what lies between pieces in use, and other allocators of this
    process, such as DuckDB's and pyarrow's, take new memory beside it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause Python's search for cycles of garbage while a block makes many objects, all of which stay: it would look
    through them again and again, in vain. Also a decorator."""
    searches = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searches:
            gc.enable()


def _folders(controller: str, groups: Path, mount: Path) -> Iterator[tuple[Path, bool]]:
    """Yield the folders of this process's groups, each before those above it, and whether they are of version 1."""
    with suppress(OSError):  # no Linux
        for line in groups.read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            base = mount / controller if controllers else mount
            path = base / group.lstrip("/")
            for folder in (path, *path.parents):  # a container may see its own group as the root
                yield folder, bool(controllers)
                if folder == base:
                    break
