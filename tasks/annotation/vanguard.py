"""Hold questions of a kind back until the first shows that the server takes this kind.

A server without audio input, or with nothing but faults, is then asked a few times, not once for each place in flight.
The first question is part of the build, so nothing is wasted; with an answer of the kind in the ledger, none waits.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from earmark.schemas.questions import Audio, Image
from earmark.tasks.annotation.errors import AllAlike, AskError, ServerError, Unavailable
from earmark.tasks.annotation.request import Request
from earmark.tasks.annotation.streaks import FIRST

FEW = 8
"""Number of places in flight too small to hold questions back."""
AHEAD_S = 10.0
"""Longest wait for the question ahead, in seconds."""
UNANSWERED = 3
"""Number of questions in a row without an answer after which the others are sent."""
TRIES = 3
"""Number of server errors after which the next question of the kind goes ahead."""

Kind: TypeAlias = tuple[type, frozenset[type]]


class Pending(Protocol):
    """Question on its way."""

    @property
    def request(self) -> Request:
        """Return its request."""

    @property
    def key(self) -> str:
        """Return its request's key."""


class Waiting(NamedTuple):
    """Question held back."""

    run: object
    job: Pending
    go: Callable[[], None]


class Vanguard:
    """Gate for the questions of an annotator, by kind."""

    def __init__(self) -> None:
        self._open: set[Kind] = set()
        self._ahead: dict[Kind, tuple[object, str]] = {}  # its run and its key
        self._waiting: defaultdict[Kind, deque[Waiting]] = defaultdict(deque)
        self._unanswered: Counter[Kind] = Counter()
        self._errors: defaultdict[Kind, Counter[str]] = defaultdict(Counter)

    def admits(self, run: object, job: Pending, go: Callable[[], None]) -> bool:
        """Return whether a question may be sent now; else hold it back and call `go` later."""
        kind = _kind_of(job.request)
        if kind in self._open or self._leads(job):
            return True
        if kind in self._ahead:
            self._waiting[kind].append(Waiting(run, job, go))
            return False
        self._lead(kind, run, job)
        return True

    def answered(self, request: Request) -> None:
        """Note an answer, also from the ledger."""
        self._let_go(_kind_of(request))

    def unanswered(self, job: Pending) -> None:
        """Note a question without an answer."""
        kind = _kind_of(job.request)
        if kind in self._open or not self._leads(job):
            return
        self._unanswered[kind] += 1
        if self._unanswered[kind] >= UNANSWERED:
            self._let_go(kind)
        else:
            self._next(kind)

    def failed(self, job: Pending, error: AskError) -> AllAlike | None:
        """Note a retriable fault; return the common fault once every question of the kind meets it."""
        kind = _kind_of(job.request)
        if kind in self._open:
            return None
        if not isinstance(error, ServerError) or isinstance(error, Unavailable):
            self._let_go(kind)  # a fault of the server's state, not of the kind
            return None
        errors = self._errors[kind]
        errors[job.key] += 1
        if errors[job.key] < TRIES or not self._leads(job):
            return None
        if (questions := sum(count >= TRIES for count in errors.values())) >= FIRST:
            return AllAlike(
                f"{errors.total()} requests for the first {questions} questions all fail: {error}{_mend(kind)}"
            )
        self._next(kind)
        return None

    def forget(self, run: object) -> None:
        """Drop the waiting questions of an ended run; another question may go ahead in its place."""
        for kind in [*self._waiting]:
            self._waiting[kind] = deque(one for one in self._waiting[kind] if one.run is not run)
        for kind in [kind for kind, (holder, _) in self._ahead.items() if holder is run]:
            self._next(kind)

    def _leads(self, job: Pending) -> bool:
        return self._ahead.get(_kind_of(job.request), (None, ""))[1] == job.key

    def _lead(self, kind: Kind, run: object, job: Pending) -> None:
        self._ahead[kind] = run, job.key
        asyncio.get_running_loop().call_later(AHEAD_S, self._give_up, job)

    def _give_up(self, job: Pending) -> None:
        if self._leads(job):
            self._let_go(_kind_of(job.request))

    def _next(self, kind: Kind) -> None:
        self._ahead.pop(kind, None)
        if waiting := self._waiting[kind]:
            run, job, go = waiting.popleft()
            self._lead(kind, run, job)
            go()

    def _let_go(self, kind: Kind) -> None:
        self._open.add(kind)
        self._ahead.pop(kind, None)
        for one in self._waiting.pop(kind, ()):
            one.go()


def _kind_of(request: Request) -> Kind:
    return type(request.ask), frozenset(map(type, request.parts()))


def _mend(kind: Kind) -> str:
    media = [name for name, part in (("audio", Audio), ("images", Image)) if part in kind[1]]
    takes = f"does the model take {' and '.join(media)}? " if media else ""
    return f"; {takes}earmark doctor --config says what a model takes"
