"""A rule: what one kind of personal datum or secret looks like."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

_WORD = re.compile(r"[^\W\d_]+")
DIGITS = tuple("0123456789")
AROUND = 48  # characters before and behind a value that may speak for it: "call", "my name is"


@dataclass(frozen=True)
class Seen:
    """A value that a pattern found."""

    value: str  # the value, folded
    before: str  # what stands before it, at most `AROUND` characters
    behind: str  # what stands behind it, likewise


def words_of(text: str) -> frozenset[str]:
    """The runs of letters in a text, in lower case."""
    return frozenset(_WORD.findall(text.lower()))


class View:
    """A folded text, and what rules ask of it before they read it: most have nothing to do with most texts."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._matched: dict[str, bool] = {}

    @cached_property
    def lower(self) -> str:
        """The text in lower case."""
        return self.text.lower()

    @cached_property
    def words(self) -> frozenset[str]:
        """Its words."""
        return words_of(self.lower)

    def matches(self, pattern: str) -> bool:
        """Whether a pattern is found; rules of one hint share the answer."""
        if pattern not in self._matched:
            self._matched[pattern] = re.search(pattern, self.text) is not None
        return self._matched[pattern]


@dataclass(frozen=True)
class Rule:
    """A shape."""

    kind: str  # what it is called
    pattern: str  # its last group that took part, if there is one, is the value
    hint: str  # for RE2; matches each text in which `pattern` finds something
    holds: Callable[[Seen], bool] = field(default=lambda seen: True)  # decides about a value that the pattern found
    # whether it may not be published. Links and mentions may: cards and captions have them on purpose.
    leaks: bool = True
    # a text must have one of these words, or of `marks`; without both, `hint` must match in Python too
    words: frozenset[str] = frozenset()
    marks: tuple[str, ...] = ()  # likewise, wherever they stand; in lower case

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    def may(self, view: View) -> bool:
        """Whether it might find something; a look that costs little."""
        if self.words or self.marks:
            return not self.words.isdisjoint(view.words) or any(mark in view.lower for mark in self.marks)
        return view.matches(self.hint)

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where it finds something in a folded text."""
        for match in self.compiled.finditer(text):
            start, end = match.span(match.lastindex or 0)
            if self.holds(Seen(text[start:end], text[max(0, start - AROUND) : start], text[end : end + AROUND])):
                yield start, end
