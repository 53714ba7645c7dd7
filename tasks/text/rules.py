"""A rule: what one kind of personal datum or secret looks like."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

AROUND = 48  # characters before and behind a value that may speak for it: "call", "my name is"


@dataclass(frozen=True)
class Seen:
    """A value that a pattern found.

    Attributes:
        value: the value, folded.
        before: what stands before it, at most `AROUND` characters.
        behind: what stands behind it, likewise.
    """

    value: str
    before: str
    behind: str


@dataclass(frozen=True)
class Rule:
    """A shape.

    Attributes:
        kind: what it is called.
        pattern: its last group that took part, if there is one, is the value.
        hint: for RE2; matches each text in which `pattern` finds something.
        holds: decides about a value that the pattern found.
        leaks: whether it may not be published. Links and mentions may: cards and captions have them on purpose.
    """

    kind: str
    pattern: str
    hint: str
    holds: Callable[[Seen], bool] = field(default=lambda seen: True)
    leaks: bool = True

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    @cached_property
    def gate(self) -> re.Pattern[str]:
        return re.compile(self.hint)

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where it finds something in a folded text."""
        if not self.gate.search(text):
            return
        for match in self.compiled.finditer(text):
            start, end = match.span(match.lastindex or 0)
            if self.holds(Seen(text[start:end], text[max(0, start - AROUND) : start], text[end : end + AROUND])):
                yield start, end
