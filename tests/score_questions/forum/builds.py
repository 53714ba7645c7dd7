"""Builds of a forum's dump in processes of their own, which read images from a server of the test and may be killed.

`python -m tests.score_questions.forum.builds --serve` runs them. A file `dies_at` beside the config holds a number: the
process kills itself before it would give its so many-th file its name.
"""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

from earmark.schemas.score_questions import ScoreQuestions
from earmark.schemas.toml import parse_config, read_toml
from earmark.tasks.pipeline import plan
from earmark.tasks.score_questions.forum.download import Gate
from tests.builds import serve_builds
from tests.score_questions.questions import build_dump

HOST = "i.example"
PORT = "EARMARK_TEST_IMAGES_PORT"  # environment variable


class _Loopback(AbstractResolver):
    """Every name is this machine."""

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        return [ResolveResult(hostname=host, host="127.0.0.1", port=port, family=socket.AF_INET, proto=0, flags=0)]

    async def close(self) -> None:
        return


def gate_to(port: int) -> Gate:
    """A gate that lets only a server on this machine through."""
    here = ipaddress.ip_address("127.0.0.1")
    return Gate((HOST,), ("http",), lambda address: address == here, _Loopback(), port, per_second=100)


def die_at(count: int) -> None:
    """Kill this process, by a signal that it cannot catch, before a file gets its name for the `count`-th time."""
    named = Path.replace
    left, alone = count, threading.Lock()

    def counted(path: Path, target: Any) -> Path:
        nonlocal left
        with alone:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return named(path, target)

    Path.replace = counted  # type: ignore[method-assign, assignment]


def build_from_file(config: str, store: str) -> None:
    """What a process that may be killed runs."""
    path = Path(config)
    if (given := path.with_name("dies_at")).is_file():
        die_at(int(given.read_text()))
    build_dump(parse_config(ScoreQuestions, read_toml(path), path), Path(store), gate_to(int(os.environ[PORT])))


if __name__ == "__main__":
    plan.code_digest("earmark.flows.score_questions")  # type: ignore[attr-defined]
    assert sys.argv[1:] == ["--serve"]
    serve_builds(build_from_file)
