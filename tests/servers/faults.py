"""Every wrong way to answer that was seen in the field, for local servers to answer with.

Which request meets which fault is a function of its content and of how often it was asked, so a run can be repeated.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

TRANSPORT = (
    "429",
    "429_retry_after",
    "500",
    "503",
    "reset",
    "stall",
    "truncated_body",
    "truncated_json",
    "wrong_content_type",
)
ANSWERS = ("wrong_shape", "refusal", "empty", "text_around", "enormous")
ALL = TRANSPORT + ANSWERS


@dataclass
class Faults:
    """What goes wrong, and the server's own count of what it was asked.

    Attributes:
        rate: share of exchanges that go wrong, 0 to 1.
        kinds: which faults, each as likely.
        most: how many faults one content meets at most, so that patience pays; None is no end.
        latency_s: seconds before any answer.
        long_tail: a tenth of the contents takes four times that.
        stall_s: seconds that a stalled answer hangs.
        enormous_bytes: size of an enormous answer.
        asked: requests by content hash.
        work: of each model, from when until when each of its requests had a slot, on one clock in seconds.
        open_now: exchanges in progress.
        most_open: most exchanges in progress at once.
    """

    rate: float = 0.0
    kinds: tuple[str, ...] = TRANSPORT
    most: int | None = 2
    latency_s: float = 0.0
    long_tail: bool = False
    stall_s: float = 30.0
    enormous_bytes: int = 16 << 20
    asked: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    work: defaultdict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    open_now: int = 0
    most_open: int = 0

    def count(self, body: bytes) -> str:
        """Note a request; returns the hash of its content."""
        content = hashlib.sha256(body).hexdigest()
        self.asked[content] += 1
        return content

    def wait_s(self, content: str) -> float:
        """Seconds before the answer to a content."""
        return self.latency_s * (4 if self.long_tail and int(content[:8], 16) % 10 == 0 else 1)

    def choose(self, content: str) -> str | None:
        """The fault that this exchange meets, or None."""
        if not self.rate or (self.most is not None and self.met[content] >= self.most):
            return None
        draw = hashlib.sha256(f"{content}/{self.asked[content]}".encode()).digest()
        if int.from_bytes(draw[:4], "big") / 2**32 >= self.rate:
            return None
        self.met[content] += 1
        return self.kinds[int.from_bytes(draw[4:8], "big") % len(self.kinds)]

    def numbers(self) -> dict[str, Any]:
        """The counts as JSON."""
        return {
            "asked": sum(self.asked.values()),
            "distinct": len(self.asked),
            "repeats": sum(count - 1 for count in self.asked.values()),
            "most_asked": max(self.asked.values(), default=0),
            "faults": sum(self.met.values()),
            "most_open": self.most_open,
        }


async def wrong(request: web.Request, kind: str, faults: Faults, good: bytes) -> web.StreamResponse:
    """Answer with a fault of the transport.

    Args:
        request: what was asked.
        kind: one of `TRANSPORT`.
        faults: for sizes and times.
        good: the right answer, of which some faults send a part.
    """
    match kind:
        case "429":
            return _error(429, "Rate limit reached", "rate_limit_exceeded")
        case "429_retry_after":
            return _error(429, "Rate limit reached", "rate_limit_exceeded", {"retry-after": "0.05"})
        case "500":
            return _error(500, "The server had an error", "server_error")
        case "503":
            return _error(503, "Overloaded", "overloaded")
        case "stall":
            await asyncio.sleep(faults.stall_s)
            return _error(504, "too late", "timeout")
        case "truncated_json":
            return web.Response(body=good[: len(good) // 2], content_type="application/json")
        case "wrong_content_type":
            return web.Response(text="<html><body>Bad gateway</body></html>", content_type="text/html")
        case "truncated_body":
            response = web.StreamResponse(
                headers={"Content-Length": str(len(good)), "Content-Type": "application/json"}
            )
            await response.prepare(request)
            await response.write(good[: len(good) // 2])
            _cut(request)
            return response
        case "reset":
            _cut(request)
            return web.Response()
    raise ValueError(f"no such fault: {kind}")


def garbled(kind: str, text: str, faults: Faults) -> str:
    """The text of an answer that is complete and wrong.

    Args:
        kind: one of `ANSWERS` except `refusal`.
        text: the right text.
        faults: for sizes.
    """
    match kind:
        case "wrong_shape":
            return json.dumps({"unexpected": [1, 2, 3]})
        case "empty":
            return ""
        case "text_around":
            return f"Sure! Here is my answer:\n```json\n{text}\n```\nLet me know if you need more."
        case "enormous":
            return "x" * faults.enormous_bytes
    raise ValueError(f"no such fault: {kind}")


def _error(status: int, message: str, code: str, headers: dict[str, str] | None = None) -> web.Response:
    body = {"error": {"message": message, "type": code, "code": code}}
    return web.json_response(body, status=status, headers=headers)


def _cut(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
