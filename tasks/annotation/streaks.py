"""Find faults common to every request: the first of a kind, or many in a row, end alike."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from earmark.schemas.questions import Ask, Json
from earmark.tasks.annotation.errors import AllAlike, AskError, BadMedia, BatchFailed, OverLimit, RowRefused
from earmark.tasks.annotation.request import Request

FIRST = 5
"""Number of first questions of a kind with the same fault, and without any answer, to stop a run."""
IN_A_ROW = 20
"""Number of consecutive questions with the same fault to stop a run after earlier answers."""
NUMBERED = re.compile(r"\w*\d[\w-]*")
"""Numbers, identifiers and times, which differ between messages of a fault."""
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
    ask = request.ask
    ask = replace(ask, schema=_NUMBER.sub("#", ask.schema)) if isinstance(ask, Json) else ask
    return ask, frozenset(map(type, request.parts()))
