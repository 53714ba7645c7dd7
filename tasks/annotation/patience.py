"""Decide when to give a server up, and when a kind of question waits for the answer to its first."""

import asyncio
import re
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeAlias

from earmark.schemas.questions import Ask, Audio, Image, Json
from earmark.tasks.annotation.errors import (
    AllAlike,
    AskError,
    BadMedia,
    BatchFailed,
    BrokenOff,
    ConnectionFailed,
    MalformedResponse,
    OverLimit,
    RateLimited,
    Retriable,
    RowRefused,
    ServerError,
    ServerGone,
    TimedOut,
    Unavailable,
    WrongContentType,
)
from earmark.tasks.annotation.request import Request

NEVER_S = 10.0
"""Time to try a server without any contact in this run, in seconds: its address is wrong more often than it is late."""
A_MINUTE_S = 60.0  # a quota a minute asks for as much, which is no end
AGAIN_S = 1.0  # longest wait between two such tries, so that the end comes in time


class Patience:
    """State of a server in this run.

    Args:
        most_s: longest wait without any answer, in seconds.
    """

    def __init__(self, most_s: float) -> None:
        self.has_answered = False
        self._reached = False  # whether anything came back, even a fault
        self._most_s = most_s
        self._since: float | None = None  # monotonic time of the first such fault since the last answer
        self._began = ""  # the same as wall-clock time
        self._last = ""  # the last fault
        self._gone = False

    def answered(self) -> bool:
        """Note an answer; return whether the server was away before."""
        was_gone, self._gone = self._gone, False
        self.has_answered, self._since = True, None
        return was_gone

    def covers(self, error: AskError, waited_s: float) -> bool:
        """Return whether a fault is about the server's state alone, and so costs its request no try.

        Args:
            error: the fault.
            waited_s: time since the request's own first such fault; the wait ends even while others are answered.

        Raises:
            ServerGone: no answer came for the whole time, or the server asks to wait longer.
        """
        gone = (isinstance(error, ConnectionFailed) and error.refused) or (
            isinstance(error, TimedOut) and error.kind == "connect"
        )
        self._reached = self._reached or not gone
        if not gone and not isinstance(error, RateLimited | Unavailable):
            return False
        if isinstance(error, Retriable) and (error.retry_after_s or 0.0) > max(self._most_s, A_MINUTE_S):
            raise ServerGone(
                f"the server asks to wait {error.retry_after_s:,.0f} s or more, beyond patience_s = {self._most_s:g}: "
                f"{error}; run again then, or raise patience_s"
            )
        now = time.monotonic()
        if self.unreached:
            if self._since is None:
                self._since = now - (error.seconds if isinstance(error, TimedOut) else 0.0)
            if now - self._since >= min(NEVER_S, self._most_s):
                raise ServerGone(
                    f"nobody has answered in {now - self._since:.0f} s: {error}; check base_url and the server"
                )
            return True
        loading = isinstance(error, Unavailable) and "loading" in str(error).lower()
        if not (self.has_answered or loading) or waited_s > self._most_s:
            return False
        if self._since is None or not self._began:
            self._since, self._began = now, time.strftime("%H:%M:%S")
        self._last, self._gone = str(error), self._gone or gone
        if now - self._since > self._most_s:
            raise ServerGone(
                f"no answer since {self._began}, for {self._most_s:g} s (patience_s): {error}; "
                "when the server is back, run again"
            )
        return True

    @property
    def unreached(self) -> bool:
        """Return whether nothing came back from the server in this run."""
        return not self._reached and not self.has_answered

    def line(self) -> str | None:
        """Return a line about the present wait, if any."""
        if self._since is None or not self._began or time.monotonic() - self._since < 1.0:
            return None
        return f"waiting for the server since {self._began} (up to {self._most_s:g} s): {self._last}"


FIRST = 5  # number of first questions of a kind with the same fault, and without any answer, to stop a run
IN_A_ROW = 20  # number of consecutive questions with the same fault to stop a run after earlier answers
NUMBERED = re.compile(r"\w*\d[\w-]*")  # numbers, identifiers and times, which differ between messages of a fault
_NUMBER = re.compile(r"\d+")
OF_ONE_ROW = (OverLimit, BadMedia, BatchFailed)

Kind: TypeAlias = tuple[Ask, frozenset[type]]


class Sent(NamedTuple):
    """Place of a question among the sent questions of its kind, from 0."""

    kind: Kind
    number: int


class Streak(NamedTuple):
    """Consecutive questions with the same end."""

    first: int
    last: int
    sign: str


@dataclass(slots=True)
class Streaks:
    """Questions of one annotator without an answer, each counted once."""

    _sent: Counter[Kind] = field(default_factory=Counter)
    _answered: set[Kind] = field(default_factory=set)
    _by_end: dict[Sent, Streak] = field(default_factory=dict)  # every streak by its first and its last place

    def place(self, request: Request) -> Sent:
        """Return the next place. Retries of an earlier run's questions have none once the server answers their kind:
        some rows may always fail."""
        kind = kind_of(request)
        self._sent[kind] += 1
        return Sent(kind, self._sent[kind] - 1)

    def answered(self, request: Request) -> None:
        """Note an answer, also from the ledger: the server takes this kind."""
        self._answered.add(kind_of(request))

    def is_answered(self, request: Request) -> bool:
        """Return whether a question of its kind has an answer."""
        return kind_of(request) in self._answered

    def failed(self, place: Sent, error: AskError) -> AllAlike | None:
        """Note a question's fault; return the common fault, if any."""
        if isinstance(error, OF_ONE_ROW):
            return None
        kind, number = place
        sign = f"{error.reason} {NUMBERED.sub('#', str(error))[:300]}"
        before, after = (self._by_end.get(Sent(kind, number + step)) for step in (-1, 1))
        first = before.first if before and before.sign == sign else number
        last = after.last if after and after.sign == sign else number
        streak = Streak(first, last, sign)
        self._by_end[Sent(kind, first)] = self._by_end[Sent(kind, last)] = streak
        length = last - first + 1
        if first == 0 and length >= FIRST and kind not in self._answered:
            return AllAlike(f"the first {length} questions all end alike: {_told(error)}")
        if length >= IN_A_ROW and not isinstance(error, RowRefused):
            return AllAlike(f"{length} questions in a row end alike: {_told(error)}")
        return None


def _told(error: AskError) -> str:
    return f"{error}. {error.way_out}" if error.way_out else str(error)


def kind_of(request: Request) -> Kind:
    """Return the form of the answer and the kinds of parts, on which a server's support depends.

    The numbers by which a schema is bound to its row make no kind of their own.
    """
    return _unnumbered(request.ask), frozenset(map(type, request.parts()))


@lru_cache(maxsize=1024)
def _unnumbered(ask: Ask) -> Ask:
    return replace(ask, schema=_NUMBER.sub("#", ask.schema)) if isinstance(ask, Json) else ask


FEW = 8  # number of places in flight too small to hold questions back
AHEAD_S = 10.0  # longest wait for the question ahead, in seconds
UNANSWERED = 3  # number of questions in a row without an answer after which the others are sent
TRIES = 3  # number of server errors after which the next question of the kind goes ahead

AskKind: TypeAlias = tuple[type, frozenset[type]]


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
    """Gate for the questions of an annotator: those of a kind wait until the first shows that the server takes it.

    A server without audio input, or with nothing but faults, is then asked a few times, not once for each place in
    flight. The first question is part of the build, so nothing is wasted; with an answer of the kind in the ledger,
    none waits.
    """

    def __init__(self) -> None:
        self._open: set[AskKind] = set()
        self._ahead: dict[AskKind, tuple[object, str]] = {}  # its run and its key
        self._waiting: defaultdict[AskKind, deque[Waiting]] = defaultdict(deque)
        self._unanswered: Counter[AskKind] = Counter()
        self._errors: defaultdict[AskKind, Counter[str]] = defaultdict(Counter)

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
        alike = isinstance(error, ServerError | MalformedResponse | WrongContentType | BrokenOff)
        if not alike or isinstance(error, Unavailable):
            self._let_go(kind)  # a fault of the server's state, not of the kind
            return None
        errors = self._errors[kind]
        errors[job.key] += 1
        if errors[job.key] < TRIES or not self._leads(job):
            return None
        if (questions := sum(count >= TRIES for count in errors.values())) >= FIRST:
            return AllAlike(
                f"{errors.total()} requests for the first {questions} questions all fail: {error}"
                f"{_mend(kind) if isinstance(error, ServerError) else '; check base_url'}"
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

    def _lead(self, kind: AskKind, run: object, job: Pending) -> None:
        self._ahead[kind] = run, job.key
        asyncio.get_running_loop().call_later(AHEAD_S, self._give_up, job)

    def _give_up(self, job: Pending) -> None:
        if self._leads(job):
            self._let_go(_kind_of(job.request))

    def _next(self, kind: AskKind) -> None:
        self._ahead.pop(kind, None)
        if waiting := self._waiting[kind]:
            run, job, go = waiting.popleft()
            self._lead(kind, run, job)
            go()

    def _let_go(self, kind: AskKind) -> None:
        self._open.add(kind)
        self._ahead.pop(kind, None)
        for one in self._waiting.pop(kind, ()):
            one.go()


def _kind_of(request: Request) -> AskKind:
    return type(request.ask), frozenset(map(type, request.parts()))


def _mend(kind: AskKind) -> str:
    media = [name for name, part in (("audio", Audio), ("images", Image)) if part in kind[1]]
    takes = f"does the model take {' and '.join(media)}? " if media else ""
    return f"; {takes}earmark doctor --config says what a model takes"
