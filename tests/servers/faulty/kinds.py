"""What a kind of faulty answer is, and how one is written down. A web framework would mend half of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from earmark.schemas.annotation import AnnotatorConfig

Json = dict[str, Any]
CAP = AnnotatorConfig.most_response_bytes
"""`most_response_bytes` of those who ask: endless answers send a few times as much before they give up."""


@dataclass(frozen=True)
class Meeting:
    """One exchange: what was asked, by which headers, where to answer, and where a redirect would lead."""

    body: Json
    headers: Mapping[str, str]
    writer: asyncio.StreamWriter
    elsewhere: str
    here: str

    @property
    def key(self) -> str:
        """The key that came along."""
        return self.headers.get("authorization", "Bearer none").removeprefix("Bearer ")

    @property
    def good(self) -> Json:
        """The right answer: `reason` says which request it belongs to."""
        wanted = self.body["messages"][-1]["content"]
        text = json.dumps({"musicality": "A", "alignment": "tie", "reason": wanted})
        choice: Json = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        if self.body.get("logprobs"):
            listed = [{"token": "Yes", "logprob": -0.2}, {"token": " no", "logprob": -2.0}]
            choice["logprobs"] = {"content": [{**listed[0], "top_logprobs": listed}]}
        usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
        return {"id": "1", "object": "chat.completion", "model": "tiny", "choices": [choice], "usage": usage}

    async def send(self, *pieces: bytes) -> None:
        """Write and flush."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()


@dataclass(frozen=True)
class Kind:
    """A faulty answer.

    Attributes:
        ends: reason of the reject that the request ends in, or `answered` where the fault costs no answer.
        answer: writes it.
        yes_no: it is asked for the probabilities of yes and no.
    """

    ends: str
    answer: Callable[[Meeting], Awaitable[None]]
    yes_no: bool = False


KINDS: dict[str, Kind] = {}
"""The catalogue, by name."""


def http(status: str, body: bytes = b"", *headers: str, kind: str | None = "application/json") -> bytes:
    """A whole response with its length."""
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}"]
    lines += [f"Content-Type: {kind}"] if kind else []
    return "\r\n".join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + body


def head(*headers: str, status: str = "200 OK") -> bytes:
    """A response without its body."""
    return "\r\n".join([f"HTTP/1.1 {status}", "Content-Type: application/json", *headers]).encode() + b"\r\n\r\n"


def sends(name: str, ends: str, made: Callable[[Meeting], bytes], *, then: str = "keep") -> None:
    """A kind that writes bytes; `then` keeps the connection, closes it, resets it, or says nothing more."""

    async def answer(meeting: Meeting) -> None:
        await meeting.send(made(meeting))
        if then == "close":
            meeting.writer.close()
        elif then == "reset":
            meeting.writer.transport.abort()
        elif then == "wait":
            await asyncio.sleep(30)

    KINDS[name] = Kind(ends, answer)


def says(name: str, ends: str, change: Callable[[Json], object], *, yes_no: bool = False) -> None:
    """A kind whose JSON is a good answer with something changed: in place, or by what `change` returns."""

    async def answer(meeting: Meeting) -> None:
        good = meeting.good
        changed = change(good)
        held = good if changed is None else changed
        body = held if isinstance(held, bytes) else json.dumps(held).encode()
        await meeting.send(http("200 OK", body))

    KINDS[name] = Kind(ends, answer, yes_no)


def drips(name: str, ends: str, first: Callable[[Meeting], bytes], piece: bytes, pause_s: float, most: int) -> None:
    """A kind that goes on and on."""

    async def answer(meeting: Meeting) -> None:
        await meeting.send(first(meeting))
        with contextlib.suppress(ConnectionError):
            for _ in range(most):
                await meeting.send(piece)
                await asyncio.sleep(pause_s)
        meeting.writer.close()

    KINDS[name] = Kind(ends, answer)


def whole(meeting: Meeting) -> bytes:
    """The right answer's body."""
    return json.dumps(meeting.good).encode()
