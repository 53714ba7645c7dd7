"""Limit the requests in flight by the number of files this process may open: each has a connection."""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path

MOST = 65_536
"""Highest limit: some kernels allow a billion, which older libraries walk through one by one."""
SHARE = 3
"""Divisor of the remaining files for the connections of a model: other models, and clips, need some too."""


def raise_limit() -> int:
    """Raise this process's soft limit on open files to its hard limit and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft == resource.RLIM_INFINITY:
        return MOST
    if soft < wanted:
        with suppress(ValueError, OSError):  # macOS has a lower, hidden limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def at_once(wanted: int) -> int:
    """Return the number of the wanted requests allowed in flight."""
    limit = raise_limit()
    return max(1, min(wanted, (limit - sum(1 for _ in Path("/dev/fd").iterdir())) // SHARE))
