"""Sizes of the machine, or of the container that a process may use of it."""

import re
from contextlib import suppress
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
    with suppress(OSError):  # no Linux
        for line in groups.read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            base, name = (mount / "memory", "memory.limit_in_bytes") if controllers else (mount, "memory.max")
            path = base / group.lstrip("/")
            for folder in (path, *path.parents):  # a container may see its own group as the root
                with suppress(OSError):
                    limits += [int(text) for text in re.findall(r"^\d+$", (folder / name).read_text().strip())]
                if folder == base:
                    break
    return min(limits)
