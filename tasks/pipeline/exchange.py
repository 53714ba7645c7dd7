"""Exchange questions and outcomes between the rows of a shard and the sessions of their models."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from typing import Any

from earmark.tasks.annotation.errors import Stopped
from earmark.tasks.annotation.request import Outcome, Request
from earmark.tasks.annotation.session import Session

COLLECT_S = 0.01
"""Time to collect requests, and outcomes: waking a loop from another thread costs a tenth of a small request."""


class Exchange:
    """Exchange of questions and outcomes between a shard's rows and sessions, within one event loop."""

    def __init__(self, sessions: Mapping[str, Session]) -> None:
        self._sessions = sessions
        self._batched = any(session.in_batches for session in sessions.values())
        self._stack = ExitStack()
        self._puts: dict[int, Callable[[list[Request]], None]] = {}
        self._waiting: dict[tuple[int, str], asyncio.Future[Outcome]] = {}
        self._unsent: dict[int, list[Request]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._came: deque[Callable[[], None]] = deque()
        self._woken = False

    def __enter__(self) -> Exchange:
        self._loop = asyncio.get_running_loop()
        self._stack.__enter__()
        return self

    def __exit__(self, *ended: Any) -> None:
        self._stack.__exit__(*ended)

    async def put(self, ask: object, role: str, row: Any, request: Request) -> Outcome:
        """Return the outcome of a request; equal requests are asked once."""
        name = id(self._sessions[role])
        waiting = self._waiting.get((name, request.key))
        if waiting is None:
            waiting = self._waiting[name, request.key] = self._loop.create_future()
            self._unsent.setdefault(name, []).append(request)
            if self._timer is None:
                self._timer = self._loop.call_later(COLLECT_S, self._send)
        return await asyncio.shield(waiting)

    def _send(self) -> None:
        """Send the collected requests; hold those for a batch API until nothing else is in flight."""
        self._timer = None
        unsent = sum(map(len, self._unsent.values()))
        moving = self._batched and unsent < sum(not future.done() for future in self._waiting.values())
        for name, requests in list(self._unsent.items()):
            session = next(one for one in self._sessions.values() if id(one) == name)
            if session.in_batches and moving:
                continue
            del self._unsent[name]
            if session.in_batches:
                self._loop.create_task(self._ask_all(name, session, requests))
                continue
            try:
                if name not in self._puts:
                    self._puts[name] = self._stack.enter_context(self._stream(name, session))
                self._puts[name](requests)
            except Stopped as error:  # raised here it would end a timer, but no row
                self._fail(name, error)

    def _stream(self, name: int, session: Session) -> AbstractContextManager[Callable[[list[Request]], None]]:
        return session.streaming(
            lambda key, outcome: self._call(self._settle, name, key, outcome),
            lambda error: self._call(self._fail, name, error),
        )

    def _call(self, function: Callable[..., None], *values: Any) -> None:
        """Let a session's thread call a function in the loop, soon."""
        self._came.append(partial(function, *values))
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):  # the loop is closed: a fault has ended the shard
                self._loop.call_soon_threadsafe(self._loop.call_later, COLLECT_S, self._call_all)

    def _call_all(self) -> None:
        self._woken = False  # later calls run now, or wake the loop again
        while self._came:
            self._came.popleft()()

    async def _ask_all(self, name: int, session: Session, requests: list[Request]) -> None:
        try:
            report = await asyncio.to_thread(session.ask, requests)
        except Exception as error:  # noqa: BLE001  # every fault ends the rows that wait for it, as in a stream
            self._fail(name, error)
            return
        for request, outcome in zip(requests, report.outcomes, strict=True):
            self._settle(name, request.key, outcome)

    def _settle(self, name: int, key: str, outcome: Outcome) -> None:
        future = self._waiting[name, key]
        if not future.done():
            future.set_result(outcome)
        if self._unsent and self._timer is None:
            self._timer = self._loop.call_later(COLLECT_S, self._send)

    def _fail(self, name: int, error: BaseException) -> None:
        for (owner, _), future in self._waiting.items():
            if owner == name and not future.done():
                future.set_exception(error)
                future.exception()  # mark it as retrieved: no row awaits it after another fault
